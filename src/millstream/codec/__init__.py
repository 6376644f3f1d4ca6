"""Encodes and decodes record batches: headers, records, compression, and the primitive types.

Pure functions of bytes. Import from the modules: `batch` for the header level, which is all that
the hot path needs, and `records` where the records of a batch are needed.
"""
