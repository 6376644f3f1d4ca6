"""Ticks the replicas that a time-out concerns, and sleeps while there is none.

Owns which replicas those are. A replica is asked after each step of its core (`follow`): of
thousands that lead alone none needs ticks, so a node alone has nothing to do for its partitions.
"""

import asyncio
from collections.abc import Callable

from millstream.replication.replica import Replica


class Ticker:
    def __init__(self, drive: Callable[[Replica], None], *, tick_ms: int) -> None:
        """`drive` lets the core of a replica count one tick, and applies the effects."""
        self._drive = drive
        self._seconds = tick_ms / 1000
        self._ticking: dict[Replica, None] = {}
        self._wake = asyncio.Event()

    @property
    def count(self) -> int:
        """How many replicas are ticked."""
        return len(self._ticking)

    def follow(self, replica: Replica) -> None:
        """Tick the replica from here on, if it needs ticks; else no more."""
        is_quiesced = replica.group_links is not None and replica.group_links.is_quiesced
        is_over = replica.is_gone or replica.failure is not None
        if replica.core.needs_ticks and not is_quiesced and not is_over:
            self._ticking[replica] = None
            self._wake.set()
        else:
            self._ticking.pop(replica, None)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(self._seconds)
            for replica in tuple(self._ticking):
                self._drive(replica)
                self.follow(replica)  # Also if it has failed.
            if not self._ticking:
                self._wake.clear()
