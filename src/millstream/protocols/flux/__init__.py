"""Flux's protocol: lines of text, and what answers them.

The wire layer (`wire`, `commands`, `headers`, `replies`) is a function of bytes: it imports no
engine, no event loop and no socket.
"""
