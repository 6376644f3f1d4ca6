"""Finds the file of tests that leaves sockets and files open.

What is left open warns when it is collected, which is in the middle of a later test: that one would
fail for it. So each file of tests collects what it left, and names what stays open nevertheless.
"""

import gc
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

DESCRIPTORS = "/dev/fd"  # On Linux and macOS.


def open_descriptors() -> dict[int, int]:
    """The descriptors of this process, each with the inode that it stands for."""
    inodes: dict[int, int] = {}
    for path in Path(DESCRIPTORS).iterdir():
        with suppress(OSError):  # That of the listing itself is closed by now.
            inodes[int(path.name)] = os.fstat(int(path.name)).st_ino
    return inodes


def pairs_left_open(before: dict[int, int]) -> list[int]:
    """Collect garbage if more is open than `before`; return the socket pairs that stay open.

    A pair is the wake-up of an event loop, or of a client with a thread of its own. Other sockets
    may be those of a fixture that outlives the file, such as a Spark session.
    """
    if len(open_descriptors()) <= len(before):
        return []
    gc.collect()  # Warns here of all that nothing holds.
    now = open_descriptors()
    return [number for number in now if now[number] != before.get(number) and _is_pair(number)]


def _is_pair(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as one_end:
            # Sockets of a pair have no names; those of a server and its clients have, on one side.
            is_local = one_end.family == socket.AF_UNIX
            return is_local and not one_end.getsockname() and not one_end.getpeername()
    except OSError:  # Closed by its thread meanwhile, or its peer is.
        return False
