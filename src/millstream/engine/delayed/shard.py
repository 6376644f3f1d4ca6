"""The delayed records of one partition of `__deferred`, while this node leads it.

Owns the due heap, the records that are due soon, and reading payloads back from the log: few of
them are in memory. A delayed record is identified by its offset in this log, its number.

Invariant: a record leaves `due_heap` at the moment of the decision, committed or not: it was
cancelled, or appended to its partition's log by the `Deliverer`.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import heappush
from typing import NamedTuple
from uuid import UUID

from millstream.codec.records import Record, decode_selected
from millstream.engine.delayed.due_heap import Due, DueHeap, rank
from millstream.engine.delayed.sent_records import SentRecords
from millstream.engine.ledgers.exactly_once import ExactlyOnceWriter, WriterContext
from millstream.engine.ledgers.ledger import UNPACKED_BYTES_MAX, Entry
from millstream.engine.ledgers.shards import Shard
from millstream.errors import (
    CoordinatorLoading,
    CorruptBatch,
    DamagedLog,
    InvalidBatch,
    Overloaded,
    StorageError,
)
from millstream.internal_topics.delayed import (
    NO_SENDER,
    DelayedHeader,
    Payload,
    Sender,
    decode_header,
    decode_key,
    decode_payload,
    decode_target,
    encode_key,
    encode_target,
    encode_value,
)
from millstream.model import LogId, Offset
from millstream.replication.replica import Replica

_log = logging.getLogger(__name__)

# Small batches: a due record is read back with its whole batch.
WRITE_RECORDS_MAX = 16
WRITE_BYTES_MAX = 2**18
MESSAGE_IDS_MAX = 100_000  # Of delayed records, kept for the deduplication windows of their topics.
# Partitions that a shard remembers, in some 300 bytes each: all that had a delayed record since
# this node came to lead the shard.
PLACES_MAX = 100_000
TAKEN_AT_ONCE = 1_000
DECIDED_S_MAX = 5.0  # A cancel waits so long for the log that the record may be in already.
AHEAD_MS_MAX = 10_000  # Payloads read along with others are kept if they are due within this.
AHEAD_BYTES_MAX = 6 * 2**20
SOON_BYTES_MAX = 8 * 2**20  # Of all payloads kept, with those read because they are due soon.
# Overhead of a batch beyond its records, rounded up.
BATCH_BYTES_SPARE = 512


class DelayedRecord(NamedTuple):
    """A record that is to be delivered later."""

    header: DelayedHeader
    payload: Payload


class DelayedShard(Shard):
    def __init__(self, replica: Replica, context: WriterContext, wake: Callable[[], None]) -> None:
        """`wake` is called when a record may be due earlier than any known one."""
        super().__init__(replica, context.clock)
        self._hub = context.hub
        self.writer = ExactlyOnceWriter(self.ledger, context)
        self.due_heap = DueHeap()
        self.targets: list[LogId] = []  # By place.
        # Due soon and in no outbound sequence yet: a heap of ranks by place.
        self.soon: dict[int, list[int]] = {}
        self.gaps: set[int] = set()  # Places with a cancelled record that was due soon.
        # By place: appended by this node before another one came to lead the partition.
        self.begun: dict[int, set[Offset]] = {}
        self._clock = context.clock
        self._wake = wake
        self._places: dict[bytes, int] = {}
        self._sent = SentRecords()
        self._message_ids: OrderedDict[Offset, tuple[UUID, bytes, int]] = OrderedDict()
        # By place: planned before a restart, and not known whether delivered.
        self._undecided: dict[int, set[Offset]] = {}
        self._decision = asyncio.Event()  # Set when one of them is decided, and made anew.
        self._known_ms: int | None = None  # When the scheduler looks again, at the latest.
        self._soon_ms = 0  # Records due after it were never in `soon`.
        self._ahead: dict[Offset, bytes] = {}  # Values read before they are due.
        self._ahead_bytes = 0

    # -- in --------------------------------------------------------------------------------------

    def find_sent(self, target: LogId, sender: Sender) -> Offset | None:
        """The delayed record that an idempotent producer sent with that sequence, if it did."""
        place = self._places.get(encode_target(target))
        return None if place is None else self._sent.find(place, sender)

    def check_place(self, target: LogId) -> None:
        """Raise `Overloaded` for a partition that would be one too many."""
        if len(self.targets) >= PLACES_MAX and encode_target(target) not in self._places:
            raise Overloaded(
                f"{len(self.targets)} partitions had delayed records, which is all that "
                f"{self.topic} partition {self._replica.id.partition} can remember: restart the "
                "broker, which forgets those without one, or raise delayed_partitions in a new "
                "cluster"
            )

    def write(self, delayed_records: Sequence[DelayedRecord]) -> list[Offset]:
        """Write delayed records; return their numbers.

        They are in the due heap once that is committed. Raises what `Ledger.write` raises; some
        may be written then.
        """
        numbers: list[Offset] = []
        for part in _parts(delayed_records):
            first = self._replica.log.end_offset
            entries = [Entry(encode_key(first + at), value) for at, (_, value) in enumerate(part)]
            end = self.ledger.write(entries)
            assert end == first + len(entries)
            for number, (header, _) in enumerate(part, start=first):
                self._note(number, header, self._clock.now_ms())
                numbers.append(number)
        return numbers

    @property
    def mark(self) -> tuple[Replica, Offset]:
        """The log, and the offset up to which it holds everything written so far."""
        return self._replica, self.ledger.written_offset

    def all_committed(self) -> "asyncio.Future[None]":
        """Future that is done when everything written so far is committed."""
        return self._replica.committed(self.ledger.written_offset, None)

    def is_undecided(self, due: Due) -> bool:
        """Whether it is unknown if the record was delivered before a restart."""
        return due.number in self._undecided.get(due.place, ())

    async def until_decided(self, due: Due) -> None:
        """Wait until that is known, if it is not because a log is being opened."""
        if not self._hub.resting.unled([self.targets[due.place]], ()):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(DECIDED_S_MAX):
                while self.is_undecided(due):
                    await self._decision.wait()

    def cancel(self, due: Due) -> None:
        """Cancel a waiting record.

        Raises `CoordinatorLoading` while it is unknown whether it was delivered before a restart.
        """
        if self.is_undecided(due):
            raise CoordinatorLoading(str(self.targets[due.place]))
        self.ledger.write(self.ended([due.number]))
        self.decided([due.number])
        if due.due_ms <= self._soon_ms:
            self.gaps.add(due.place)
            self._wake()
        self._message_ids.pop(due.number, None)

    def message_id(self, number: Offset) -> bytes:
        """The message id of a delayed record, as far as it is remembered."""
        known = self._message_ids.get(number)
        return b"" if known is None else known[1]

    def message_ids(self, topic_id: UUID) -> Iterator[tuple[bytes, int]]:
        """The ids of a topic's delayed records, and when they arrived, oldest first."""
        for owner, message_id, arrived_ms in self._message_ids.values():
            if owner == topic_id:
                yield message_id, arrived_ms

    # -- out -------------------------------------------------------------------------------------

    def take_soon(self, until_ms: int) -> bool:
        """Move the records due by then to `soon`; return whether there may be more."""
        self._soon_ms = max(self._soon_ms, until_ms)
        due = self.due_heap.next_due(until_ms, count_max=TAKEN_AT_ONCE)
        for due_ms, number, place in due:
            heappush(self.soon.setdefault(place, []), rank(due_ms, number))
        self._known_ms = self.due_heap.next_due_ms
        return len(due) == TAKEN_AT_ONCE

    @property
    def waiting(self) -> list[int]:
        """The places that need a deliverer."""
        return list({*self._undecided, *self.soon, *self.gaps})

    def decided(self, numbers: Iterable[Offset]) -> None:
        """Remove records that were delivered or cancelled from the due heap."""
        for number in numbers:
            self.due_heap.remove(number)
            self._ahead_bytes -= len(self._ahead.pop(number, b""))

    def all_decided(self, place: int) -> None:
        """It is known which records were delivered there before a restart."""
        self._undecided.pop(place, None)
        self._announce()

    def has_at_hand(self, numbers: Iterable[Offset]) -> bool:
        return all(number in self._ahead for number in numbers)

    def read_ahead(self, numbers: Sequence[Offset]) -> bool:
        """Read values before they are due; False if there is no room for them."""
        if self._ahead_bytes >= SOON_BYTES_MAX:
            return False
        for number, value in self.read(numbers).items():
            self._keep(number, value)
        return True

    def read(self, numbers: Sequence[Offset]) -> dict[Offset, bytes]:
        """The stored values of records, read back from the log.

        Values of the same batches that are due soon are kept, as far as there is room.
        """
        horizon_ms = self._clock.now_ms() + AHEAD_MS_MAX
        requested, values = set(numbers), dict[Offset, bytes]()

        def wants(number: Offset) -> bool:
            if number in requested:
                return True
            due = self.due_heap.find(number) if self._ahead_bytes < AHEAD_BYTES_MAX else None
            return due is not None and due.due_ms <= horizon_ms

        for number in sorted(numbers):
            kept = self._ahead.pop(number, None)
            if kept is not None:
                self._ahead_bytes -= len(kept)
                values[number] = kept
            elif number not in values:
                for offset, value in self._read_batch(number, wants).items():
                    if offset in requested:
                        values[offset] = value
                    elif offset not in self._ahead:
                        self._keep(offset, value)
        return values

    def ended(self, numbers: Sequence[Offset]) -> list[Entry]:
        """Tombstones of records that are delivered or cancelled."""
        return [Entry(encode_key(number), None) for number in numbers]

    def describe(self, due: Due) -> tuple[DelayedHeader, Payload]:
        value = self.read([due.number])[due.number]
        header = decode_header(value)
        assert header is not None
        return header, decode_payload(value)

    # -- loading and forgetting ------------------------------------------------------------------

    def _apply(self, record: Record) -> None:
        number = decode_key(record.key)
        if number is None:
            if not self.writer.apply(record):
                raise ValueError(f"a key that is not a delayed record's: {record.key!r}")
            return
        if record.value is None:
            self.due_heap.remove(number)
            self._message_ids.pop(number, None)
            return
        header = decode_header(record.value)
        if header is None or number != record.offset:
            raise ValueError("not a delayed record, or one of a later version")
        place = self._note(number, header, record.timestamp)
        self.due_heap.add(Due(header.due_ms, number, place))

    def _check(self, entry: Entry) -> None:
        """No check: `encode_value` packs fixed fields, and a protocol's decoder made the payload.
        Decoding a million of them again would cost more than writing them."""

    def _restore(self) -> Iterator[None]:
        for target, ids in self.writer.unfinished.items():
            numbers = {number for key in ids if (number := decode_key(key)) is not None}
            self._undecided[self._place(encode_target(target))] = numbers
            yield

    def _loaded(self) -> None:
        if self.due_heap or self._undecided or self.skipped_count:
            _log.info(
                "loaded delayed=%d unfinished=%d log=%s skipped_records=%d",
                len(self.due_heap),
                len(self._undecided),
                self._replica.id,
                self.skipped_count,
            )
        self._wake()

    def _folded(self) -> None:
        next_due_ms = self.due_heap.next_due_ms
        if next_due_ms is not None and (self._known_ms is None or next_due_ms < self._known_ms):
            self._known_ms = next_due_ms
            self._wake()

    def _close(self) -> None:
        self.soon.clear()
        self.gaps.clear()
        self._undecided.clear()
        self._announce()
        self._ahead.clear()
        self._ahead_bytes = 0

    # -- parts -----------------------------------------------------------------------------------

    def _announce(self) -> None:
        self._decision.set()
        self._decision = asyncio.Event()

    def _note(self, number: Offset, header: DelayedHeader, arrived_ms: int) -> int:
        """Index a written record by sender and message id; return its place."""
        place = self._place(header.target)
        if header.sender is not NO_SENDER:
            self._sent.add(place, header.sender, number)
        if header.message_id:
            topic_id = self.targets[place].topic_id
            self._message_ids[number] = topic_id, header.message_id, arrived_ms
            if len(self._message_ids) > MESSAGE_IDS_MAX:
                self._message_ids.popitem(last=False)
        return place

    def _place(self, target: bytes) -> int:
        place = self._places.get(target)
        if place is None:
            place = self._places[target] = len(self.targets)
            self.targets.append(decode_target(target))
        return place

    def _keep(self, number: Offset, value: bytes) -> None:
        self._ahead[number] = value
        self._ahead_bytes += len(value)

    def _read_batch(self, number: Offset, wants: Callable[[Offset], bool]) -> dict[Offset, bytes]:
        part = self._replica.log.read(number, bytes_max=1, end_offset=self._replica.high_watermark)
        assert part is not None, "a waiting record is in the log"
        try:
            records = decode_selected(part.read(), wants, decompressed_bytes_max=UNPACKED_BYTES_MAX)
        except (CorruptBatch, InvalidBatch) as problem:
            raise DamagedLog(f"{self._replica.id}: {problem}") from problem
        return {record.offset: record.value for record in records if record.value is not None}

    def fail(self, problem: StorageError) -> None:
        """Fail the replica: it does not return what was written."""
        self._replica.refused(problem)


def _parts(delayed_records: Sequence[DelayedRecord]) -> Iterator[list[tuple[DelayedHeader, bytes]]]:
    """Yield the encoded values in batches small enough to read one record from."""
    part: list[tuple[DelayedHeader, bytes]] = []
    size = 0
    for header, payload in delayed_records:
        value = encode_value(header, payload)
        if part and (len(part) == WRITE_RECORDS_MAX or size + len(value) > WRITE_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append((header, value))
        size += len(value)
    if part:
        yield part
