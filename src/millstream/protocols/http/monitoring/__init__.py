"""Metrics and health, for programs that watch the node."""
