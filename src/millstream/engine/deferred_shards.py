"""Delayed delivery from this node's side: which delayed records it keeps, and when they are due.

Owns the one task that loads them, watches the clock and hands over what is due, a batch at a time
for each partition. Not gated: `deferred` and `partitions` are, and stand before it. The one thing
to know: due means that the broker's wall clock has reached the time, so nothing is ever early; it
is late by two commits and what was due before it, see `JITTER_MS`.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator
from uuid import UUID

from millstream.codec.batch import Header
from millstream.codec.records import Record
from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.control.deferred import decode_payload, decode_slip, encode_key
from millstream.engine.backoff import Backoff
from millstream.engine.courier import Road
from millstream.engine.deferred_shard import BATCH_BYTES_SPARE, DeferredShard, Load
from millstream.engine.shards import ADOPT_INTERVAL_MS, Books, Shards
from millstream.engine.topics import Topics
from millstream.engine.waiting import Alarms
from millstream.errors import CoordinatorLoading, RequestError, StorageError, UnknownTopic
from millstream.model import DEFERRED_TOPIC, LogId, Offset
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

log = logging.getLogger(__name__)

DEFERRED_SETTINGS = {
    "cleanup_policy": "compact",
    "segment_bytes": str(64 * 2**20),
    # Whoever folds this log begins at its start: a tombstone need not outlive what it is for.
    "delete_retention_ms": "60000",
}
# What users are promised: that late is a delayed record at most, on a machine that keeps up.
JITTER_MS = 500
LOAD_RECORDS_MAX = 2_000  # Handed over in one batch.
LOAD_BYTES_MAX = 512 * 2**10  # The same, unless one record is larger.
READ_AT_ONCE = 16  # Payloads read back in one step, which takes about a millisecond.
CARRIERS_MAX = 100  # Partitions that are delivered to at the same time.
READY_WAIT_MS = 5  # Between looks at a shard that is loading.


class DeferredShards:
    def __init__(
        self, catalog: Catalog, hub: Hub, topics: Topics, road: Road, *, config: Config
    ) -> None:
        """`topics` creates the topic on behalf of the broker: its gate must admit it."""
        self._catalog = catalog
        self._clock = road.clock
        self._road = road
        self._alarms: Alarms[None] = Alarms()
        self._carrying: set[tuple[DeferredShard, int]] = set()
        books = Books(DEFERRED_TOPIC, config.deferred_partitions, DEFERRED_SETTINGS)
        self._shards = Shards(books, catalog, hub, topics, self._begin, config=config)

    # -- who keeps them --------------------------------------------------------------------------

    def find_now(self, topic: str) -> DeferredShard:
        """The shard for the delayed records of a topic, if it is here and has loaded."""
        return self._shards.find_now(topic)

    def is_ready(self, topic: str) -> bool:
        try:
            self._shards.find_now(topic)
        except RequestError:
            return False
        return True

    def is_needed(self, topic: str, due_ms: Collection[int], header: Header) -> bool:
        """Whether a batch with such delays cannot be taken without the books.

        What is due by now is written at once. But if its producer numbers its records, it may be
        in the books already, from before a crash, when it was not due yet.
        """
        if not due_ms:
            return False
        if max(due_ms) > self._clock.now_ms():
            return True
        return header.has_producer and self._exists()

    async def ready(self, topic: str) -> None:
        """Have the shard of a topic loaded, created if need be; raises why it never will be."""
        while True:
            try:
                await self._shards.find(topic)
                return
            except CoordinatorLoading:
                await asyncio.sleep(READY_WAIT_MS / 1000)

    async def known(self, topic: str) -> None:
        """The same, but what does not exist need not be created."""
        if self._exists():
            await self.ready(topic)

    def message_ids(self, topic_id: UUID) -> Iterator[tuple[bytes, int]]:
        """The ids of a topic's delayed records, and when they arrived."""
        for shard in self._shards:
            yield from shard.message_ids(topic_id)

    # -- time ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, watch the clock and deliver until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._shards.adopt()
                self._shards.load_some()
                has_more = self._dispatch(group)
                is_busy = has_more or self._shards.is_loading
                idle_ms = min(ADOPT_INTERVAL_MS, self._idle_ms())
                await self._alarms.wait(ms_max=0 if is_busy else idle_ms)

    def _idle_ms(self) -> int:
        """How long nothing is due. A wall clock that steps is noticed at the next look."""
        nexts = [shard.pending.next_due_ms for shard in self._shards if shard.is_loaded]
        now_ms = self._clock.now_ms()
        left_ms = [due_ms - now_ms for due_ms in nexts if due_ms is not None]
        return max(1, min(left_ms, default=ADOPT_INTERVAL_MS))

    def _dispatch(self, group: asyncio.TaskGroup) -> bool:
        """Let somebody deliver what is due; say whether more is due than was looked at."""
        has_more = False
        for shard in self._shards:
            if not shard.is_loaded:
                continue
            has_more |= shard.take_due(self._clock.now_ms())
            for place in shard.waiting:
                if (shard, place) not in self._carrying and len(self._carrying) < CARRIERS_MAX:
                    self._carrying.add((shard, place))
                    group.create_task(self._carry_all(shard, place))
        return has_more

    # -- delivering ------------------------------------------------------------------------------

    async def _carry_all(self, shard: DeferredShard, place: int) -> None:
        backoff = Backoff()
        try:
            while not shard.is_gone:
                load = shard.take_load(place, count_max=LOAD_RECORDS_MAX)
                if load is None:
                    return
                if await self._carry(shard, place, load):
                    backoff.reset()
                else:
                    await backoff.wait()
        except StorageError as problem:
            shard.fail(problem)
        finally:
            self._carrying.discard((shard, place))
            self._alarms.wake()

    async def _carry(self, shard: DeferredShard, place: int, load: Load) -> bool:
        """Deliver a load; say whether it is done, or is to be tried again."""
        numbers, records = await self._read(shard, place, load)
        ids, done = [encode_key(number) for number in numbers], shard.done(numbers)
        try:
            try:
                await shard.courier.carry(shard.targets[place], ids, records, done=done)
            except UnknownTopic:
                log.info("dropped delayed=%d of a deleted topic", len(numbers))
                shard.ledger.write(done)
        except RequestError as problem:
            log.warning("not delivered log=%s problem=%s", shard.targets[place], problem)
            shard.keep_begun(place, numbers)
            return False
        return True

    async def _read(
        self, shard: DeferredShard, place: int, load: Load
    ) -> tuple[list[Offset], list[Record]]:
        """Read payloads back, as many as make a batch; the others come next."""
        size_max = self._size_max(shard.targets[place])
        records: list[Record] = []
        size = 0
        for at in range(0, len(load.numbers), READ_AT_ONCE):
            values = shard.read(load.numbers[at : at + READ_AT_ONCE])
            for number in load.numbers[at : at + READ_AT_ONCE]:
                size += len(values[number])
                if size > size_max and records and not load.is_begun:
                    shard.put_back(place, load.numbers[len(records) :])
                    return load.numbers[: len(records)], records
                records.append(_delivered(values[number]))
            await asyncio.sleep(0)
        return load.numbers, records

    def _size_max(self, target: LogId) -> int:
        """How much goes into one batch: no more than the target may have in a file."""
        replica = self._road.hub.replicas.get(target)
        if replica is None:
            return LOAD_BYTES_MAX
        return min(LOAD_BYTES_MAX, replica.log.records.settings.segment_bytes - BATCH_BYTES_SPARE)

    def _exists(self) -> bool:
        try:
            self._catalog.find(DEFERRED_TOPIC)
        except UnknownTopic:
            return False
        return True

    def _begin(self, replica: Replica) -> DeferredShard:
        self._alarms.wake()
        return DeferredShard(replica, self._road, self._alarms.wake)


def _delivered(value: bytes) -> Record:
    slip, payload = decode_slip(value), decode_payload(value)
    assert slip is not None
    return Record(0, slip.due_ms, payload.key, payload.value, payload.headers)
