"""Verifies a running cluster: a workload of real clients, its history, and checkers over it.

Knows the cluster as any client does, by the wire.
"""
