"""Requests of clients that another node serves: passed on to it, in their order."""
