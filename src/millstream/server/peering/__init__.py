"""Connections to other nodes: dialling, accepting, links and calls. Loaded in a cluster only."""
