"""Delivers delayed records to one partition, while some are due there soon.

Owns their order and timing. A record that is due soon is planned: it gets a place in the writer's
outbound sequence, which is committed, and its value is read, so at its due time it only has to be
appended. A plan is replaced when an earlier record arrives or a planned one is cancelled.

Invariant: a record can be cancelled until it is appended.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

from millstream.codec.records import Record
from millstream.engine.delayed.due_heap import rank, unrank
from millstream.engine.delayed.shard import BATCH_BYTES_SPARE, DelayedShard
from millstream.engine.ledgers.ledger import UNREADABLE
from millstream.engine.runtime.backoff import Backoff
from millstream.errors import OutOfOrderSequence, RequestError, UnknownTopic
from millstream.internal_topics.delayed import decode_header, decode_key, decode_payload, encode_key
from millstream.metrics import Histogram
from millstream.model import Offset
from millstream.names import UNREADABLE_HEADER
from millstream.ports import Clock

_log = logging.getLogger(__name__)

# Header of a delayed record that could not be decoded: the reason. Its value is the stored bytes.
# Records in an outbound sequence that are not appended yet; the same limit for appended ones.
PLANNED_MAX = 2_000
BATCH_BYTES_MAX = 512 * 2**10  # Appended at once, unless one record is larger.
READ_AT_ONCE = 16  # Values read back in one step, which takes about a millisecond.
# Between batches: records due in quick succession share one; a batch costs as much as many records.
SPACING_MS = 5
LOOK_MS = 1_000  # A wall clock that steps forward is noticed after that long.


class Deliverer:
    """Its state is in memory only: a restart reads the outbound sequence and the log."""

    def __init__(
        self, shard: DelayedShard, place: int, clock: Clock, late_seconds: Histogram
    ) -> None:
        self._late_seconds = late_seconds
        self._shard = shard
        self._place = place
        self._clock = clock
        self._target = shard.targets[place]
        self._writer = shard.writer
        self._backoff = Backoff()
        self._wake = asyncio.Event()
        # The outbound sequence, with times: first the records in the partition's log, then the
        # planned ones.
        self._order: list[tuple[int, Offset]] = []
        self._firm_count = 0  # Records at the start of `_order` that every later plan keeps.
        self._ended_count = 0  # Records at its start that are committed in the partition.
        # Counts that are committed once the partition's high watermark reaches the offset.
        self._ends: deque[tuple[int, Offset]] = deque()
        self._begun: set[Offset] = set()  # Appended, and not known to be committed.
        self._lost: set[Offset] = set()  # Appended, and then truncated by a new leader.
        self._unread: deque[Offset] = deque()
        self._plan_committed: asyncio.Future[None] | None = None  # Only one is under way.
        self._problem: BaseException | None = None  # With the plan.
        self._is_stale = False  # What is in the outbound sequence is not what was meant to be.
        self._next_append_s = 0.0
        self._is_troubled = False

    async def run(self) -> None:
        """Deliver until no record is due soon, or this node no longer leads."""
        while not self._shard.is_gone:
            try:
                if await self._deliver():
                    return
            except RequestError as problem:
                if self._writer.leader_elsewhere(self._target) is not None:
                    self._give_back()
                    return
                # A warning only once while the problem lasts.
                level = logging.INFO if self._is_troubled else logging.WARNING
                _log.log(level, "not delivered yet target=%s problem=%s", self._target, problem)
                self._is_troubled = True
                await self._backoff.wait()

    def wake(self) -> None:
        """Run a step now: an earlier record may have arrived."""
        self._wake.set()

    # -- steps -----------------------------------------------------------------------------------

    async def _deliver(self) -> bool:
        """Deliver; say whether that is all, or must begin anew."""
        try:
            await self._enter()
            while not self._shard.is_gone and await self._step():
                pass
        except UnknownTopic:
            await self._drop()
        except OutOfOrderSequence as problem:
            _log.warning("took another producer id target=%s problem=%s", self._target, problem)
            await self._writer.replace_producer(self._target)
            return False
        return True

    async def _enter(self) -> None:
        """Learn what is in the outbound sequence, and how much of it the partition has."""
        numbers = [decode_key(key) or 0 for key in await self._writer.open(self._target)]
        count = self._writer.begun_count(self._target)
        begun = set(numbers[:count])
        for due_ms, number in self._order:
            if number not in begun:
                heappush(self._soon(), rank(due_ms, number))
        self._order = [(0, number) for number in numbers[:count]]
        self._shard.decided(begun)
        self._shard.all_decided(self._place)
        self._shard.gaps.discard(self._place)
        self._lost |= self._begun - begun
        self._begun = begun
        end_offset = self._writer.replica(self._target).log.end_offset
        self._ends = deque([(count, end_offset)] if count else [])
        self._ended_count, self._firm_count = 0, count
        self._unread.clear()
        self._plan_committed = self._problem = None
        self._is_stale = len(numbers) > count

    async def _step(self) -> bool:
        """Run the most urgent step; False if nothing is left."""
        if self._problem is not None:
            raise self._problem
        begun_count = self._writer.begun_count(self._target)
        if begun_count != len(self._begun):
            await self._enter()
            return True
        self._note_ended()
        if await self._append(begun_count):
            return True
        if self._wants_plan(begun_count):
            self._plan(begun_count)
        elif self._unread:
            self._read_ahead()
            await asyncio.sleep(0)
        elif self._ends and (self._is_full(begun_count) or not self._has_more(begun_count)):
            await self._writer.replica(self._target).committed(self._ends[0][1], None)
        elif self._has_more(begun_count):
            await self._wait(begun_count)
        else:
            return False
        return True

    # -- appending -------------------------------------------------------------------------------

    async def _append(self, begun_count: int) -> bool:
        """Append the planned records that are due; False if none are."""
        due = self._due(begun_count)
        if not due:
            return False
        records = await self._read(due)
        # Reading may have taken a while: a record that was cancelled meanwhile is not appended.
        alive = next((at for at, number in enumerate(due) if not self._lives(number)), len(due))
        records = records[:alive]
        if not records or begun_count != self._writer.begun_count(self._target):
            return True
        appended = self._writer.append(self._target, records)
        late_ms = self._clock.now_ms() - self._order[begun_count][0]
        self._late_seconds.observe(max(0, late_ms) / 1000)
        self._backoff.reset()
        self._is_troubled = False
        self._ends.append((begun_count + len(records), appended.end_offset))
        self._shard.decided(due[: len(records)])
        self._begun.update(due[: len(records)])
        self._lost.difference_update(due[: len(records)])
        if len(records) == len(due):
            self._next_append_s = asyncio.get_running_loop().time() + SPACING_MS / 1000
        else:
            await asyncio.sleep(0)
        return True

    def _due(self, begun_count: int) -> list[Offset]:
        """The next planned records that are due and not cancelled."""
        due: list[Offset] = []
        if asyncio.get_running_loop().time() < self._next_append_s:
            return due
        now_ms = self._clock.now_ms()
        for at in range(begun_count, self._firm_count):
            due_ms, number = self._order[at]
            if due_ms > now_ms or not self._lives(number):
                break
            due.append(number)
        return due

    async def _read(self, numbers: Sequence[Offset]) -> list[Record]:
        """Records as they are delivered, from the first on, as many as make a batch."""
        segment_bytes = self._writer.replica(self._target).log.settings.segment_bytes
        size_max = min(BATCH_BYTES_MAX, segment_bytes - BATCH_BYTES_SPARE)
        records: list[Record] = []
        size = 0
        for at in range(0, len(numbers), READ_AT_ONCE):
            part = numbers[at : at + READ_AT_ONCE]
            if not self._shard.has_at_hand(part):
                await asyncio.sleep(0)
            values = self._shard.read(part)
            for number in part:
                size += len(values[number])
                if size > size_max and records:
                    return records
                records.append(delivered(number, values[number]))
        return records

    def _note_ended(self) -> None:
        high_watermark = self._writer.replica(self._target).high_watermark
        while self._ends and self._ends[0][1] <= high_watermark:
            self._ended_count = self._ends.popleft()[0]

    # -- planning --------------------------------------------------------------------------------

    def _wants_plan(self, begun_count: int) -> bool:
        if self._plan_committed is not None or self._is_full(begun_count):
            return False
        planned_count = len(self._order) - begun_count
        if self._is_stale or self._has_gap(begun_count) or self._ended_count >= PLANNED_MAX:
            return True
        if self._place in self._shard.soon:
            return planned_count <= PLANNED_MAX // 2 or self._is_overtaken()
        return planned_count == 0 < self._ended_count == begun_count  # To say that all is done.

    def _plan(self, begun_count: int) -> None:
        """Write the next plan and the tombstones; one plan at a time is uncommitted."""
        kept_count = self._firm_count if self._is_stale else len(self._order)
        self._is_stale = True
        if self._has_gap(begun_count) or self._is_overtaken():
            kept_count = min(kept_count, self._rearrange(begun_count))
            self._shard.gaps.discard(self._place)
        self._extend(begun_count)
        self._firm_count = min(self._firm_count, kept_count)
        count = self._ended_count
        ended = [number for _, number in self._order[:count]]
        self._writer.plan(
            self._target,
            [encode_key(number) for _, number in self._order[kept_count:]],
            ended_count=count,
            kept_count=kept_count,
            done=self._shard.ended(ended),
        )
        self._is_stale = False
        del self._order[:count]
        self._begun.difference_update(ended)
        self._firm_count -= count
        self._ended_count = 0
        self._ends = deque((at - count, end_offset) for at, end_offset in self._ends)
        self._plan_committed = self._shard.all_committed()
        self._plan_committed.add_done_callback(self._planned)

    def _planned(self, committed: "asyncio.Future[None]") -> None:
        if committed is not self._plan_committed:
            return
        self._plan_committed = None
        self._wake.set()
        self._problem = None if committed.cancelled() else committed.exception()
        if self._problem is None:
            self._firm_count = len(self._order)

    def _has_gap(self, begun_count: int) -> bool:
        """Whether a cancelled record may be in the plan."""
        if self._place in self._shard.gaps:
            return True
        return begun_count < len(self._order) and not self._lives(self._order[begun_count][1])

    def _is_overtaken(self) -> bool:
        """Whether a record is due before the last planned one."""
        soon = self._shard.soon.get(self._place)
        has_planned = len(self._order) > len(self._begun)
        return bool(soon and has_planned and unrank(soon[0]) < self._order[-1])

    def _rearrange(self, begun_count: int) -> int:
        """Put what is planned to what is due soon, but what stays; return how many do."""
        soon = self._soon()
        kept_count = begun_count
        while kept_count < len(self._order):
            planned = self._order[kept_count]
            if not self._lives(planned[1]) or (soon and soon[0] < rank(*planned)):
                break
            kept_count += 1
        for planned in self._order[kept_count:]:
            heappush(soon, rank(*planned))
        del self._order[kept_count:]
        return kept_count

    def _extend(self, begun_count: int) -> None:
        """Plan the records that are due soon, earliest first, up to `PLANNED_MAX`."""
        soon = self._soon()
        while soon and len(self._order) - begun_count < PLANNED_MAX:
            due_ms, number = unrank(heappop(soon))
            if self._lives(number):
                self._order.append((due_ms, number))
                self._unread.append(number)
        if not soon:
            del self._shard.soon[self._place]

    def _read_ahead(self) -> None:
        """Read some more values; without room they are read when they are due."""
        numbers: list[Offset] = []
        while self._unread and len(numbers) < READ_AT_ONCE:
            number = self._unread.popleft()
            if self._lives(number) and not self._shard.has_at_hand([number]):
                numbers.append(number)
        if not self._shard.read_ahead(numbers):
            self._unread.clear()

    # -- parts -----------------------------------------------------------------------------------

    def _lives(self, number: Offset) -> bool:
        return number in self._lost or self._shard.due_heap.find(number) is not None

    def _soon(self) -> list[int]:
        return self._shard.soon.setdefault(self._place, [])

    def _is_full(self, begun_count: int) -> bool:
        return begun_count - self._ended_count >= PLANNED_MAX

    def _has_more(self, begun_count: int) -> bool:
        """Whether a record is planned or waits to be, or a plan is uncommitted."""
        return (
            begun_count < len(self._order)
            or self._place in self._shard.soon
            or self._plan_committed is not None
        )

    async def _wait(self, begun_count: int) -> None:
        """Wait until the next record is due, or `wake`."""
        wait_s = LOOK_MS / 1000
        if begun_count < self._firm_count and self._lives(self._order[begun_count][1]):
            due_s = (self._order[begun_count][0] - self._clock.now_ms()) / 1000
            spaced_s = self._next_append_s - asyncio.get_running_loop().time()
            wait_s = min(wait_s, max(due_s, spaced_s, 0.001))
        self._wake.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _drop(self) -> None:
        """Drop all records of a deleted topic."""
        planned, self._order = self._order, []
        await drop_all(self._shard, self._place, planned)

    def _give_back(self) -> None:
        """Another node leads the partition: leave its records to the next deliverer."""
        for due_ms, number in self._order:
            if number not in self._begun and self._lives(number):
                heappush(self._soon(), rank(due_ms, number))
        self._shard.begun[self._place] = self._begun | self._lost
        # It must be looked at, also if nothing is due soon.
        self._shard.gaps.add(self._place)


async def drop_all(shard: DelayedShard, place: int, planned: Sequence[tuple[int, Offset]]) -> None:
    """Drop all records of a deleted topic, those of a plan among them."""
    soon = shard.soon.setdefault(place, [])
    soon += [rank(*each) for each in planned]
    _log.info("dropped delayed=%d of a deleted topic", len(soon))
    while soon:
        numbers = [unrank(ranked)[1] for ranked in soon[:PLANNED_MAX]]
        shard.ledger.write(shard.ended(numbers))
        shard.decided(numbers)
        del soon[:PLANNED_MAX]
        await asyncio.sleep(0)
    shard.writer.forget(shard.targets[place])
    shard.soon.pop(place, None)
    shard.gaps.discard(place)
    shard.all_decided(place)


def delivered(number: Offset, value: bytes) -> Record:
    header = decode_header(value)
    assert header is not None
    try:
        payload = decode_payload(value)
    except UNREADABLE as problem:
        # It has a place in the plan, so it is delivered as stored, for a person to examine.
        _log.error("delivering a delayed record undecoded number=%d problem=%s", number, problem)
        return Record(0, header.due_ms, None, value, ((UNREADABLE_HEADER, str(problem).encode()),))
    return Record(0, header.due_ms, payload.key, payload.value, payload.headers)
