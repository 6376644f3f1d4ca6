"""The records of a batch that asks for something, sorted: there already, delivered later, written.

Owns what becomes of each. What a batch loses leaves a gap in its offsets, so that the sequences of
its producer stay right. The one thing to know: of an idempotent producer's batch the delayed
records are committed to the broker's own books, with their sequences, before the rest is written to
the log. Whatever a crash leaves of the two, the producer sends the batch again, and each record is
known in the one place or in the other.
"""

from collections.abc import Generator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from millstream.codec.batch import SEQUENCE_MAX, Header, read_header
from millstream.codec.records import Record, filter_steps
from millstream.config import Limits
from millstream.engine.delayed.scheduler import DelayedScheduler
from millstream.engine.delayed.shard import BATCH_BYTES_SPARE, DelayedRecord, DelayedShard
from millstream.engine.produce.message_ids import NOWHERE, STEP_IDS, Copy, Place, Windows
from millstream.engine.produce.options import Asked, when_due
from millstream.engine.runtime.futures import Writing, count_batch, when_all
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
STEP_RECORDS = 64  # Written to the books in one step, of a millisecond or so.

# Where a first copy is, or the index that it has in the same batch.
Original = Copy | int
# How far a log must be committed.
Mark = tuple[Replica, Offset]


class Arrival(NamedTuple):
    """An admitted batch. One in a transaction has its id, and may add its partition to it."""

    replica: Replica
    target: TopicPartition
    data: Buffer
    header: Header
    acks: Acks
    transactional_id: str | None = None
    joins: bool = False


class Sorted(NamedTuple):
    """What was decided about the records of a batch, by their index in it."""

    originals: Mapping[int, Original]  # Of duplicates.
    numbers: Mapping[int, Offset]  # Of delayed ones, in the books.
    marks: Sequence[Mark]  # What must be committed before the batch is acknowledged.
    # Where its new message ids will be: they do not count before that is known.
    written: Place
    waiting: Place

    @property
    def gone(self) -> AbstractSet[int]:
        """What the log does not get."""
        return self.originals.keys() | self.numbers.keys()


class Rest(NamedTuple):
    """What is left of a batch without some of its records; no data if nothing is."""

    gone: AbstractSet[int]
    data: bytes | None


class Sorting:
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

    def sort(
        self, arrival: Arrival, asked: Asked, *, is_checked: bool
    ) -> Generator[None, None, Sorted]:
        """Decide about each record, and write the delayed ones to the books, in short steps.

        With `is_checked` message ids count. Raises with nothing written as a rule: a disk may fill
        up in between, and what is in the books then is known by its sequence when it comes again.
        """
        originals: Mapping[int, Original] = {}
        if is_checked:
            originals = yield from self._originals(arrival, asked)
        marks = self._marks(arrival, originals)
        numbers: Mapping[int, Offset] = {}
        shard = self._books(arrival, asked)
        if shard is not None:
            numbers = yield from self._delay(arrival, shard, asked, originals)
            marks.append(shard.mark)
        written = Place(arrival.target.partition, producer_id=_transaction(arrival.header))
        done = Sorted(originals, numbers, marks, written, Place(NOWHERE))
        if is_checked:
            yield from self._remember(arrival, asked, done)
        self._metrics.add(DUPLICATE_RECORDS, len(originals))
        self._metrics.add(DELAYED_RECORDS_TAKEN, len(numbers))
        return done

    def duplicates(self, arrival: Arrival, asked: Asked) -> Generator[None, None, AbstractSet[int]]:
        """The records that `sort` would find to be there already, as of now."""
        originals = yield from self._originals(arrival, asked)
        return originals.keys()

    def rest(self, arrival: Arrival, gone: AbstractSet[int]) -> Generator[None, None, Rest]:
        """A batch without some of its records. Pure: a thread may do it."""
        header = arrival.header
        data = yield from filter_steps(
            arrival.data,
            lambda record: record.offset - header.base_offset not in gone,
            decompressed_bytes_max=self._limits.batch_decompressed_bytes_max,
            # Its producer goes on counting from here, so the log must know of it.
            keep_empty=header.has_producer,
        )
        return Rest(gone, data)

    def finish(
        self, arrival: Arrival, done: Sorted, rest: Rest | None = None
    ) -> Generator[None, None, Writing]:
        """Write the rest of a batch, which may be known already."""
        appended = yield from self._append_rest(arrival, done.gone, rest)
        done.written.base_offset = appended.base_offset
        done.waiting.base_offset = NOWHERE
        answer = _answer(arrival, appended, done.originals, done.numbers)
        marks = [*done.marks, (arrival.replica, appended.end_offset)]
        if arrival.acks is not Acks.ALL:
            marks.clear()
        return when_all([replica.acknowledged(end, None) for replica, end in marks], answer)

    async def settle(self, done: Sorted) -> None:
        """Wait until all of it is committed that is not in this log."""
        for replica, end_offset in done.marks:
            await replica.committed(end_offset, None)

    # -- duplicates ------------------------------------------------------------------------------

    def _originals(
        self, arrival: Arrival, asked: Asked
    ) -> Generator[None, None, dict[int, Original]]:
        """What each duplicate in the batch is a copy of."""
        replica, transaction = arrival.replica, _transaction(arrival.header)
        originals: dict[int, Original] = {}
        here: dict[bytes, int] = {}
        for count, (index, message_id) in enumerate(asked.message_ids.items(), start=1):
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
        self, arrival: Arrival, asked: Asked, done: Sorted
    ) -> Generator[None, None, None]:
        """Take note of new ids."""
        window = self._windows.find(arrival.replica)
        if window is None:
            return  # Leadership was lost meanwhile: whoever comes next makes another one.
        settings, now_ms = arrival.replica.log.records.settings, self._clock.now_ms()
        for count, (index, message_id) in enumerate(asked.message_ids.items(), start=1):
            if count % STEP_IDS == 0:
                yield
            if index not in done.originals:
                place = done.waiting if index in done.numbers else done.written
                window.add(message_id, Copy(now_ms, place, index), settings)

    def _marks(self, arrival: Arrival, originals: Mapping[int, Original]) -> list[Mark]:
        """How far which log must be committed so that the first copies are."""
        ends: dict[int, Offset] = {}
        for original in originals.values():
            if isinstance(original, Copy):
                partition, end = original.place.partition, original.offset + 1
                ends[partition] = max(end, ends.get(partition, 0))
        marks: list[Mark] = []
        for partition, end_offset in ends.items():
            if partition == NOWHERE:
                marks.append(self._scheduler.find_now(arrival.target.topic).mark)
            else:
                replica = self._hub.find(LogId(arrival.replica.id.topic_id, partition))
                marks.append((replica, end_offset))
        return marks

    # -- delayed ---------------------------------------------------------------------------------

    def _books(self, arrival: Arrival, asked: Asked) -> DelayedShard | None:
        """Where delayed records of the topic are kept; None if there is no need to know."""
        topic = arrival.target.topic
        if self._scheduler.is_needed(topic, asked.due_ms.values(), arrival.header):
            return self._scheduler.find_now(topic)
        return None

    def _delay(
        self,
        arrival: Arrival,
        shard: DelayedShard,
        asked: Asked,
        originals: Mapping[int, Original],
    ) -> Generator[None, None, dict[int, Offset]]:
        """Write delayed records to the books; return their numbers there, by index."""
        numbers: dict[int, Offset] = {}
        delayed_records: dict[int, DelayedRecord] = {}
        size_max = arrival.replica.log.records.settings.segment_bytes - BATCH_BYTES_SPARE
        target, now_ms = encode_target(arrival.replica.id), self._clock.now_ms()
        for count, (index, due_ms) in enumerate(asked.due_ms.items(), start=1):
            if count % STEP_RECORDS == 0:
                yield
            if index in originals:
                continue
            sender = _sender(arrival.header, index)
            known = shard.find_sent(arrival.replica.id, sender)
            if known is not None:
                numbers[index] = known
            elif due_ms > now_ms:
                message_id = asked.message_ids.get(index, b"")
                header = DelayedHeader(due_ms, target, sender, message_id)
                delayed_records[index] = _delayed_record(
                    header, asked.records[index], size_max=size_max
                )
        if len(shard.due_heap) + len(delayed_records) > self._limits.deferred_records_max:
            raise Overloaded(
                f"{len(shard.due_heap)} records are delayed, which is all there may be"
            )
        indexes = list(delayed_records)
        for at in range(0, len(indexes), STEP_RECORDS):
            part = indexes[at : at + STEP_RECORDS]
            written = shard.write([delayed_records[index] for index in part])
            numbers.update(zip(part, written, strict=True))
            yield
        return numbers

    # -- the rest --------------------------------------------------------------------------------

    def _append_rest(
        self, arrival: Arrival, gone: AbstractSet[int], known: Rest | None
    ) -> Generator[None, None, Appended]:
        replica, data, header = arrival.replica, arrival.data, arrival.header
        if not gone:
            count_batch(self._metrics, header)
            return replica.append(data, header)
        if known is None or known.gone != gone:
            known = yield from self.rest(arrival, gone)
        if known.data is None:
            return Appended(NO_OFFSET, 0, NO_OFFSET, replica.log.start_offset)
        header = read_header(known.data)
        count_batch(self._metrics, header)
        return replica.append(known.data, header)


def _answer(
    arrival: Arrival,
    appended: Appended,
    originals: Mapping[int, Original],
    numbers: Mapping[int, Offset],
) -> Appended:
    partition, base_offset = arrival.target.partition, appended.base_offset
    duplicates: dict[int, Offset] = {}
    for index, original in originals.items():
        if isinstance(original, int):
            duplicates[index] = NO_OFFSET if original in numbers else base_offset + original
        else:
            is_here = original.place.partition == partition
            duplicates[index] = original.offset if is_here else NO_OFFSET
    if len(originals) + len(numbers) == arrival.header.count:
        base_offset = duplicates.get(0, NO_OFFSET)
        appended = appended._replace(end_offset=base_offset + 1)
    delayed = {index: id_text(arrival.target.topic, number) for index, number in numbers.items()}
    return appended._replace(base_offset=base_offset, duplicates=duplicates, delayed=delayed)


def _transaction(header: Header) -> int:
    """Whose transaction a batch is part of; nobody's, if it is in none."""
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
