"""System calls on sockets: ports taken, files sent without a copy in this process.

Owns the system calls and the question whether they would wait for a disk. Order and back-pressure
are the connection's. Works on descriptors, because the sockets that event loops hand out cannot
send; where the system has no such call, nothing is sendable and files are read instead.
"""

import asyncio
import mmap
import os
import socket
import sys
from contextlib import suppress
from typing import TypeAlias

Socket: TypeAlias = socket.socket

_CAN_SEND = sys.platform == "linux"
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
# One byte speaks for its neighbours: pages come and go in long runs, and a probe costs 3 us.
_PROBE_BYTES = 512 * 1024

_DISCARDED_BYTES = 64 * 1024

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
    # Bytes are looked up as they are; the tables that encode a text take 0.7 MB of memory.
    name = host.encode("ascii") if host.isascii() else host
    infos = socket.getaddrinfo(name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
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


async def first_byte(sock: Socket) -> bytes:
    """Wait for a client's first byte, and leave it where it is; empty if the client has gone."""
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    while True:
        try:
            return sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            readable: asyncio.Future[None] = loop.create_future()
            loop.add_reader(sock, _set_once, readable)
            try:
                await readable
            finally:
                loop.remove_reader(sock)


def _set_once(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def send_at_once(sock: Socket, data: bytes) -> None:
    """Send a few last bytes, and end the connection so that the client can read them."""
    with suppress(OSError):
        sock.recv(_DISCARDED_BYTES)  # Unread bytes would reset the connection, and the answer.
        sock.send(data)
        sock.shutdown(socket.SHUT_WR)


def can_send(file_descriptor: int) -> bool:
    """Whether `send_mapped` works from this file; one in memory has no descriptor."""
    return _CAN_SEND and file_descriptor >= 0


def send_mapped(
    socket_descriptor: int, head: bytes, file_descriptor: int, at: int, size: int
) -> int:
    """Send `head` and a part of a file, as much as a non-blocking socket takes now; return how
    much: 0 if it is full.

    The system copies from the page cache into the socket. Nothing here touches the mapped bytes, so
    a file that cannot be read is an error of the call (`EFAULT`) and not the end of the process.
    Raises `OSError` if the connection is broken or the disk is, `EOFError` if the file is shorter.
    """
    skipped = at % mmap.ALLOCATIONGRANULARITY
    try:
        mapped = mmap.mmap(
            file_descriptor, skipped + size, prot=mmap.PROT_READ, offset=at - skipped
        )
    except ValueError as problem:
        raise EOFError(f"no {size} bytes at {at}") from problem
    with mapped, memoryview(mapped) as whole, whole[skipped:] as view:
        try:
            return os.writev(socket_descriptor, [head, view])
        except BlockingIOError:
            return 0


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
