"""Schemas of values: texts, their canonical form and which version can read which. Pure."""
