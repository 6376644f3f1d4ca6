"""Spans of appends and fetches, for nodes with a `tracing.endpoint`."""
