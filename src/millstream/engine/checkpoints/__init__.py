"""Checkpoints: the files of a node at one moment, for backups."""
