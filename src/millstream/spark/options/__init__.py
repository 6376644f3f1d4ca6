"""Options of the source and the sink: read from text, checked, and named in errors."""
