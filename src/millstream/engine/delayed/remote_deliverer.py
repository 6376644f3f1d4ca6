"""Delivers delayed records to a partition that another node leads.

Nothing is planned ahead: what is due goes through `ExactlyOnceWriter.write`, which calls the leader
wherever it is. So a record is late by two commits and a call.

Invariant: a record can be cancelled until it is written.
"""

import asyncio
import logging
from heapq import heappop, heappush

from millstream.codec.records import Record
from millstream.engine.delayed.deliverer import LOOK_MS, READ_AT_ONCE, delivered, drop_all
from millstream.engine.delayed.due_heap import rank, unrank
from millstream.engine.delayed.shard import DelayedShard
from millstream.engine.runtime.backoff import Backoff
from millstream.errors import OutOfOrderSequence, RequestError, UnknownTopic
from millstream.internal_topics.delayed import decode_key, encode_key
from millstream.metrics import Histogram
from millstream.model import Offset
from millstream.ports import Clock

_log = logging.getLogger(__name__)

BATCH_RECORDS_MAX = 500
BATCH_BYTES_MAX = 512 * 2**10


class RemoteDeliverer:
    """Its state is in memory only, as that of `Deliverer`."""

    def __init__(
        self, shard: DelayedShard, place: int, clock: Clock, late_seconds: Histogram
    ) -> None:
        self._shard = shard
        self._place = place
        self._clock = clock
        self._late_seconds = late_seconds
        self._target = shard.targets[place]
        self._writer = shard.writer
        # Appended by this node, while it led the partition, and perhaps lost since.
        self._begun = shard.begun.pop(place, set())
        self._wake = asyncio.Event()
        self._is_troubled = False

    def wake(self) -> None:
        """Look again now: an earlier record may have arrived."""
        self._wake.set()

    async def run(self) -> None:
        """Deliver until no record is due soon, or this node no longer leads the shard."""
        backoff = Backoff()
        while not self._shard.is_gone:
            try:
                await self._settle_planned()
                while await self._step():
                    backoff.reset()
                return
            except UnknownTopic:
                await drop_all(self._shard, self._place, ())
                return
            except OutOfOrderSequence as problem:
                _log.warning("took another producer id target=%s problem=%s", self._target, problem)
                await self._writer.replace_producer(self._target)
            except RequestError as problem:
                level = logging.INFO if self._is_troubled else logging.WARNING
                _log.log(level, "not delivered yet target=%s problem=%s", self._target, problem)
                self._is_troubled = True
                await backoff.wait()

    async def _settle_planned(self) -> None:
        """End what a plan of before left in the partition's log; the others are due again."""
        numbers = [decode_key(key) or 0 for key in await self._writer.open(self._target)]
        if numbers:
            count = await self._writer.committed_count(self._target)
            begun, others = numbers[:count], numbers[count:]
            done = self._shard.ended(begun)
            await self._writer.settle(self._target, count, done)
            self._shard.decided(begun)
            self._begun.difference_update(begun)
            waiting = {unrank(ranked)[1] for ranked in self._soon()}
            for number in others:
                due = self._shard.due_heap.find(number)
                if number not in waiting and (due is not None or number in self._begun):
                    heappush(self._soon(), rank(0 if due is None else due.due_ms, number))
        self._shard.all_decided(self._place)
        self._shard.gaps.discard(self._place)

    async def _step(self) -> bool:
        """Write what is due, or wait for it; False if nothing is left."""
        if self._shard.is_gone:
            return False
        due = self._take_due()
        if due:
            await self._write(due)
            return True
        soon = self._shard.soon.get(self._place)
        self._shard.gaps.discard(self._place)
        if not soon:
            self._shard.soon.pop(self._place, None)
            return False
        left_ms = unrank(soon[0])[0] - self._clock.now_ms()
        self._wake.clear()
        try:
            async with asyncio.timeout(max(1, min(LOOK_MS, left_ms)) / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass
        return True

    def _take_due(self) -> list[tuple[int, Offset]]:
        soon = self._shard.soon.get(self._place, [])
        due: list[tuple[int, Offset]] = []
        now_ms = self._clock.now_ms()
        while soon and len(due) < BATCH_RECORDS_MAX and unrank(soon[0])[0] <= now_ms:
            due_ms, number = unrank(heappop(soon))
            if number in self._begun or self._shard.due_heap.find(number) is not None:
                due.append((due_ms, number))
        return due

    async def _write(self, due: list[tuple[int, Offset]]) -> None:
        numbers: list[Offset] = []
        records: list[Record] = []
        size = 0
        for at in range(0, len(due), READ_AT_ONCE):
            part = [number for _, number in due[at : at + READ_AT_ONCE]]
            values = self._shard.read(part)
            for number in part:
                size += len(values[number])
                if records and size > BATCH_BYTES_MAX:
                    break
                numbers.append(number)
                records.append(delivered(number, values[number]))
            await asyncio.sleep(0)
            if size > BATCH_BYTES_MAX:
                break
        for due_ms, number in due[len(numbers) :]:
            heappush(self._soon(), rank(due_ms, number))
        # Cancelled while the values were read: what was read is given back, but for that one.
        alive = [number in self._begun or self._lives(number) for number in numbers]
        if not all(alive):
            for (due_ms, number), is_alive in zip(due, alive, strict=False):
                if is_alive:
                    heappush(self._soon(), rank(due_ms, number))
            return
        self._shard.decided(numbers)
        self._begun.update(numbers)
        keys = [encode_key(number) for number in numbers]
        await self._writer.write(self._target, keys, records, done=self._shard.ended(numbers))
        self._begun.difference_update(numbers)
        self._late_seconds.observe(max(0, self._clock.now_ms() - due[0][0]) / 1000)
        self._is_troubled = False

    def _lives(self, number: Offset) -> bool:
        return self._shard.due_heap.find(number) is not None

    def _soon(self) -> list[int]:
        return self._shard.soon.setdefault(self._place, [])
