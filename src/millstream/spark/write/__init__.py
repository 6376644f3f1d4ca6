"""The sink: rows become records, each batch of a query exactly once."""
