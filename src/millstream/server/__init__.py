"""A node: the parts put together, started and stopped."""
