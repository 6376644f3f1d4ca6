"""Kafka's protocol: the wire layer, and what answers it.

The wire layer (`schema*`, `apis`, `headers`, `frames`, `error_codes`) is a function of bytes: it
imports no engine, no event loop and no socket.
"""
