"""Pipelines without a JVM: what describes them, what they count, what they say when they fail."""
