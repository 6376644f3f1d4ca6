"""Partitions: a log and its consensus, joined, and the hub that drives all of a node's."""
