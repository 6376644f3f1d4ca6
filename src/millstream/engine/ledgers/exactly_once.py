"""Records on their way from a ledger of ours into a partition, each exactly once.

Owns the lanes of one shard (see `control.lanes`) and the way along them: the intent is committed to
the shard's own ledger, then the records are appended with the producer id and the sequences that it
names, then its end is written, together with whatever the shard itself wants to remember of it.
After a crash the log of the partition knows which of these sequences it has; the rest is carried
out again.

How a shard uses it: make one `Courier(self.ledger, road)` after `super().__init__`; pass every
record of `_apply` to `apply` first, and skip those it takes. What is wanted there now goes batch by
batch: once loaded, call `carry` for each of `unfinished` with the same ids and records again,
before anything else goes there.

    offset = await courier.carry(target, ids, records, done=[Entry(key, None), ...])

What is wanted at a time that is known can be intended before it, so that nothing is left to do then
but to append. One task for each target does that: `enter`, and then `plan` and `append` in turns.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from millstream.codec.batch import Header, read_header, stamp_time
from millstream.codec.compression import Codec
from millstream.codec.records import Record, build
from millstream.control.catalog import Catalog
from millstream.engine.ledgers.ledger import Entry, Ledger
from millstream.engine.ledgers.shards import BROKER
from millstream.engine.partitions.admission import CODECS, compression_level
from millstream.engine.producer_ids import ProducerIds
from millstream.engine.runtime.backoff import Backoff
from millstream.errors import (
    NotLeader,
    OutOfOrderSequence,
    Overloaded,
    RequestError,
    StorageUnavailable,
    UnknownTopic,
)
from millstream.internal_topics.outbound_sequences import (
    Lane,
    decode_key,
    decode_lane,
    encode_key,
    encode_lane,
)
from millstream.model import Appended, LogId, Offset
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica
from millstream.settings import TimestampType

log = logging.getLogger(__name__)

PRODUCER_EPOCH = 0

# Told of every batch that was appended, and where.
Arrived = Callable[[Replica, Sequence[Record], Offset], None]


class Road(NamedTuple):
    """What all couriers of a node share. `producer_ids` must admit the broker."""

    catalog: Catalog
    hub: Hub
    producer_ids: ProducerIds
    clock: Clock
    arrived: Arrived


class Courier:
    def __init__(
        self,
        ledger: Ledger[None],
        road: Road,
        *,
        check_id: Callable[[bytes], object] | None = None,
    ) -> None:
        """`check_id` raises one of `UNREADABLE` for an id that cannot be carried."""
        self._ledger = ledger
        self._road = road
        self._check_id = check_id
        self._lanes: dict[LogId, Lane] = {}
        self._written: set[LogId] = set()  # Lanes known better here than by what is committed.
        self._turns: dict[LogId, asyncio.Future[None]] = {}  # The last of those who take turns.

    def apply(self, record: Record) -> bool:
        """Take a committed record of the ledger; say whether it was about a lane.

        One that cannot be read changes nothing and raises one of `UNREADABLE`.
        """
        target = decode_key(record.key)
        if target is None:
            return False
        if target in self._written:
            return True
        if record.value is None:
            self._lanes.pop(target, None)
            return True
        lane = decode_lane(record.value)
        if self._check_id is not None:
            for record_id in lane.ids:
                self._check_id(record_id)
        self._lanes[target] = lane
        return True

    @property
    def unfinished(self) -> Mapping[LogId, tuple[bytes, ...]]:
        """The intents whose end is not known, by target: to be carried again, first of all."""
        return {target: lane.ids for target, lane in self._lanes.items() if lane.ids}

    async def carry(
        self,
        target: LogId,
        ids: Sequence[bytes],
        records: Sequence[Record],
        *,
        done: Sequence[Entry] = (),
    ) -> Offset:
        """Append `records`, of which each has an id, as one batch; return where it begins.

        Their own offsets do not matter. `done` is written to the ledger in one batch with the end
        of the intent. One batch at a time goes to a target, in the order of the calls. Trouble
        there is waited out for as long as it takes. Raises `UnknownTopic` once the target is
        deleted, with nothing of `done` written, or what the ledger refuses: then call again with
        the same ids. `Overloaded` means that another intent is unfinished there.
        """
        assert ids
        assert len(ids) == len(records)
        turn = await self._turn(target)
        try:
            lane = await self._intend(target, tuple(ids))
            offset = await self._deliver(target, lane, records)
            ended = self._lanes[target].ended()
            self._write(target, ended, done)
            return offset
        finally:
            turn.set_result(None)
            if self._turns.get(target) is turn:
                del self._turns[target]

    # -- planned ahead ---------------------------------------------------------------------------

    async def enter(self, target: LogId) -> tuple[bytes, ...]:
        """Have a lane there; return the ids that are on it already, begun or only intended."""
        return (await self._lane(target)).ids

    def begun_count(self, target: LogId) -> int:
        """How many of the ids on the lane are in the partition's log, committed or not.

        Raises `UnknownTopic` once it is deleted, `OutOfOrderSequence` if its log has lost what it
        had, see `renew`, or why it cannot be asked now.
        """
        lane, replica = self._lanes[target], self.replica(target)
        if replica.failure is not None:
            raise StorageUnavailable(str(replica.failure))
        if not (replica.is_leader and replica.is_settled):
            raise NotLeader(target, replica.leader)  # Its log may have more or less than counts.
        producers = replica.log.records.producers
        sequence = producers.next_sequence(lane.producer_id, PRODUCER_EPOCH)
        if sequence is None:
            return 0
        count = lane.begun_count(sequence)
        if count is None:
            raise OutOfOrderSequence(lane.producer_id, sequence, lane.base_sequence)
        return count

    def plan(
        self,
        target: LogId,
        ids: Sequence[bytes],
        *,
        ended_count: int,
        kept_count: int,
        done: Sequence[Entry] = (),
    ) -> Offset:
        """Write which ids come behind the first `kept_count` of the lane; return where that ends.

        Those that are begun must be kept. The first `ended_count` leave the lane: they are
        committed in the partition. `done` is written in one batch with that. Nothing may be
        appended that is not in its place in a plan which is committed, and in all since.
        """
        assert ended_count <= self.begun_count(target) <= kept_count
        lane = self._lanes[target].planned(ids, ended_count=ended_count, kept_count=kept_count)
        return self._write(target, lane, done)

    def append(self, target: LogId, records: Sequence[Record]) -> Appended:
        """Append those that come next, as one batch; nobody waits for them to be committed."""
        count, lane, replica = self.begun_count(target), self._lanes[target], self.replica(target)
        assert count + len(records) <= len(lane.ids)
        data, header = self._batch(replica, lane.producer_id, lane.sequence(count), records)
        appended = replica.append(data, header)
        self._road.arrived(replica, records, appended.base_offset)
        return appended

    async def renew(self, target: LogId) -> None:
        """Begin with all that is on the lane again, by another producer, once that is committed.

        For a log that has lost earlier records: the same by somebody else are no second ones.
        """
        lane = self._lanes[target].renewed(await self._road.producer_ids.next(BROKER))
        await self._ledger.outcome(self._write(target, lane))

    def replica(self, target: LogId) -> Replica:
        """The partition here; `UnknownTopic` only if its topic is deleted."""
        self._road.catalog.find_id(target.topic_id)
        replica = self._road.hub.replicas.get(target)
        if replica is None and target not in self._road.hub.damaged:
            raise NotLeader(target, None)
        return self._road.hub.find(target)

    def forget(self, target: LogId, done: Sequence[Entry] = ()) -> None:
        """The target is deleted: drop its lane, and write `done` with that."""
        self._ledger.write([*done, Entry(encode_key(target), None)])
        self._written.add(target)
        self._lanes.pop(target, None)

    # -- parts -----------------------------------------------------------------------------------

    async def _lane(self, target: LogId) -> Lane:
        lane = self._lanes.get(target)
        if lane is None:
            lane = Lane(await self._road.producer_ids.next(BROKER))
            self._lanes[target] = lane
        return lane

    async def _turn(self, target: LogId) -> "asyncio.Future[None]":
        """Wait for all who came before; whoever gets the future resolves it when it is done."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        previous = self._turns.get(target)
        self._turns[target] = mine
        if previous is not None:
            try:
                await asyncio.shield(previous)
            except asyncio.CancelledError:
                # Who waits behind this one still has to wait for the one before it.
                previous.add_done_callback(lambda _: mine.set_result(None))
                raise
        return mine

    async def _intend(self, target: LogId, ids: tuple[bytes, ...]) -> Lane:
        """Have it committed what is carried there, by whom and with which sequence."""
        lane = await self._lane(target)
        if lane.ids:
            if lane.ids != ids:
                raise Overloaded(f"something else is on its way to {target} and unfinished")
        else:
            lane = lane.begun(ids)
        # Also if it is there: perhaps only the waiting for its commit failed.
        await self._ledger.outcome(self._write(target, lane))
        return lane

    async def _deliver(self, target: LogId, lane: Lane, records: Sequence[Record]) -> Offset:
        backoff = Backoff()
        while True:
            try:
                replica = self.replica(target)
                data, header = self._batch(replica, lane.producer_id, lane.base_sequence, records)
                appended = replica.append(data, header)
                await replica.committed(appended.end_offset, None)
                self._road.arrived(replica, records, appended.base_offset)
                return appended.base_offset
            except OutOfOrderSequence as problem:
                # It does not have this batch, or it would know it: only one is ever under way.
                log.warning("took another producer id target=%s problem=%s", target, problem)
                await self.renew(target)
                lane = self._lanes[target]
            except UnknownTopic:
                self.forget(target)
                raise
            except RequestError as problem:
                log.info("not delivered yet target=%s problem=%s", target, problem)
                await backoff.wait()

    def _batch(
        self, replica: Replica, producer_id: int, base_sequence: int, records: Sequence[Record]
    ) -> tuple[bytes, Header]:
        settings = replica.log.records.settings
        data = build(
            [record._replace(offset=at) for at, record in enumerate(records)],
            codec=CODECS.get(settings.compression_type, Codec.NONE),
            level=compression_level(settings),
            producer_id=producer_id,
            producer_epoch=PRODUCER_EPOCH,
            base_sequence=base_sequence,
        )
        header = read_header(data)
        if settings.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            header, data = stamp_time(data, header, self._road.clock.now_ms())
        return data, header

    def _write(self, target: LogId, lane: Lane, others: Sequence[Entry] = ()) -> Offset:
        """Write the lane last, so that the outcome of the batch is that of the intent."""
        end_offset = self._ledger.write([*others, Entry(encode_key(target), encode_lane(lane))])
        self._written.add(target)
        self._lanes[target] = lane
        return end_offset
