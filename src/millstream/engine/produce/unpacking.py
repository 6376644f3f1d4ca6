"""Unpacks large batches on worker threads, few at a time, and reports those that cannot be.

Owns how many are unpacked at the same time, the memory that they may take together, and the
warnings and figures about batches that cannot be read. Batches that unpack within a millisecond
never come here, see `compression.decompress_small`. Producers and readers have one of these each: a
reader that filters a large batch for seconds holds up no producer.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from millstream.codec.compression import unpacked_bytes_max
from millstream.config import Limits
from millstream.metrics import UNPACKED_BATCHES, UNPACKING_BYTES, UNREADABLE_BATCHES, Metrics
from millstream.model import Offset, TopicPartition
from millstream.ports import Threads

_log = logging.getLogger(__name__)

T = TypeVar("T")

JOBS_MAX = 2  # At the same time: syncs and cold reads need threads, too.
WARNING_INTERVAL_S = 10.0  # Between two warnings; what happens in between is counted.


class NotSmall(Exception):
    """A batch that would hold up the event loop: it must be read on a thread."""


class Room:
    """Memory reserved for one batch."""

    def __init__(self, unpacking: "Unpacking", size: int) -> None:
        self.size = size
        self._unpacking = unpacking

    async def run(self, work: Callable[[], T]) -> T:
        """Run the work on a thread, when one of `JOBS_MAX` is free."""
        return await self._unpacking.run_reserved(work)

    def shrink(self, size: int) -> None:
        """Release what the batch did not need."""
        size = min(size, self.size)
        self._unpacking.release(self.size - size)
        self.size = size


class Unpacking:
    def __init__(self, threads: Threads, side: str, *, limits: Limits, metrics: Metrics) -> None:
        """`side` is the label of its figures: "produce" or "read"."""
        self.bytes_max = limits.batch_decompressed_bytes_max
        self._threads = threads
        self._side = side
        self._metrics = metrics
        self._budget = limits.unpacking_bytes_max // 2
        self._reserved = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._jobs = asyncio.Semaphore(JOBS_MAX)
        self._warned_s = -WARNING_INTERVAL_S
        self._unwarned = 0

    @asynccontextmanager
    async def room(self, packed_bytes: int) -> AsyncIterator[Room]:
        """Reserve memory for a batch of so many compressed bytes, in the order of the calls.

        The holder must not wait for a batch that comes later.
        """
        size = unpacked_bytes_max(packed_bytes, self.bytes_max)
        await self._reserve(size)
        room = Room(self, size)
        try:
            yield room
        finally:
            room.shrink(0)

    async def run(self, work: Callable[[], T], *, packed_bytes: int) -> T:
        """Run work that unpacks one batch of that size and keeps little of it."""
        async with self.room(packed_bytes) as room:
            return await room.run(work)

    async def run_reserved(self, work: Callable[[], T]) -> T:
        async with self._jobs:
            self._metrics.add(UNPACKED_BATCHES, 1, self._side)
            job = asyncio.ensure_future(self._threads.run(work))
            try:
                return await asyncio.shield(job)
            except asyncio.CancelledError:
                # The thread goes on, and so do its memory and its place among `JOBS_MAX`.
                await asyncio.wait({job})
                raise

    def release(self, size: int) -> None:
        self._count(-size)
        while self._waiting and self._fits(self._waiting[0][0]):
            claim, turn = self._waiting.popleft()
            if not turn.done():
                self._count(claim)
                turn.set_result(None)

    def report(
        self, outcome: str, target: TopicPartition, offset: Offset | None, problem: Exception
    ) -> None:
        """Count a batch that cannot be read; log it at most every `WARNING_INTERVAL_S`.

        The outcome is "refused" for a producer's, "push" or "filter" for one that was skipped.
        """
        self._metrics.add(UNREADABLE_BATCHES, 1, outcome)
        now_s = asyncio.get_running_loop().time()
        if now_s - self._warned_s < WARNING_INTERVAL_S:
            self._unwarned += 1
            return
        _log.warning(
            "a batch cannot be read outcome=%s target=%s offset=%s problem=%s unreported=%d",
            outcome,
            target,
            "none" if offset is None else offset,
            problem,
            self._unwarned,
        )
        self._warned_s, self._unwarned = now_s, 0

    async def _reserve(self, size: int) -> None:
        if not self._waiting and self._fits(size):
            self._count(size)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(size)  # Granted in the same turn as the cancellation.
            raise

    def _fits(self, size: int) -> bool:
        """One batch always fits: the budget may be less than one batch may take."""
        return self._reserved == 0 or self._reserved + size <= self._budget

    def _count(self, size: int) -> None:
        self._reserved += size
        assert self._reserved >= 0
        self._metrics.set(UNPACKING_BYTES, self._reserved, self._side)
