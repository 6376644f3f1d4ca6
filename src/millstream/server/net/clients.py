"""Bounds what all clients of a node share: connections, memory, descriptors.

Owns the bounds of `limits.connections_max` and `limits.request_bytes_max`, and the last descriptors
of the process: a connection that would take one of them is refused, so that storage can go on. A
refused client sees its connection closed at once.
"""

import asyncio
import logging
from collections import Counter
from typing import Literal

from millstream.config import Config, Limits
from millstream.metrics import CONNECTIONS, CONNECTIONS_REFUSED, CONNECTIONS_TAKEN, Metrics
from millstream.ports import Threads
from millstream.server.faults import Faults
from millstream.server.net.request_memory import RequestMemory
from millstream.server.system.loop_monitor import LoopMonitor
from millstream.server.system.machine import DESCRIPTORS_RESERVED

_log = logging.getLogger(__name__)

REFUSALS_LOGGED_EVERY_S = 5.0

Reason = Literal["connections_max", "descriptors"]


class Clients:
    def __init__(
        self,
        limits: Limits,
        metrics: Metrics,
        threads: Threads,
        faults: Faults,
        *,
        descriptors_max: int | None = None,
        monitor: LoopMonitor | None = None,
    ) -> None:
        """`monitor` is woken by the bytes of a client."""
        self.limits = limits
        self.monitor = monitor
        self.threads = threads
        self.faults = faults
        self.memory = RequestMemory(limits.request_bytes_max)
        self._metrics = metrics
        # Half of what is reserved is in use from the start: listeners, journal, lock, event loop.
        self._descriptors_max = descriptors_max and descriptors_max - DESCRIPTORS_RESERVED // 2
        self._count = 0
        self._counts: Counter[str] = Counter()  # By listener.
        self._numbers = 0
        self._refusals = 0  # Since the last line in the log.
        self._logged_at = float("-inf")

    def reconfigure(self, config: Config) -> None:
        """Follow a new `connections_max`. Connections beyond it stay; no others are taken."""
        self.limits = config.limits

    def open(self, listener: str) -> None:
        """Let metrics tell of a listener before its first connection."""
        self._metrics.set(CONNECTIONS, 0, listener)
        self._metrics.add(CONNECTIONS_TAKEN, 0, listener)

    def enter(self, listener: str) -> bool:
        """Count a new connection; False, and nothing is counted, if there are too many."""
        if self._count >= self.limits.connections_max:
            self._refuse("connections_max", listener)
            return False
        self._count += 1
        self._counts[listener] += 1
        self._metrics.set(CONNECTIONS, self._counts[listener], listener)
        self._metrics.add(CONNECTIONS_TAKEN, 1, listener)
        return True

    def next_number(self) -> int:
        """The number of a new connection; no two of a node share one."""
        self._numbers += 1
        return self._numbers

    def leave(self, listener: str) -> None:
        self._count -= 1
        self._counts[listener] -= 1
        self._metrics.set(CONNECTIONS, self._counts[listener], listener)

    def may_keep(self, descriptor: int, listener: str) -> bool:
        """Whether a connection may keep its descriptor, or it is one of the last.

        The system hands out the lowest number that is free, so a high one tells that all below it
        are in use, whatever for.
        """
        if self._descriptors_max is None or descriptor < self._descriptors_max:
            return True
        self._refuse("descriptors", listener)
        return False

    def _refuse(self, reason: Reason, listener: str) -> None:
        self._metrics.add(CONNECTIONS_REFUSED, 1, listener, reason)
        self._refusals += 1
        now = asyncio.get_running_loop().time()
        if now < self._logged_at + REFUSALS_LOGGED_EVERY_S:
            return
        _log.warning(
            "refused connections count=%d open=%d reason=%s",
            self._refusals,
            self._count,
            reason
            if reason == "connections_max"
            else "too few file descriptors are left; raise the limit of open files",
        )
        self._refusals, self._logged_at = 0, now
