"""Stores files, segments and their indexes, and the journal of votes and epochs.

Owns bytes at rest, and their state after a power cut. Knows nothing of leaders or requests.
"""
