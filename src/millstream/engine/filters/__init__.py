"""Filters that the broker evaluates: their language, filtered reads, patterns of names."""
