"""Records in and out of partitions: append with acks, read with long poll, look up offsets.

Owns what a broker promises about one partition; the log, its leadership and its waiters are below.
`append` does its ordered part before it returns, so that two appends of one connection keep their
order whoever awaits them first.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, assert_never

from millstream.codec.batch import Header
from millstream.codec.records import Marker
from millstream.config import Config
from millstream.control.catalog import Topic
from millstream.control.transactions import Participant
from millstream.engine.admission import admit_batch
from millstream.engine.controller import Controller
from millstream.engine.gate import Gate, Operation, topic_resource, transaction_resource
from millstream.engine.markers import write_marker
from millstream.engine.reading import (
    ANY_EPOCH,
    AtMaxTimestamp,
    AtTime,
    Earliest,
    Found,
    LastRecords,
    Latest,
    Place,
    Slice,
    Want,
    check_epoch,
    read_slice,
    visible_end,
)
from millstream.engine.transaction_coordinators import TransactionCoordinators
from millstream.engine.transactional_writes import Batch, TransactionalWrites
from millstream.errors import (
    Denied,
    InternalTopic,
    NotEnoughReplicas,
    NotLeader,
    NotSettled,
    OffsetOutOfRange,
    RequestError,
)
from millstream.metrics import (
    APPENDED_BATCHES,
    APPENDED_BYTES,
    APPENDED_RECORDS,
    READ_BYTES,
    Metrics,
)
from millstream.model import (
    INTERNAL_TOPICS,
    NO_EPOCH,
    Acks,
    Appended,
    Buffer,
    Epoch,
    Isolation,
    LogId,
    NodeId,
    Offset,
    Position,
    Producer,
    Session,
    TopicPartition,
)
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica
from millstream.storage.log import LogHealth
from millstream.storage.producers import ProducerView

# A sync takes milliseconds; who asks for offsets while the disk is stuck is told what is committed.
CATCH_UP_S_MAX = 1.0


class Leadership(NamedTuple):
    leader: NodeId | None  # None during elections, and for a log that is damaged here.
    epoch: Epoch
    replicas: Sequence[NodeId]


class PartitionHealth(NamedTuple):
    log: LogHealth
    high_watermark: Offset
    last_stable_offset: Offset
    leader: int | None
    leader_epoch: Epoch


class Partitions:
    def __init__(
        self,
        gate: Gate,
        controller: Controller,
        hub: Hub,
        *,
        config: Config,
        clock: Clock,
        metrics: Metrics,
        transactions: TransactionCoordinators,
    ) -> None:
        self._gate = gate
        self._controller = controller
        self._hub = hub
        self._transactions = TransactionalWrites(
            transactions,
            clock,
            queued_max=config.limits.transaction_queued_batches_max,
            participants_max=config.limits.transaction_partitions_max,
        )
        self._limits = config.limits
        self._clock = clock
        self._metrics = metrics

    def append(
        self,
        session: Session,
        target: TopicPartition,
        data: Buffer,
        acks: Acks,
        *,
        transactional_id: str | None = None,
        joins: bool = False,
    ) -> asyncio.Future[Appended]:
        """Write one batch now; the awaitable is done when `acks` says so.

        Raises at once, with nothing written, or from the awaitable, with the outcome unknown: then
        an idempotent producer sends the same batch again and is told the first offset. A batch in
        a transaction needs its id; with `joins` the partition is added to the transaction first.
        """
        self._gate.admit(session, Operation.APPEND, topic_resource(target.topic))
        if target.topic in INTERNAL_TOPICS:
            raise InternalTopic(target.topic)
        replica = self._leading(target)
        settings = replica.log.records.settings
        if acks is Acks.ALL and settings.min_insync_replicas > 1:
            _check_replicas(target, replica, settings.min_insync_replicas)
        header, data = admit_batch(
            data,
            settings,
            now_ms=self._clock.now_ms(),
            decompressed_bytes_max=self._limits.batch_decompressed_bytes_max,
        )
        if not header.is_transactional:
            return self._write(replica, data, header, acks)
        if transactional_id is None:
            raise Denied(session.principal, Operation.TRANSACT.value, transaction_resource(""))
        self._gate.admit(session, Operation.TRANSACT, transaction_resource(transactional_id))
        batch = Batch(
            transactional_id,
            Producer(header.producer_id, header.producer_epoch),
            Participant(target.topic, target.partition, replica.id.topic_id),
            header.base_sequence,
            partial(self._write, replica, data, header, acks),
        )
        return self._transactions.append(batch, replica.log.records.producers, joins=joins)

    def write_marker(
        self,
        session: Session,
        target: TopicPartition,
        marker: Marker,
        *,
        must_be_newer: bool = False,
    ) -> Awaitable[Appended]:
        """End a producer's transaction in one partition, whatever its coordinator knows of it."""
        self._gate.admit(session, Operation.ALTER, "cluster")
        now_ms = self._clock.now_ms()
        return write_marker(
            self._leading(target), marker, now_ms=now_ms, must_be_newer=must_be_newer
        )

    def producers(self, session: Session, target: TopicPartition) -> list[ProducerView]:
        """Who writes to a partition with a producer id."""
        self._gate.admit(session, Operation.READ, topic_resource(target.topic))
        return self._leading(target).log.records.producers.describe()

    async def read(
        self,
        session: Session,
        wants: Sequence[Want],
        *,
        min_bytes: int = 0,
        bytes_max: int | None = None,
        deadline: float | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> list[Slice]:
        """Return a slice for each want, waiting until `deadline` (of the loop's clock) for
        `min_bytes`. An error in any of them answers at once; it stands in its slice.
        """
        denied = self._denied(session, wants)
        bound = self._limits.read_bytes_max
        bytes_max = bound if bytes_max is None else min(bytes_max, bound)
        loop = asyncio.get_running_loop()
        while True:
            slices = self._slices(wants, denied, bytes_max, isolation)
            size = sum(part.size for part in slices)
            left = -1.0 if deadline is None else deadline - loop.time()
            is_special = any(p.error or p.diverging for p in slices)
            if size >= min(min_bytes, bytes_max) or left <= 0 or is_special:
                self._metrics.add(READ_BYTES, size)
                return slices
            await self._hub.moved([self._log(want.target) for want in wants], left)

    async def find(
        self,
        session: Session,
        target: TopicPartition,
        place: Place,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        leader_epoch: int = ANY_EPOCH,
    ) -> Found | None:
        """Look an offset up; None where no record answers the question.

        Waits for the commit of what is written by now: whoever was told so by `acks=1` finds it.
        """
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(target.topic))
        replica = self._settled(target)
        check_epoch(target, leader_epoch, replica)
        await _catch_up(replica)
        records, end = replica.log.records, visible_end(replica, isolation)
        found: tuple[Offset, int] | None
        match place:
            case Earliest():
                found = records.start_offset, -1
            case Latest():
                found = end, -1
            case AtTime(timestamp_ms):
                found = records.offset_for_time(timestamp_ms, end_offset=end)
            case AtMaxTimestamp():
                found = records.offset_of_max_timestamp(end_offset=end)
            case LastRecords(count):
                found = records.tail(count, end_offset=end), -1
            case _:
                assert_never(place)
        if found is None:
            return None
        epoch = replica.log.epoch_at(found[0])
        return Found(found[0], found[1], ANY_EPOCH if epoch is None else epoch)

    def epoch_end(
        self,
        session: Session,
        target: TopicPartition,
        epoch: Epoch,
        *,
        leader_epoch: int = ANY_EPOCH,
    ) -> Position | None:
        """Where an epoch, or the newest one before it, ended; None if it is not known here."""
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(target.topic))
        replica = self._leading(target)
        check_epoch(target, leader_epoch, replica)
        if epoch > replica.core.epoch:
            return None
        return replica.log.epoch_end(epoch)

    def delete_records(
        self, session: Session, target: TopicPartition, before: Offset | None = None
    ) -> Offset:
        """Let the log start at `before` (None: the high watermark); return its start."""
        self._gate.admit(session, Operation.DELETE_RECORDS, topic_resource(target.topic))
        replica = self._settled(target)
        offset = replica.high_watermark if before is None else before
        if not 0 <= offset <= replica.high_watermark:
            start = replica.log.start_offset
            raise OffsetOutOfRange(target, offset, start, replica.high_watermark)
        replica.advance_start(offset)
        return replica.log.start_offset

    def leadership(self, session: Session, topic: Topic) -> list[Leadership]:
        """Who leads each partition of a topic, as far as this node knows."""
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(topic.name))
        return [
            self._leadership(topic.log(partition), replicas)
            for partition, replicas in enumerate(topic.placement)
        ]

    def health(self, session: Session, target: TopicPartition) -> PartitionHealth:
        """Figures of the replica here, leader or not."""
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(target.topic))
        replica = self._hub.find(self._log(target))
        return PartitionHealth(
            replica.log.records.health(),
            replica.high_watermark,
            replica.last_stable_offset,
            replica.leader,
            replica.core.epoch,
        )

    # -- parts -----------------------------------------------------------------------------

    def _write(
        self, replica: Replica, data: Buffer, header: Header, acks: Acks
    ) -> "asyncio.Future[Appended]":
        appended = replica.append(data, header)
        self._metrics.add(APPENDED_BATCHES)
        self._metrics.add(APPENDED_BYTES, header.size)
        self._metrics.add(APPENDED_RECORDS, header.count)
        # Before offset 0 everything is committed: what needs no waiting is done at once.
        return replica.committed(appended.end_offset if acks is Acks.ALL else 0, appended)

    def _leadership(self, log_id: LogId, replicas: Sequence[NodeId]) -> Leadership:
        try:
            replica = self._hub.find(log_id)
        except RequestError:
            return Leadership(None, NO_EPOCH, replicas)
        return Leadership(replica.leader, replica.core.epoch, replicas)

    def _log(self, target: TopicPartition) -> LogId:
        return self._controller.state.catalog.find(target.topic).log(target.partition)

    def _leading(self, target: TopicPartition) -> Replica:
        replica = self._hub.find(self._log(target))
        if not replica.is_leader and replica.failure is None:
            raise NotLeader(target, replica.leader)
        return replica

    def _settled(self, target: TopicPartition) -> Replica:
        """The leader, once it knows all that is committed. A failed one still serves readers."""
        replica = self._leading(target)
        if not replica.is_settled:
            raise NotSettled(target)
        return replica

    def _denied(self, session: Session, wants: Sequence[Want]) -> dict[str, Denied]:
        """The topics that the session may not read, with the refusal."""
        denied = {}
        for topic in {want.target.topic for want in wants}:
            try:
                self._gate.admit(session, Operation.READ, topic_resource(topic))
            except Denied as refusal:
                denied[topic] = refusal
        return denied

    def _slices(
        self,
        wants: Sequence[Want],
        denied: Mapping[str, Denied],
        bytes_max: int,
        isolation: Isolation,
    ) -> list[Slice]:
        slices = []
        has_data = False
        for want in wants:
            if want.target.topic in denied:
                slices.append(Slice(want.target, error=denied[want.target.topic]))
                continue
            try:
                part = read_slice(
                    self._settled(want.target),
                    want,
                    bytes_max=bytes_max,
                    isolation=isolation,
                    may_exceed=not has_data,
                )
            except RequestError as problem:
                part = Slice(want.target, error=problem)
            bytes_max = max(0, bytes_max - part.size)
            has_data = has_data or part.size > 0
            slices.append(part)
        return slices


async def _catch_up(replica: Replica) -> None:
    end_offset = replica.log.records.end_offset
    if end_offset > replica.high_watermark:
        with suppress(TimeoutError):  # Then the question is answered as of now.
            async with asyncio.timeout(CATCH_UP_S_MAX):
                await replica.committed(end_offset, None)


def _check_replicas(target: TopicPartition, replica: Replica, count_min: int) -> None:
    if replica.in_step_count < count_min:
        raise NotEnoughReplicas(
            f"{target} has {replica.in_step_count} replicas in step, "
            f"its min_insync_replicas is {count_min}"
        )
