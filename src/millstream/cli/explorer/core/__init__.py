"""Decisions of the explorer, without a terminal, a thread or a clock."""
