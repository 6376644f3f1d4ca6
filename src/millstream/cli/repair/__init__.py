"""Repairs that `millstream repair` makes on a data directory."""
