"""System calls on sockets: ports taken, files sent without passing through this process.

Owns the system calls and the question whether they would wait for a disk. Order and back-pressure
are the connection's. Works on descriptors, because the sockets that event loops hand out cannot
send; where the system has no such call, nothing is sendable and files are read instead.
"""

import os
import socket
import sys
from typing import TypeAlias

Socket: TypeAlias = socket.socket

_CAN_SEND = sys.platform == "linux"
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
# One byte speaks for its neighbours: pages come and go in long runs, and a probe costs 3 us.
_PROBE_BYTES = 512 * 1024

# A peer that vanished without a word is found out after two minutes.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}


def keep_alive(sock: socket.socket) -> None:
    """Let the system ask a silent peer whether it is there."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # Not on every system.
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def bind(host: str, port: int) -> list[Socket]:
    """Take the port on every address of `host`, and listen on none of them yet.

    Raises `OSError`, and then holds nothing.
    """
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[Socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(infos):
            taken = socket.socket(family, kind, protocol)
            bound.append(taken)
            if os.name == "posix":
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            taken.setblocking(False)
            taken.bind(address)
    except BaseException:
        for taken in bound:
            taken.close()
        raise
    return bound


def can_send(file_descriptor: int) -> bool:
    """Whether `send_file` works from this file; one in memory has no descriptor."""
    return _CAN_SEND and file_descriptor >= 0


def send_file(socket_descriptor: int, file_descriptor: int, at: int, size: int) -> int:
    """Send what a non-blocking socket takes now, and return how much: 0 if it is full.

    Raises `OSError` if the connection is broken or the disk is, `EOFError` if the file is shorter.
    """
    try:
        sent = os.sendfile(socket_descriptor, file_descriptor, at, size)
    except BlockingIOError:
        return 0
    if sent == 0:
        raise EOFError(f"no bytes at {at}, {size} expected")
    return sent


def is_cached(file_descriptor: int, at: int, size: int) -> bool:
    """Whether reading would probably not wait for the disk. A guess: pages may leave any time."""
    if not _NOWAIT:
        return True
    probe = [bytearray(1)]
    try:
        for position in range(at + size - 1, at - 1, -_PROBE_BYTES):
            os.preadv(file_descriptor, probe, position, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True  # A file system that cannot tell, such as an overlay: then reading is the test.
    return True
