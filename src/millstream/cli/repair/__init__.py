"""Repairs and looks into data directories of nodes that are stopped."""
