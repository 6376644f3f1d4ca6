"""Bounds the memory that all clients together fill with requests.

Owns the sum of what connections hold: frames that are not whole yet, and requests that are not
answered yet. One client's share is bounded by the sizes of frame and pipeline, but thousands of
clients that send huge frames slowly would still fill any machine. When the sum passes its bound,
the connection that holds most is dropped: it is the one to blame, or the one that frees most.
"""

import logging
from typing import Protocol

_log = logging.getLogger(__name__)


class Holder(Protocol):
    def drop(self) -> None:
        """Let go of everything, now."""


class RequestMemory:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._total = 0
        self._held: dict[Holder, int] = {}

    @property
    def held_bytes(self) -> int:
        """The sum over all holders."""
        return self._total

    def hold(self, holder: Holder, size: int) -> None:
        """Note that `holder` now holds `size` bytes; make room if that is too much for all."""
        self._total += size - self._held.get(holder, 0)
        self._held[holder] = size
        while self._total > self._bytes_max:
            largest = max(self._held, key=self._held.__getitem__)
            _log.warning(
                "requests in memory passed %d bytes: dropped the connection with most of them, %d",
                self._bytes_max,
                self._held[largest],
            )
            self.release(largest)
            largest.drop()

    def release(self, holder: Holder) -> None:
        self._total -= self._held.pop(holder, 0)
