"""Finds duplicates by message id, in a window of the ids that a topic has taken lately.

Owns the window of each topic, bounded by time and by count. It spans all partitions that are led
here, because a client that sends again may choose another partition. A window is a fold over the
ends of the logs and over the delayed records; it is loaded on first use, and again after a change
of leadership. A record in a transaction counts for that transaction at once, and for all producers
once the transaction is committed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from heapq import merge
from typing import NamedTuple
from uuid import UUID

from millstream.codec.batch import Header, read_header
from millstream.codec.records import STEP_BYTES, Record, decode_containing
from millstream.control.catalog import Catalog
from millstream.engine.produce.options import (
    ENCODED_PREFIX,
    message_id_of,
    search,
    unpack,
    unpack_small,
)
from millstream.engine.produce.unpacking import Unpacking
from millstream.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    NotLeader,
    StorageError,
    StorageUnavailable,
)
from millstream.model import NO_PRODUCER, Buffer, Epoch, LogId, Offset
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica
from millstream.settings import TopicSettings

READ_BYTES_MAX = 2**18  # Searched in one step of loading, of a millisecond or so.
STEP_IDS = 500  # Looked for in one step.
STEP_BATCHES = 500  # Opened in one step: small ones cost more than their bytes.
NOWHERE = -1  # The partition and the offset of a delayed record.


class Place:
    """Where the records of a batch are; without an offset they are not written and do not count."""

    __slots__ = ("base_offset", "partition", "producer_id")

    def __init__(
        self,
        partition: int,
        base_offset: Offset | None = None,
        producer_id: int = NO_PRODUCER.producer_id,
    ) -> None:
        """`producer_id` is that of a transaction which may yet be rolled back."""
        self.partition = partition
        self.base_offset = base_offset
        self.producer_id = producer_id


class Copy(NamedTuple):
    """The first record that had an id."""

    time_ms: int
    place: Place
    at: int = 0  # Its index in its batch.

    @property
    def offset(self) -> Offset:
        assert self.place.base_offset is not None
        return self.place.base_offset + self.at


class Window:
    """The ids of one topic, oldest first. Pure."""

    def __init__(self) -> None:
        self.terms: dict[LogId, Epoch] = {}  # The leaderships that it knows all ids of.
        self._copies: OrderedDict[bytes, Copy] = OrderedDict()

    def __len__(self) -> int:
        return len(self._copies)

    def find(self, message_id: bytes, settings: TopicSettings, *, now_ms: int) -> Copy | None:
        """The first copy, if it is in the window; drops ids that have left the window."""
        copies, limit_ms = self._copies, now_ms - settings.message_id_window_ms
        while copies:
            oldest = next(iter(copies))
            if copies[oldest].time_ms > limit_ms and len(copies) <= settings.message_id_count_max:
                break
            del copies[oldest]
        return copies.get(message_id)

    def add(self, message_id: bytes, copy: Copy, settings: TopicSettings) -> None:
        """Add the id of a record that was written."""
        self._copies.pop(message_id, None)
        self._copies[message_id] = copy
        if len(self._copies) > settings.message_id_count_max:
            self._copies.popitem(last=False)

    def forget(self, message_id: bytes) -> None:
        """Drop the id of a delayed record that was cancelled."""
        copy = self._copies.get(message_id)
        if copy is not None and copy.place.partition == NOWHERE:
            del self._copies[message_id]


# The ids of a topic's delayed records, with the time at which each came in.
DelayedIds = Callable[[UUID], Iterable[tuple[bytes, int]]]


class Windows:
    def __init__(self, catalog: Catalog, hub: Hub, clock: Clock, unpacking: Unpacking) -> None:
        """`unpacking` is that of readers: a batch that waits for a window may hold room."""
        self._unpacking = unpacking
        self._catalog = catalog
        self._hub = hub
        self._clock = clock
        self._windows: dict[UUID, Window] = {}
        self._loading: dict[UUID, asyncio.Future[None]] = {}
        self._held: dict[UUID, asyncio.Future[None]] = {}
        hub.on_drop(self._forget_log)

    def find(self, replica: Replica) -> Window | None:
        """The window for records of this partition, if it is known."""
        window = self._windows.get(replica.id.topic_id)
        if window is None or window.terms.get(replica.id) != replica.core.epoch:
            return None
        return window

    def original(self, replica: Replica, message_id: bytes, producer_id: int) -> Copy | None:
        """The first copy of a record for this partition; None if the record is new.

        `producer_id` is that of its transaction, if it is in one. Raises `NotLeader` if the window
        is not known any more.
        """
        window = self.find(replica)
        if window is None:
            raise NotLeader(replica.id, replica.leader)
        settings, now_ms = replica.log.settings, self._clock.now_ms()
        copy = window.find(message_id, settings, now_ms=now_ms)
        if copy is None or not self._counts(copy, replica.id.topic_id, producer_id):
            return None
        return copy

    def forget(self, topic_id: UUID, message_id: bytes) -> None:
        window = self._windows.get(topic_id)
        if window is not None:
            window.forget(message_id)

    def _forget_log(self, log_id: LogId) -> None:
        """The topic is deleted, or its partition has left this node: load the window anew."""
        self._windows.pop(log_id.topic_id, None)

    def arrived(self, replica: Replica, records: Sequence[Record], base_offset: Offset) -> None:
        """Add the ids of records that the broker itself has written to a partition."""
        window = self.find(replica)
        if window is None:
            return
        settings, now_ms = replica.log.settings, self._clock.now_ms()
        place = Place(replica.id.partition, base_offset)
        for index, record in enumerate(records):
            message_id = message_id_of(record)
            if message_id is not None:
                window.add(message_id, Copy(now_ms, place, index), settings)

    # -- one at a time ---------------------------------------------------------------------------

    def is_held(self, topic_id: UUID) -> bool:
        return topic_id in self._held

    @asynccontextmanager
    async def held(self, topic_id: UUID) -> AsyncIterator[None]:
        """Hold a window alone, to decide about a batch in more than one step."""
        assert topic_id not in self._held
        self._held[topic_id] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._held.pop(topic_id).set_result(None)

    async def released(self, topic_id: UUID) -> None:
        while (held := self._held.get(topic_id)) is not None:
            await asyncio.shield(held)

    async def load(self, replica: Replica, delayed_ids: DelayedIds) -> None:
        """Load the window of a topic; a second call for the same topic waits for the first."""
        topic_id = replica.id.topic_id
        while (loading := self._loading.get(topic_id)) is not None:
            await asyncio.shield(loading)
        if self.find(replica) is not None:
            return
        done = self._loading[topic_id] = asyncio.get_running_loop().create_future()
        try:
            # The ids of all partitions count: none may be passed over because its log rests.
            count = self._catalog.find_id(topic_id).partition_count
            await self._hub.awake([LogId(topic_id, partition) for partition in range(count)])
            for large in self._fold(topic_id, delayed_ids):
                if large is None:
                    await asyncio.sleep(0)
                else:
                    await self._unpacking.run(large.run, packed_bytes=large.size)
        except (CorruptBatch, InvalidBatch, StorageError) as problem:
            raise StorageUnavailable(str(problem)) from problem
        finally:
            del self._loading[topic_id]
            done.set_result(None)  # Also after a failure: the next call checks for itself.
        if self.find(replica) is None:
            raise NotLeader(replica.id, replica.leader)

    # -- loading ---------------------------------------------------------------------------------

    def _fold(self, topic_id: UUID, delayed_ids: DelayedIds) -> "Iterator[_Large | None]":
        """Read the ends of all logs in steps. The last step leaves nothing unread anywhere.

        A large batch is yielded to be searched on a thread before the next step.
        """
        window = Window()
        tails: list[_Tail] = []
        for partition in range(self._catalog.find_id(topic_id).partition_count):
            replica = self._hub.get(LogId(topic_id, partition))
            if replica is not None and replica.is_leader:
                window.terms[replica.id] = replica.core.epoch
                bytes_max = self._unpacking.bytes_max
                tail = _Tail(replica, self._clock.now_ms(), bytes_max=bytes_max)
                tails.append(tail)
                yield from tail.find_start()
                yield None
        place = Place(NOWHERE, NOWHERE)
        waiting = [(name, Copy(time_ms, place)) for name, time_ms in delayed_ids(topic_id)]
        waiting.sort(key=_time_ms)
        is_complete = not tails
        while not is_complete:
            # Batches written between two steps are few, and read in the next round.
            is_complete = True
            work = 0
            for tail in tails:
                for cost in tail.steps():
                    if isinstance(cost, _Large):
                        is_complete = False
                        yield cost
                        continue
                    work += cost
                    if work >= STEP_BYTES:
                        work, is_complete = 0, False
                        yield None
            ids = merge(waiting, *[tail.taken() for tail in tails], key=_time_ms)
            waiting = []
            for count, (message_id, copy) in enumerate(ids, start=1):
                self._fold_one(window, tails[0].settings, topic_id, message_id, copy)
                if count % STEP_IDS == 0:
                    is_complete = False
                    yield None
        self._windows.pop(topic_id, None)
        if tails:
            self._windows[topic_id] = window

    def _fold_one(
        self, window: Window, settings: TopicSettings, topic_id: UUID, message_id: bytes, copy: Copy
    ) -> None:
        # Of two records with one id the first counts, unless it had left the window by then.
        first = window.find(message_id, settings, now_ms=copy.time_ms)
        if first is None or not self._counts(first, topic_id, copy.place.producer_id):
            window.add(message_id, copy, settings)

    def _counts(self, copy: Copy, topic_id: UUID, producer_id: int) -> bool:
        """Whether a record counts for a batch of this transaction, or of none."""
        place = copy.place
        if place.base_offset is None:
            return False
        if place.producer_id == NO_PRODUCER.producer_id:
            return True
        replica = self._hub.get(LogId(topic_id, place.partition))
        # Retention has deleted the outcome, and a duplicate is better than a lost record.
        if replica is None or copy.offset < replica.log.start_offset:
            return False
        producers = replica.log.producers
        if producers.is_open_at(place.producer_id, copy.offset):
            return place.producer_id == producer_id
        if producers.is_aborted_at(place.producer_id, copy.offset):
            place.base_offset = None
            return False
        place.producer_id = NO_PRODUCER.producer_id
        return True


class _Large:
    """A batch that must be searched on a thread."""

    def __init__(self, header: Header, batch: memoryview, *, bytes_max: int) -> None:
        self.header = header
        self.payload: Buffer | None = None
        self._batch = batch
        self._bytes_max = bytes_max

    @property
    def size(self) -> int:
        return self.header.size

    def run(self) -> None:
        # Written while the topic read no options: its ids never counted.
        with suppress(BatchTooLarge, InvalidBatch):
            self.payload = search(unpack(self._batch, self.header, bytes_max=self._bytes_max))


class _Tail:
    """The end of one log, being searched for message ids."""

    def __init__(self, replica: Replica, now_ms: int, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.settings = replica.log.settings
        self._ids: list[tuple[bytes, Copy]] = []
        self._replica = replica
        self._now_ms = now_ms
        self._offset = replica.log.start_offset
        # A log does not say when a batch came in: not before the newest batch in front of it.
        self._time_ms = now_ms - self.settings.message_id_window_ms

    def find_start(self) -> Iterator[None]:
        """Skip the records that are too old or too far back to count, in steps."""
        log = self._replica.log
        end_offset = log.end_offset
        batch = yield from log.batch_for_time(self._time_ms, end_offset=end_offset)
        self._offset = end_offset if batch is None else batch.base_offset
        counted = yield from log.tail(self.settings.message_id_count_max, end_offset=log.end_offset)
        self._offset = max(self._offset, counted)

    def steps(self) -> Iterator[int | _Large]:
        """Read to the end; in between, say how many bytes of records were decoded, about, or which
        batch is to be searched by a thread."""
        log = self._replica.log
        while (offset := max(self._offset, log.start_offset)) < log.end_offset:
            part = log.read(offset, bytes_max=READ_BYTES_MAX, end_offset=log.end_offset)
            if part is None:
                return
            data = memoryview(part.read())
            yield len(data) * STEP_BYTES // READ_BYTES_MAX
            at = 0
            while at < len(data):
                header = read_header(data, at)
                yield STEP_BYTES // STEP_BATCHES
                yield from self._take(header, data[at : at + header.size])
                at += header.size
            self._offset = part.end_offset

    def taken(self) -> list[tuple[bytes, Copy]]:
        """The ids found since the last call, oldest first."""
        ids, self._ids = self._ids, []
        return ids

    def _take(self, header: Header, batch: memoryview) -> Iterator[int | _Large]:
        self._time_ms = min(self._now_ms, max(self._time_ms, header.max_timestamp))
        if header.is_control:
            return
        try:
            payload = unpack_small(batch, header, bytes_max=self._bytes_max)
        except InvalidBatch:
            return  # Its ids never counted.
        if payload is None:
            large = _Large(header, batch, bytes_max=self._bytes_max)
            yield large
            payload = large.payload
        else:
            payload = search(payload)
        if payload is None:
            return
        transaction = header.producer_id if header.is_transactional else NO_PRODUCER.producer_id
        place = Place(self._replica.id.partition, header.base_offset, transaction)
        chunks = decode_containing(header, bytes(payload), ENCODED_PREFIX)
        while True:
            try:
                records = next(chunks, None)
            except (CorruptBatch, InvalidBatch):
                return  # Written without validation: its ids never counted; readers get the error.
            if records is None:
                return
            for record in records:
                message_id = message_id_of(record)
                if message_id is not None:
                    copy = Copy(self._time_ms, place, record.offset - header.base_offset)
                    self._ids.append((message_id, copy))
            yield STEP_BYTES if records else 0


def _time_ms(id_and_copy: tuple[bytes, Copy]) -> int:
    return id_and_copy[1].time_ms
