"""The schema registry of a node."""
