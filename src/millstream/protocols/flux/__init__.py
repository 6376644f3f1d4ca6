"""The Flux protocol: lines of text, and the gateway that answers them.

`wire` is a function of bytes: it imports no engine, no event loop and no socket.
"""
