"""Every example below `examples/` works."""
