"""What is kept: files, segments and their indexes, the journal of votes and epochs.

Owns bytes at rest and what a power cut may do to them. Knows nothing of leaders or requests.
"""
