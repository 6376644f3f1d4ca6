"""Millstream: one durable log that many protocols speak to, with Spark as its mill."""

__version__ = "0.1.0"

__all__ = ["__version__"]
