"""Pipelines: topics to topics and tables on Spark, described rather than programmed."""
