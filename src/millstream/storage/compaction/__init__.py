"""Compaction and time to live: which records stay, and the segments that replace others."""
