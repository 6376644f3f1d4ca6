"""Decides what an unexpected error ends: one connection, or the node.

An error is expected if it is one of `millstream.errors` or the operating system's; callers handle
those where they occur. Any other is a mistake of this program, and the place where it was raised
decides. Below the gate (engine, control, replication, raft, storage) the state of the broker may be
wrong: the node stops, because wrong is worse than down. Above it (a gateway, a decoder, a callback
that a gateway passed down) only one client's conversation is wrong: its connection ends.

A lack of memory or of stack is neither: it ends the connection that asked for too much.
"""

import asyncio
import logging
from types import TracebackType

from millstream.errors import MillstreamError

_log = logging.getLogger(__name__)

BELOW_THE_GATE = (
    *("engine", "control", "internal_topics"),
    *("peers", "replication", "raft", "storage"),
)
ABOVE_THE_GATE = ("protocols", "server")

_EXPECTED = (MillstreamError, OSError, MemoryError, RecursionError)


class Faults:
    """`report` an unexpected error wherever it surfaces; `run` raises the first fatal one."""

    def __init__(self) -> None:
        self._fatal: Exception | None = None
        self._has_come = asyncio.Event()

    async def run(self) -> None:
        """Wait for an error that ends the node, and raise it."""
        await self._has_come.wait()
        assert self._fatal is not None
        raise self._fatal

    def report(self, problem: Exception) -> None:
        """Log an error that ended a connection, and stop the node if it came from below the gate.

        The caller ends its connection either way.
        """
        if not is_fatal(problem):
            _log.error("closed a connection after an unexpected error", exc_info=problem)
        elif self._fatal is None:
            _log.critical("stopping the node after an error below the gate", exc_info=problem)
            self._fatal = problem
            self._has_come.set()


def is_fatal(problem: BaseException) -> bool:
    """Whether an unexpected error was raised below the gate: by the innermost frame that counts.

    Shared layers such as `codec` do not count: their caller does.
    """
    if isinstance(problem, _EXPECTED) or not isinstance(problem, Exception):
        return False
    layer = ""
    trace: TracebackType | None = problem.__traceback__
    while trace is not None:
        package, _, path = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")
        name = path.partition(".")[0]
        if package == "millstream" and name in BELOW_THE_GATE + ABOVE_THE_GATE:
            layer = name
        trace = trace.tb_next
    return layer in BELOW_THE_GATE
