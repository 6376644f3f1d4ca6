"""Writes records from a shard's ledger into a partition, each record exactly once.

Owns the outbound sequences of one shard (see `internal_topics.outbound_sequences`). A write has
three steps: the intent is committed to the shard's own ledger; the records are appended with the
producer id and the sequences that the intent names; the end of the intent is written to the ledger,
together with the entries that the shard adds. After a crash the partition's log knows which of
these sequences it has, and the others are written again.

Use: a shard makes one `ExactlyOnceWriter(self.ledger, context)` after `super().__init__`, passes
every record of `_apply` to `apply` first, and skips those that `apply` takes. Records that are
wanted now go batch by batch. Once the shard is loaded it calls `write` for each of `unfinished`,
with the same ids and records, before any other write to that partition.

    offset = await writer.write(target, ids, records, done=[Entry(key, None), ...])

Records that are wanted at a known time can be planned before it, so that only the append is left at
that time. One task for each target does that: `open`, then `plan` and `append` in turns.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from millstream.codec.batch import Header, read_header, stamp_time
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.control.catalog import Catalog
from millstream.engine.ledgers.ledger import Entry, Ledger
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
    OutboundSequence,
    decode_key,
    decode_sequence,
    encode_key,
    encode_sequence,
)
from millstream.model import SYSTEM_SESSION, Appended, LogId, NodeId, Offset
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica
from millstream.settings import TimestampType

_log = logging.getLogger(__name__)

PRODUCER_EPOCH = 0

# Called for every batch that was appended, with the offset of its first record.
Arrived = Callable[[Replica, Sequence[Record], Offset], None]


class OutboundBatch(NamedTuple):
    """Records for one log, with the producer id and the first sequence that they get there."""

    target: LogId
    producer_id: int
    base_sequence: int
    records: Sequence[Record]


class RemoteLogs:
    """Logs that other nodes lead. `append` is None before the first link to one; it returns the
    offset of the first record once all are committed, or raises the leader's refusal."""

    def __init__(self) -> None:
        self.append: Callable[[NodeId, OutboundBatch], Awaitable[Offset]] | None = None
        # The sequence that a log expects next of a producer id, all before it committed; None: the
        # log does not know the producer.
        self.next_sequence: Callable[[NodeId, LogId, int], Awaitable[int | None]] | None = None


class WriterContext(NamedTuple):
    """Shared by all writers of a node. The gate of `producer_ids` must admit the broker."""

    catalog: Catalog
    hub: Hub
    producer_ids: ProducerIds
    clock: Clock
    arrived: Arrived
    remote: RemoteLogs


class ExactlyOnceWriter:
    def __init__(
        self,
        ledger: Ledger[None],
        context: WriterContext,
        *,
        check_id: Callable[[bytes], object] | None = None,
    ) -> None:
        """`check_id` raises one of `UNREADABLE` for an id that the shard cannot read."""
        self._ledger = ledger
        self._context = context
        self._check_id = check_id
        self._outbound: dict[LogId, OutboundSequence] = {}
        self._written: set[LogId] = set()  # Targets whose state here is newer than the ledger's.
        self._turns: dict[LogId, asyncio.Future[None]] = {}  # The last write of each queue.

    def apply(self, record: Record) -> bool:
        """Fold a committed record of the ledger; return whether it was an outbound sequence.

        A record that cannot be read changes nothing and raises one of `UNREADABLE`.
        """
        target = decode_key(record.key)
        if target is None:
            return False
        if target in self._written:
            return True
        if record.value is None:
            self._outbound.pop(target, None)
            return True
        outbound = decode_sequence(record.value)
        if self._check_id is not None:
            for record_id in outbound.ids:
                self._check_id(record_id)
        self._outbound[target] = outbound
        return True

    @property
    def unfinished(self) -> Mapping[LogId, tuple[bytes, ...]]:
        """The ids of each intent without an end, by target: they must be written again first."""
        return {target: outbound.ids for target, outbound in self._outbound.items() if outbound.ids}

    async def write(
        self,
        target: LogId,
        ids: Sequence[bytes],
        records: Sequence[Record],
        *,
        done: Sequence[Entry] = (),
    ) -> Offset:
        """Append `records`, one for each id, as one batch; return the offset of the first.

        The records' own offsets are ignored. `done` is written to the ledger in one batch with the
        end of the intent. One batch at a time goes to a target, in the order of the calls. A failed
        append is retried without a limit of time. Raises `UnknownTopic` once the target is deleted,
        with nothing of `done` written, or the ledger's refusal: then call again with the same ids.
        `Overloaded` means that another intent is unfinished there.
        """
        assert ids
        assert len(ids) == len(records)
        turn = await self._turn(target)
        try:
            outbound = await self._record_intent(target, tuple(ids))
            offset = await self._append_and_commit(target, outbound, records)
            ended = self._outbound[target].ended()
            self._record(target, ended, done)
            return offset
        finally:
            turn.set_result(None)
            if self._turns.get(target) is turn:
                del self._turns[target]

    # -- planned ahead ---------------------------------------------------------------------------

    async def open(self, target: LogId) -> tuple[bytes, ...]:
        """Make sure there is an outbound sequence; return its ids, appended or only planned.

        If the log of the target rests, it is opened and led first.
        """
        await self._context.hub.awake([target])
        return (await self._outbound_to(target)).ids

    def begun_count(self, target: LogId) -> int:
        """How many ids of the outbound sequence are in the partition's log, committed or not.

        Raises `UnknownTopic` once the topic is deleted, `OutOfOrderSequence` if the log has lost
        records (see `replace_producer`), or the reason why the replica cannot tell now.
        """
        outbound, replica = self._outbound[target], self.replica(target)
        if replica.failure is not None:
            raise StorageUnavailable(str(replica.failure))
        if not (replica.is_leader and replica.is_ready):
            raise NotLeader(target, replica.leader)  # Its log may still lose or gain records.
        producers = replica.log.producers
        sequence = producers.next_sequence(outbound.producer_id, PRODUCER_EPOCH)
        if sequence is None:
            return 0
        count = outbound.begun_count(sequence)
        if count is None:
            raise OutOfOrderSequence(outbound.producer_id, sequence, outbound.base_sequence)
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
        """Write `ids` behind the first `kept_count` ids; return the end offset of the ledger.

        Ids that are appended must be kept. The first `ended_count` ids leave the sequence: they are
        committed in the partition. `done` is written in one batch with the plan.

        Invariant: a record is appended only at its place in a plan that is committed, and in every
        plan since.
        """
        assert ended_count <= self.begun_count(target) <= kept_count
        outbound = self._outbound[target].planned(
            ids, ended_count=ended_count, kept_count=kept_count
        )
        return self._record(target, outbound, done)

    def append(self, target: LogId, records: Sequence[Record]) -> Appended:
        """Append the next records of the plan as one batch, without a wait for their commit."""
        count, outbound, replica = (
            self.begun_count(target),
            self._outbound[target],
            self.replica(target),
        )
        assert count + len(records) <= len(outbound.ids)
        batch = OutboundBatch(target, outbound.producer_id, outbound.sequence(count), records)
        appended = replica.append(*_encoded(replica, batch, self._context.clock))
        self._context.arrived(replica, records, appended.base_offset)
        return appended

    async def replace_producer(self, target: LogId) -> None:
        """Start all ids of the sequence again under a new producer id, once that is committed.

        For a log that has lost earlier records: under a new producer id the ids that it lacks are
        no duplicates.
        """
        outbound = self._outbound[target].with_producer(
            await self._context.producer_ids.next(SYSTEM_SESSION)
        )
        await self._ledger.outcome(self._record(target, outbound))

    def leader_elsewhere(self, target: LogId) -> NodeId | None:
        """The other node that leads a log; None if this one does, or none is known."""
        context = self._context
        here = context.hub.get(target)
        if context.remote.append is None or (here is not None and here.is_leader):
            return None
        if here is not None and here.failure is not None:
            return None
        return context.hub.leadership.of(target).leader

    async def committed_count(self, target: LogId) -> int:
        """How many ids of the outbound sequence are committed in the log, which any node may lead.

        Raises as `begun_count` does.
        """
        context, outbound = self._context, self._outbound[target]
        context.catalog.find_id(target.topic_id)  # Raises once the topic is deleted.
        leader, ask = self.leader_elsewhere(target), context.remote.next_sequence
        if leader is None or ask is None:
            sequence = await next_sequence(self.replica(target), outbound.producer_id, context)
        else:
            sequence = await ask(leader, target, outbound.producer_id)
        if sequence is None:
            return 0
        count = outbound.begun_count(sequence)
        if count is None:
            raise OutOfOrderSequence(outbound.producer_id, sequence, outbound.base_sequence)
        return count

    async def settle(self, target: LogId, count: int, done: Sequence[Entry]) -> None:
        """Commit that the first `count` ids are written, with `done`, and that no other is meant to
        be: those leave the sequence, too."""
        outbound = self._outbound[target].planned([], ended_count=count, kept_count=count)
        await self._ledger.outcome(self._record(target, outbound, done))

    def replica(self, target: LogId) -> Replica:
        """The replica here; raises `UnknownTopic` only if the topic is deleted."""
        self._context.catalog.find_id(target.topic_id)
        replica = self._context.hub.get(target)
        if replica is None and target not in self._context.hub.damaged:
            raise NotLeader(target, None)
        return self._context.hub.find(target)

    def forget(self, target: LogId, done: Sequence[Entry] = ()) -> None:
        """Drop the outbound sequence of a deleted target, and write `done` in the same batch."""
        self._ledger.write([*done, Entry(encode_key(target), None)])
        self._written.add(target)
        self._outbound.pop(target, None)

    # -- parts -----------------------------------------------------------------------------------

    async def _outbound_to(self, target: LogId) -> OutboundSequence:
        outbound = self._outbound.get(target)
        if outbound is None:
            outbound = OutboundSequence(await self._context.producer_ids.next(SYSTEM_SESSION))
            self._outbound[target] = outbound
        return outbound

    async def _turn(self, target: LogId) -> "asyncio.Future[None]":
        """Wait for all earlier writes; the caller resolves the returned future when it is done."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        previous = self._turns.get(target)
        self._turns[target] = mine
        if previous is not None:
            try:
                await asyncio.shield(previous)
            except asyncio.CancelledError:
                # The write behind this one still has to wait for the one before it.
                previous.add_done_callback(lambda _: mine.set_result(None))
                raise
        return mine

    async def _record_intent(self, target: LogId, ids: tuple[bytes, ...]) -> OutboundSequence:
        """Commit the intent: the ids, the producer id and the first sequence."""
        outbound = await self._outbound_to(target)
        if outbound.ids:
            if outbound.ids != ids:
                raise Overloaded(f"another write to {target} is unfinished")
        else:
            outbound = outbound.begun(ids)
        # Also if it is known here: perhaps only the wait for its commit failed.
        await self._ledger.outcome(self._record(target, outbound))
        return outbound

    async def _append_and_commit(
        self, target: LogId, outbound: OutboundSequence, records: Sequence[Record]
    ) -> Offset:
        backoff = Backoff()
        while True:
            batch = OutboundBatch(target, outbound.producer_id, outbound.base_sequence, records)
            try:
                return await self._append_there(batch)
            except OutOfOrderSequence as problem:
                # The log lacks this batch, or it would know it: only one is ever under way.
                _log.warning("took another producer id target=%s problem=%s", target, problem)
                await self.replace_producer(target)
                outbound = self._outbound[target]
            except UnknownTopic:
                self.forget(target)
                raise
            except RequestError as problem:
                _log.info("not delivered yet target=%s problem=%s", target, problem)
                await backoff.wait()

    async def _append_there(self, batch: OutboundBatch) -> Offset:
        """Append to the log where it is led; return the offset of the first record."""
        context, target = self._context, batch.target
        context.catalog.find_id(target.topic_id)  # Raises once the topic is deleted.
        await context.hub.awake([target])
        leader = self.leader_elsewhere(target)
        if context.remote.append is not None and leader is not None:
            return await context.remote.append(leader, batch)
        return await append_once(self.replica(target), batch, context)

    def _record(
        self, target: LogId, outbound: OutboundSequence, others: Sequence[Entry] = ()
    ) -> Offset:
        """Write the sequence as the last entry: then the batch's outcome is the intent's."""
        end_offset = self._ledger.write(
            [*others, Entry(encode_key(target), encode_sequence(outbound))]
        )
        self._written.add(target)
        self._outbound[target] = outbound
        return end_offset


async def append_once(replica: Replica, batch: OutboundBatch, context: WriterContext) -> Offset:
    """Append to a log that is led here, and wait for the commit; return the first offset."""
    appended = replica.append(*_encoded(replica, batch, context.clock))
    await replica.committed(appended.end_offset, None)
    context.arrived(replica, batch.records, appended.base_offset)
    return appended.base_offset


async def next_sequence(replica: Replica, producer_id: int, context: WriterContext) -> int | None:
    """The sequence that a log led here expects next; all before it is committed."""
    await context.hub.links.confirm(replica)
    await replica.committed(replica.log.end_offset, None)
    return replica.log.producers.next_sequence(producer_id, PRODUCER_EPOCH)


def _encoded(replica: Replica, batch: OutboundBatch, clock: Clock) -> tuple[bytes, Header]:
    settings = replica.log.settings
    data = encode_batch(
        [record._replace(offset=at) for at, record in enumerate(batch.records)],
        codec=CODECS.get(settings.compression_type, Codec.NONE),
        level=compression_level(settings),
        producer_id=batch.producer_id,
        producer_epoch=PRODUCER_EPOCH,
        base_sequence=batch.base_sequence,
    )
    header = read_header(data)
    if settings.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        header, data = stamp_time(data, header, clock.now_ms())
    return data, header
