"""Delayed records: kept in an internal topic, delivered when they are due."""
