"""Clients in other languages: the process that runs one, and what every one of them is asked."""
