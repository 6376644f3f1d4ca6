"""The state of pipelines, reported to a compacted topic that consoles and commands read."""
