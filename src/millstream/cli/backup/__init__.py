"""Backups: the files of a node at one moment, copied and verified, and made a data directory."""
