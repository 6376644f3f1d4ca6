"""Reads from blocking sockets for clients of our own.

`MSG_WAITALL` does not help: a socket with a timeout returns what is there.
"""

import socket


def receive_exactly(stream: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = stream.recv(size - len(data))
        if not more:
            raise ConnectionResetError(f"closed after {len(data)} of {size} bytes: {bytes(data)!r}")
        data += more
    return bytes(data)
