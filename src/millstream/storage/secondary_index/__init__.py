"""Secondary indexes: which batches of a segment may hold a record with this key or header value."""
