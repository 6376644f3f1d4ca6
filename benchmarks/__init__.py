"""Measurements, each with its command, its settings and its machine; see docs/performance.md."""
