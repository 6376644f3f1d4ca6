"""Which message ids a topic has seen lately, so that a record sent twice is taken once.

Owns the window of each topic, bounded by time and by count. It spans all partitions that are led
here, because a client that sends again may well choose another one. The one thing to know: a window
is nothing but a fold over the ends of the logs, and over the records that wait to be delivered; it
is made when a topic is first asked for it, and again when leadership has changed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from millstream.codec.batch import read_header
from millstream.codec.records import Record, iterate
from millstream.control.catalog import Catalog
from millstream.engine.ledger import BATCH_BYTES_MAX
from millstream.engine.queue_headers import may_ask, message_id_of
from millstream.errors import (
    CorruptBatch,
    InvalidBatch,
    NotLeader,
    StorageError,
    StorageUnavailable,
)
from millstream.model import Epoch, LogId, Offset
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica
from millstream.settings import TopicSettings

READ_BYTES_MAX = 2**18  # In one step of loading, which holds up the event loop for about 1 ms.
NOWHERE = -1  # The partition and the offset of a record that waits to be delivered.


class Copy(NamedTuple):
    """The first record that had an id."""

    time_ms: int
    partition: int
    offset: Offset


class Window:
    """The ids of one topic, oldest first. Pure."""

    def __init__(self) -> None:
        self.terms: dict[LogId, Epoch] = {}  # The leaderships that it knows all ids of.
        self._copies: OrderedDict[bytes, Copy] = OrderedDict()

    def __len__(self) -> int:
        return len(self._copies)

    def find(self, message_id: bytes, settings: TopicSettings, *, now_ms: int) -> Copy | None:
        """The first copy, if it is in the window; forgets what is not."""
        copies, limit_ms = self._copies, now_ms - settings.message_id_window_ms
        while copies:
            oldest = next(iter(copies))
            if copies[oldest].time_ms > limit_ms and len(copies) <= settings.message_id_count_max:
                break
            del copies[oldest]
        return copies.get(message_id)

    def add(self, message_id: bytes, copy: Copy, settings: TopicSettings) -> None:
        """Remember a record that was taken."""
        self._copies.pop(message_id, None)
        self._copies[message_id] = copy
        if len(self._copies) > settings.message_id_count_max:
            self._copies.popitem(last=False)

    def forget(self, message_id: bytes) -> None:
        """Its record was taken back before anybody saw it."""
        copy = self._copies.get(message_id)
        if copy is not None and copy.partition == NOWHERE:
            del self._copies[message_id]


# The ids of a topic's delayed records, with the time of their arrival.
DeferredIds = Callable[[UUID], Iterable[tuple[bytes, int]]]


class Windows:
    def __init__(self, catalog: Catalog, hub: Hub, clock: Clock) -> None:
        self._catalog = catalog
        self._hub = hub
        self._clock = clock
        self._windows: dict[UUID, Window] = {}
        self._loading: dict[UUID, asyncio.Future[None]] = {}

    def find(self, replica: Replica) -> Window | None:
        """The window for records of this partition, if it is known."""
        window = self._windows.get(replica.id.topic_id)
        if window is None or window.terms.get(replica.id) != replica.core.epoch:
            return None
        return window

    def forget(self, topic_id: UUID, message_id: bytes) -> None:
        window = self._windows.get(topic_id)
        if window is not None:
            window.forget(message_id)

    def arrived(self, replica: Replica, records: Sequence[Record], base_offset: Offset) -> None:
        """Take note of what got into a partition by another way than a client's."""
        window = self.find(replica)
        if window is None:
            return
        settings, now_ms = replica.log.records.settings, self._clock.now_ms()
        for offset, record in enumerate(records, start=base_offset):
            message_id = message_id_of(record)
            if message_id is not None:
                window.add(message_id, Copy(now_ms, replica.id.partition, offset), settings)

    async def load(self, replica: Replica, deferred_ids: DeferredIds) -> None:
        """Make the window of a topic; who asks for the same meanwhile waits for it."""
        topic_id = replica.id.topic_id
        while (loading := self._loading.get(topic_id)) is not None:
            await asyncio.shield(loading)
        if self.find(replica) is not None:
            return
        done = self._loading[topic_id] = asyncio.get_running_loop().create_future()
        try:
            for _ in self._fold(topic_id, deferred_ids):
                await asyncio.sleep(0)
        except (CorruptBatch, InvalidBatch, StorageError) as problem:
            raise StorageUnavailable(str(problem)) from problem
        finally:
            del self._loading[topic_id]
            done.set_result(None)  # However it went: the next one looks for himself.
        if self.find(replica) is None:
            raise NotLeader(replica.id, replica.leader)

    # -- loading ---------------------------------------------------------------------------------

    def _fold(self, topic_id: UUID, deferred_ids: DeferredIds) -> Iterator[None]:
        """Read the ends of all logs in steps. The last step leaves nothing unread anywhere."""
        window = Window()
        tails: list[_Tail] = []
        for partition in range(self._catalog.find_id(topic_id).partition_count):
            replica = self._hub.replicas.get(LogId(topic_id, partition))
            if replica is not None and replica.is_leader:
                window.terms[replica.id] = replica.core.epoch
                tails.append(_Tail(replica, self._clock.now_ms()))
                yield
        while any(tail.read() for tail in tails):
            yield
        self._windows.pop(topic_id, None)
        if not tails:
            return
        settings = tails[0].settings
        found = [one for tail in tails for one in tail.found]
        found += [
            (message_id, Copy(time_ms, NOWHERE, NOWHERE))
            for message_id, time_ms in deferred_ids(topic_id)
        ]
        found.sort(key=_time_ms)
        for message_id, copy in found:
            # Of two with one id the first counts, unless the second came when that was forgotten.
            if window.find(message_id, settings, now_ms=copy.time_ms) is None:
                window.add(message_id, copy, settings)
        self._windows[topic_id] = window


class _Tail:
    """The end of one log, being searched for message ids."""

    def __init__(self, replica: Replica, now_ms: int) -> None:
        self.settings = replica.log.records.settings
        self.found: list[tuple[bytes, Copy]] = []
        self._replica = replica
        self._now_ms = now_ms
        records, settings = replica.log.records, self.settings
        since_ms = now_ms - settings.message_id_window_ms
        first = records.offset_for_time(since_ms, end_offset=records.end_offset)
        counted = records.tail(settings.message_id_count_max, end_offset=records.end_offset)
        self._offset = max(counted, records.end_offset if first is None else first[0])
        # A log does not say when a batch arrived. Not before the newest one in front of it.
        self._time_ms = since_ms

    def read(self) -> bool:
        """Read a little; say whether there was anything to read."""
        records = self._replica.log.records
        offset = max(self._offset, records.start_offset)
        if offset >= records.end_offset:
            return False
        part = records.read(offset, bytes_max=READ_BYTES_MAX, end_offset=records.end_offset)
        if part is None:
            return False
        self._take(memoryview(part.read()))
        self._offset = part.end_offset
        return True

    def _take(self, data: memoryview) -> None:
        at = 0
        while at < len(data):
            header = read_header(data, at)
            batch = data[at : at + header.size]
            at += header.size
            self._time_ms = min(self._now_ms, max(self._time_ms, header.max_timestamp))
            # A transaction may be rolled back, and its records are sent again: they do not count.
            if header.is_control or header.is_transactional or not may_ask(batch, header):
                continue
            partition = self._replica.id.partition
            for record in iterate(batch, decompressed_bytes_max=BATCH_BYTES_MAX):
                message_id = message_id_of(record)
                if message_id is not None:
                    self.found.append((message_id, Copy(self._time_ms, partition, record.offset)))


def _time_ms(found: tuple[bytes, Copy]) -> int:
    return found[1].time_ms
