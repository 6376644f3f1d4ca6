"""Splits a batch by its queue options: duplicates, delayed records, and the remainder for the log.

Owns the decision about each record. Removed records leave a gap in the batch's offsets, so that the
sequences of its producer stay right.

Invariant: of an idempotent producer's batch the delayed records are committed to the internal topic
of delayed records, with their sequences, before the remainder is written to the log. After a crash
between the two the producer sends the batch again, and each record is known in one of the two.
"""

from collections.abc import Generator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from millstream.codec.batch import SEQUENCE_MAX, Header, read_header
from millstream.codec.records import Record
from millstream.codec.rewrite import filter_steps
from millstream.config import Limits
from millstream.cooperative import one_by_one
from millstream.engine.delayed.scheduler import DelayedScheduler
from millstream.engine.delayed.shard import BATCH_BYTES_SPARE, DelayedRecord, DelayedShard
from millstream.engine.produce.message_ids import NOWHERE, STEP_IDS, Copy, Place, Windows
from millstream.engine.produce.options import QueueOptions, when_due
from millstream.engine.runtime.futures import AppendFuture, BatchCount, when_all
from millstream.errors import BatchTooLarge, Overloaded
from millstream.internal_topics.delayed import (
    NO_SENDER,
    DelayedHeader,
    Payload,
    Sender,
    encode_target,
    id_text,
)
from millstream.metrics import DELAYED_RECORDS_TAKEN, DUPLICATE_RECORDS, Metrics
from millstream.model import (
    NO_PRODUCER,
    Acks,
    Appended,
    Buffer,
    LogId,
    Offset,
    TopicPartition,
)
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

NO_OFFSET = -1
STEP_RECORDS = 64  # Delayed records written in one step, of a millisecond or so.

# The first copy of a duplicate, or its index in the same batch.
Original = Copy | int
# How far a log must be committed.
Mark = tuple[Replica, Offset]


class IncomingBatch(NamedTuple):
    """An admitted batch. In a transaction it has the transactional id; with `joins` it may add its
    partition to the transaction."""

    replica: Replica
    target: TopicPartition
    data: Buffer
    header: Header
    acks: Acks
    transactional_id: str | None = None
    joins: bool = False


class Split(NamedTuple):
    """The decision about each record of a batch, by its index."""

    originals: Mapping[int, Original]  # Of duplicates.
    numbers: Mapping[int, Offset]  # Of delayed records, in their internal topic.
    marks: Sequence[Mark]  # What must be committed before the batch is acknowledged.
    # The places of its new message ids; an id does not count before its place has an offset.
    log_place: Place
    delayed_place: Place

    @property
    def removed(self) -> AbstractSet[int]:
        """The records that are not written to the log."""
        return self.originals.keys() | self.numbers.keys()


class Remainder(NamedTuple):
    """A batch without some of its records; no data if none is left."""

    removed: AbstractSet[int]
    data: bytes | None


class BatchSplitter:
    def __init__(
        self,
        windows: Windows,
        scheduler: DelayedScheduler,
        hub: Hub,
        *,
        limits: Limits,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._windows = windows
        self._scheduler = scheduler
        self._hub = hub
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._count = BatchCount(metrics, clock)

    async def delay_elsewhere(
        self, incoming: IncomingBatch, options: QueueOptions, *, is_checked: bool
    ) -> Mapping[int, Offset] | None:
        """Have another node keep the delayed records, if it has their shard; return their numbers
        by index once they are committed there. None if this node keeps them itself."""
        topic = incoming.target.topic
        if not self._scheduler.is_needed(topic, options.due_ms.values(), incoming.header):
            return None
        node, remote = self._scheduler.node_of(topic), self._scheduler.remote
        if node is None or remote is None:
            return None
        originals: AbstractSet[int] = frozenset()
        if is_checked:
            originals = await one_by_one(self.duplicates(incoming, options))
        delayed_records = {
            index: self._delayed_record(incoming, options, index)
            for index in options.due_ms
            if index not in originals
        }
        now_ms = self._clock.now_ms()
        return await remote.write(node, topic, incoming.replica.id, delayed_records, now_ms=now_ms)

    def split(
        self,
        incoming: IncomingBatch,
        options: QueueOptions,
        *,
        is_checked: bool,
        kept: Mapping[int, Offset] | None = None,
    ) -> Generator[None, None, Split]:
        """Decide about each record, and write the delayed ones, in short steps, unless another node
        has `kept` them.

        With `is_checked` message ids count. Raises with nothing written as a rule: a disk may fill
        up in between, and delayed records written by then are known by their sequences when the
        batch is sent again.
        """
        originals: Mapping[int, Original] = {}
        if is_checked:
            originals = yield from self._originals(incoming, options)
        marks = self._marks(incoming, originals)
        numbers: Mapping[int, Offset] = kept or {}
        shard = None if kept is not None else self._delayed_shard(incoming, options)
        if shard is not None:
            numbers = yield from self._delay(incoming, shard, options, originals)
            marks.append(shard.mark)
        log_place = Place(incoming.target.partition, producer_id=_transaction(incoming.header))
        split = Split(originals, numbers, marks, log_place, Place(NOWHERE))
        if is_checked:
            yield from self._remember(incoming, options, split)
        self._metrics.add(DUPLICATE_RECORDS, len(originals))
        self._metrics.add(DELAYED_RECORDS_TAKEN, len(numbers))
        return split

    def duplicates(
        self, incoming: IncomingBatch, options: QueueOptions
    ) -> Generator[None, None, AbstractSet[int]]:
        """The records that `split` would take for duplicates, as of now."""
        originals = yield from self._originals(incoming, options)
        return originals.keys()

    def remainder(
        self, incoming: IncomingBatch, removed: AbstractSet[int]
    ) -> Generator[None, None, Remainder]:
        """The batch without some of its records. Pure: a thread may run it."""
        header = incoming.header
        data = yield from filter_steps(
            incoming.data,
            lambda record: record.offset - header.base_offset not in removed,
            decompressed_bytes_max=self._limits.batch_decompressed_bytes_max,
            # The producer's next sequence follows this batch, so the log must know it.
            keep_empty=header.has_producer,
        )
        return Remainder(removed, data)

    def append_remainder(
        self, incoming: IncomingBatch, split: Split, remainder: Remainder | None = None
    ) -> Generator[None, None, AppendFuture]:
        """Append what is left of the batch; `remainder` is that, if it was made before."""
        appended = yield from self._append_remainder(incoming, split.removed, remainder)
        split.log_place.base_offset = appended.base_offset
        split.delayed_place.base_offset = NOWHERE
        answer = _answer(incoming, appended, split.originals, split.numbers)
        marks = [*split.marks, (incoming.replica, appended.end_offset)]
        if incoming.acks is not Acks.ALL:
            marks.clear()
        return when_all([replica.acknowledged(end, None) for replica, end in marks], answer)

    async def wait_until_committed(self, split: Split) -> None:
        """Wait until all other logs that the split depends on are committed."""
        for replica, end_offset in split.marks:
            await replica.committed(end_offset, None)

    # -- duplicates ------------------------------------------------------------------------------

    def _originals(
        self, incoming: IncomingBatch, options: QueueOptions
    ) -> Generator[None, None, dict[int, Original]]:
        """The first copy of each duplicate in the batch."""
        replica, transaction = incoming.replica, _transaction(incoming.header)
        originals: dict[int, Original] = {}
        here: dict[bytes, int] = {}
        for count, (index, message_id) in enumerate(options.message_ids.items(), start=1):
            if count % STEP_IDS == 0:
                yield
            first = here.setdefault(message_id, index)
            copy = self._windows.original(replica, message_id, transaction)
            if copy is not None:
                originals[index] = copy
            elif first != index:
                originals[index] = first
        return originals

    def _remember(
        self, incoming: IncomingBatch, options: QueueOptions, split: Split
    ) -> Generator[None, None, None]:
        """Add the new ids to the window."""
        window = self._windows.find(incoming.replica)
        if window is None:
            return  # Leadership was lost meanwhile: the next leader loads its own.
        settings, now_ms = incoming.replica.log.settings, self._clock.now_ms()
        for count, (index, message_id) in enumerate(options.message_ids.items(), start=1):
            if count % STEP_IDS == 0:
                yield
            if index not in split.originals:
                place = split.delayed_place if index in split.numbers else split.log_place
                window.add(message_id, Copy(now_ms, place, index), settings)

    def _marks(self, incoming: IncomingBatch, originals: Mapping[int, Original]) -> list[Mark]:
        """How far each log must be committed so that the first copies are."""
        ends: dict[int, Offset] = {}
        for original in originals.values():
            if isinstance(original, Copy):
                partition, end = original.place.partition, original.offset + 1
                ends[partition] = max(end, ends.get(partition, 0))
        marks: list[Mark] = []
        for partition, end_offset in ends.items():
            if partition == NOWHERE:
                # What another node keeps was committed before its id counted.
                if self._scheduler.node_of(incoming.target.topic) is None:
                    marks.append(self._scheduler.find_now(incoming.target.topic).mark)
            else:
                replica = self._hub.find(LogId(incoming.replica.id.topic_id, partition))
                marks.append((replica, end_offset))
        return marks

    # -- delayed ---------------------------------------------------------------------------------

    def _delayed_shard(self, incoming: IncomingBatch, options: QueueOptions) -> DelayedShard | None:
        """The shard of the topic's delayed records; None if the batch does not need it."""
        topic = incoming.target.topic
        if self._scheduler.is_needed(topic, options.due_ms.values(), incoming.header):
            return self._scheduler.find_now(topic)
        return None

    def _delay(
        self,
        incoming: IncomingBatch,
        shard: DelayedShard,
        options: QueueOptions,
        originals: Mapping[int, Original],
    ) -> Generator[None, None, dict[int, Offset]]:
        """Write the delayed records; return their numbers by index."""
        numbers: dict[int, Offset] = {}
        delayed_records: dict[int, DelayedRecord] = {}
        now_ms = self._clock.now_ms()
        for count, (index, due_ms) in enumerate(options.due_ms.items(), start=1):
            if count % STEP_RECORDS == 0:
                yield
            if index in originals:
                continue
            sender = _sender(incoming.header, index)
            known = shard.find_sent(incoming.replica.id, sender)
            if known is not None:
                numbers[index] = known
            elif due_ms > now_ms:
                delayed_records[index] = self._delayed_record(incoming, options, index)
        if len(shard.due_heap) + len(delayed_records) > self._limits.delayed_records_max:
            raise Overloaded(
                f"{len(shard.due_heap)} records are delayed, which is all there may be"
            )
        if delayed_records:
            shard.check_place(incoming.replica.id)
        indexes = list(delayed_records)
        for at in range(0, len(indexes), STEP_RECORDS):
            part = indexes[at : at + STEP_RECORDS]
            written = shard.write([delayed_records[index] for index in part])
            numbers.update(zip(part, written, strict=True))
            yield
        return numbers

    @staticmethod
    def _delayed_record(
        incoming: IncomingBatch, options: QueueOptions, index: int
    ) -> DelayedRecord:
        header = DelayedHeader(
            options.due_ms[index],
            encode_target(incoming.replica.id),
            _sender(incoming.header, index),
            options.message_ids.get(index, b""),
        )
        size_max = incoming.replica.log.settings.segment_bytes - BATCH_BYTES_SPARE
        return _delayed_record(header, options.records[index], size_max=size_max)

    # -- the remainder ---------------------------------------------------------------------------

    def _append_remainder(
        self, incoming: IncomingBatch, removed: AbstractSet[int], known: Remainder | None
    ) -> Generator[None, None, Appended]:
        replica, data, header = incoming.replica, incoming.data, incoming.header
        if not removed:
            return self._count.append(replica, data, header)
        if known is None or known.removed != removed:
            known = yield from self.remainder(incoming, removed)
        if known.data is None:
            return Appended(NO_OFFSET, 0, NO_OFFSET, replica.log.start_offset)
        header = read_header(known.data)
        return self._count.append(replica, known.data, header)


def _answer(
    incoming: IncomingBatch,
    appended: Appended,
    originals: Mapping[int, Original],
    numbers: Mapping[int, Offset],
) -> Appended:
    partition, base_offset = incoming.target.partition, appended.base_offset
    duplicates: dict[int, Offset] = {}
    for index, original in originals.items():
        if isinstance(original, int):
            duplicates[index] = NO_OFFSET if original in numbers else base_offset + original
        else:
            is_here = original.place.partition == partition
            duplicates[index] = original.offset if is_here else NO_OFFSET
    if len(originals) + len(numbers) == incoming.header.count:
        base_offset = duplicates.get(0, NO_OFFSET)
        appended = appended._replace(end_offset=base_offset + 1)
    delayed = {index: id_text(incoming.target.topic, number) for index, number in numbers.items()}
    return appended._replace(base_offset=base_offset, duplicates=duplicates, delayed=delayed)


def _transaction(header: Header) -> int:
    """The producer id of a batch in a transaction; that of no producer outside of one."""
    return header.producer_id if header.is_transactional else NO_PRODUCER.producer_id


def _sender(header: Header, index: int) -> Sender:
    if not header.has_producer:
        return NO_SENDER
    sequence = (header.base_sequence + index) & SEQUENCE_MAX
    return Sender(header.producer_id, header.producer_epoch, sequence)


def _delayed_record(header: DelayedHeader, record: Record, *, size_max: int) -> DelayedRecord:
    size = len(record.key or b"") + len(record.value or b"")
    size += sum(len(name) + len(value or b"") for name, value in record.headers)
    if size > size_max:
        raise BatchTooLarge(size, size_max)
    due = when_due(record, header.due_ms)
    return DelayedRecord(header, Payload(due.key, due.value, due.headers))
