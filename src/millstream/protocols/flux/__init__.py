"""Flux's protocol: lines of text, and what answers them.

`wire` is a function of bytes: it imports no engine, no event loop and no socket.
"""
