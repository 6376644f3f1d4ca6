"""Protobuf 2 and 3: descriptors, the text of a file, and which change breaks readers."""
