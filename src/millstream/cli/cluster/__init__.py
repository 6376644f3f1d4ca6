"""Joining a cluster from the command line, and a cluster to look at."""
