"""Kafka's own Java client and command line tools, of two major releases."""
