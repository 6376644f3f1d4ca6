"""Spark with foreign parts: our source and sink on Apache Kafka, its connector on our broker."""
