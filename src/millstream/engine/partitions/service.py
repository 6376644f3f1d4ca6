"""Appends to partitions with acks, reads them with long poll, and looks offsets up.

Owns the checks of every request for a partition: rights, leader, epoch. The log, its leadership and
the waits for it are in `replication`. `append` does its ordered part before it returns, so that two
appends of one connection keep their order, whichever is awaited first.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, assert_never

from millstream.codec.batch import TRANSACTIONAL, read_header
from millstream.codec.markers import Marker
from millstream.config import Config
from millstream.control.catalog import Topic
from millstream.cooperative import one_by_one
from millstream.engine.controller import Controller
from millstream.engine.filters.filter import Filter
from millstream.engine.gate import Gate, Operation, topic_resource, transaction_resource
from millstream.engine.partitions.admission import admit_batch
from millstream.engine.partitions.leaders import Leaders
from millstream.engine.partitions.long_poll import LongPoll
from millstream.engine.partitions.markers import write_marker
from millstream.engine.partitions.slices import (
    ANY_EPOCH,
    AtMaxTimestamp,
    AtTime,
    Earliest,
    LastRecords,
    Latest,
    OffsetAndTimestamp,
    Place,
    Slice,
    Want,
    check_epoch,
    refuse_read,
    visible_end,
)
from millstream.engine.produce.pipeline import ProducePipeline
from millstream.engine.produce.split import IncomingBatch
from millstream.engine.produce.unpacking import NotSmall, Unpacking
from millstream.errors import (
    Denied,
    InternalTopic,
    NoSpace,
    NotEnoughReplicas,
    OffsetOutOfRange,
    ReadPending,
    RequestError,
    StorageError,
    UnknownTopic,
)
from millstream.metrics import Metrics
from millstream.model import (
    CONTROL_LOG,
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
    Session,
    TopicPartition,
)
from millstream.names import INTERNAL_TOPICS
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica
from millstream.replication.space import refusals
from millstream.storage.log.log import Log, LogHealth
from millstream.storage.log.producers import ProducerView
from millstream.storage.log.time_lookup import Steps

# If a sync takes longer, an offset lookup answers with the committed end.
CATCH_UP_S_MAX = 1.0
# Between two attempts of an offset lookup in a segment whose index is being built again.
REBUILT_WAIT_S = 0.05


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


class StorageProblem(NamedTuple):
    target: TopicPartition
    is_disk_full: bool
    is_transient: bool
    reason: str


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
        pipeline: ProducePipeline,
        unpacking: Unpacking,
    ) -> None:
        self.unpacking = unpacking  # That of readers.
        self._gate = gate
        self._controller = controller
        self._hub = hub
        self._pipeline = pipeline
        self._limits = config.limits
        self._clock = clock
        self._leaders = Leaders(controller.state.catalog, hub)
        self._long_poll = LongPoll(
            controller.state.catalog,
            hub,
            self._leaders,
            unpacking,
            limits=config.limits,
            clock=clock,
            metrics=metrics,
        )

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
        an idempotent producer sends the same batch again and gets the first offset. A batch in
        a transaction needs its id; with `joins` the partition is added to the transaction first.
        """
        self._gate.admit(session, Operation.APPEND, topic_resource(target.topic))
        if target.topic in INTERNAL_TOPICS:
            raise InternalTopic(target.topic)
        replica = self._leaders.find_writable(target)
        settings = replica.log.settings
        if acks is Acks.ALL and settings.min_insync_replicas > 1:
            _check_replicas(target, replica, settings.min_insync_replicas)
        now_ms, bytes_max = self._clock.now_ms(), self._limits.batch_decompressed_bytes_max
        admit = None
        try:
            header, data = admit_batch(
                data, settings, now_ms=now_ms, decompressed_bytes_max=bytes_max, is_on_loop=True
            )
        except NotSmall:
            header = read_header(data)
            admit = partial(
                admit_batch, data, settings, now_ms=now_ms, decompressed_bytes_max=bytes_max
            )
        if header.attributes & TRANSACTIONAL:
            if transactional_id is None:
                raise Denied(session.principal, Operation.TRANSACT.value, transaction_resource(""))
            self._gate.admit(session, Operation.TRANSACT, transaction_resource(transactional_id))
        incoming = IncomingBatch(replica, target, data, header, acks, transactional_id, joins)
        return self._pipeline.append(incoming, admit=admit)

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
            self._leaders.find_writable(target), marker, now_ms=now_ms, must_be_newer=must_be_newer
        )

    def producers(self, session: Session, target: TopicPartition) -> list[ProducerView]:
        """The idempotent and transactional producers of a partition."""
        self._gate.admit(session, Operation.READ, topic_resource(target.topic))
        return self._leaders.find(target).log.producers.describe()

    async def read(
        self,
        session: Session,
        wants: Sequence[Want],
        *,
        min_bytes: int = 0,
        bytes_max: int | None = None,
        deadline: float | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        filter: Filter | None = None,  # noqa: A002 It is what readers call it.
    ) -> list[Slice]:
        """Return a slice for each want, waiting until `deadline` (of the loop's clock) for
        `min_bytes`. An error in any of them answers at once; it stands in its slice.

        Through a view, with a `filter` or past a time to live only the records that pass are in
        the slices. A slice may hold no record and still move the reader on.
        """
        return await self._long_poll.read(
            wants,
            self._denied(session, wants),
            min_bytes=min_bytes,
            bytes_max=bytes_max,
            deadline=deadline,
            isolation=isolation,
            reader_filter=filter,
        )

    async def find(
        self,
        session: Session,
        target: TopicPartition,
        place: Place,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        leader_epoch: int = ANY_EPOCH,
    ) -> OffsetAndTimestamp | None:
        """Look an offset up; None where no record answers the question.

        Waits for the commit of all that is written by now: a producer with `acks=1` finds its
        records.
        """
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(target.topic))
        replica = self._leaders.find_current(target)
        check_epoch(target, leader_epoch, replica)
        await _catch_up(replica)
        log, end = replica.log, visible_end(replica, isolation)
        try:
            position = await self._place_in(log, place, end)
        except StorageError as problem:
            raise refuse_read(replica, target, problem) from problem
        if position is None:
            return None
        epoch = replica.consensus_log.epoch_at(position[0])
        return OffsetAndTimestamp(position[0], position[1], ANY_EPOCH if epoch is None else epoch)

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
        replica = self._leaders.find(target)
        check_epoch(target, leader_epoch, replica)
        if epoch > replica.core.epoch:
            return None
        return replica.consensus_log.epoch_end(epoch)

    def delete_records(
        self, session: Session, target: TopicPartition, before: Offset | None = None
    ) -> Offset:
        """Move the log start to `before` (None: the high watermark); return the log start."""
        self._gate.admit(session, Operation.DELETE_RECORDS, topic_resource(target.topic))
        self._controller.state.catalog.find(target.topic).check_writable()
        replica = self._leaders.find_current(target)
        offset = replica.high_watermark if before is None else before
        if not 0 <= offset <= replica.high_watermark:
            start = replica.log.start_offset
            raise OffsetOutOfRange(target, offset, start, replica.high_watermark)
        replica.advance_start(offset)
        return replica.log.start_offset

    def leadership(self, session: Session, topic: Topic) -> list[Leadership]:
        """The leader of each partition of a topic, as far as this node knows."""
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(topic.name))
        return [
            self._leadership(topic.log(partition), replicas)
            for partition, replicas in enumerate(topic.placement)
        ]

    def health(self, session: Session, target: TopicPartition) -> PartitionHealth:
        """Figures of the replica here, leader or not."""
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(target.topic))
        replica = self._hub.find(self._leaders.log_id(target))
        return PartitionHealth(
            replica.log.health(),
            replica.high_watermark,
            replica.last_stable_offset,
            replica.leader,
            replica.core.epoch,
        )

    def storage_problems(self, session: Session) -> list[StorageProblem]:
        """The partitions here whose storage refuses, for the moment or for good."""
        self._gate.admit(session, Operation.DESCRIBE, "cluster")
        catalog, problems = self._controller.state.catalog, []
        for log_id, problem in refusals(self._hub.replicas, self._hub.damaged).items():
            topic = "(control log)"
            if log_id != CONTROL_LOG:
                try:
                    topic = catalog.find_id(log_id.topic_id).name
                except UnknownTopic:
                    continue
            problems.append(
                StorageProblem(
                    TopicPartition(topic, log_id.partition),
                    isinstance(problem, NoSpace),
                    problem.is_transient,
                    str(problem),
                )
            )
        return sorted(problems)

    # -- parts -----------------------------------------------------------------------------

    async def _place_in(self, log: Log, place: Place, end: Offset) -> tuple[Offset, int] | None:
        while True:
            try:
                match place:
                    case Earliest():
                        return log.start_offset, -1
                    case Latest():
                        return end, -1
                    case AtTime(timestamp_ms):
                        steps = log.offset_for_time(timestamp_ms, end_offset=end)
                        return await self._searched(steps)
                    case AtMaxTimestamp():
                        return await self._searched(log.offset_of_max_timestamp(end_offset=end))
                    case LastRecords(count):
                        return await one_by_one(log.tail(count, end_offset=end)), -1
                    case _:
                        assert_never(place)
            except ReadPending:
                await asyncio.sleep(REBUILT_WAIT_S)

    async def _searched(self, steps: Steps) -> tuple[Offset, int] | None:
        """Take the steps of a search; batches are read and unpacked on threads."""
        while True:
            try:
                search = next(steps)
            except StopIteration as end:
                position: tuple[Offset, int] | None = end.value
                return position
            if search is None:
                await asyncio.sleep(0)
            else:
                await self.unpacking.run(search.run, packed_bytes=search.size)

    def _leadership(self, log_id: LogId, replicas: Sequence[NodeId]) -> Leadership:
        try:
            replica = self._hub.find(log_id)
        except RequestError:
            return Leadership(None, NO_EPOCH, replicas)
        return Leadership(replica.leader, replica.core.epoch, replicas)

    def _denied(self, session: Session, wants: Sequence[Want]) -> dict[str, Denied]:
        """The topics that the session may not read, with the refusal."""
        denied: dict[str, Denied] = {}
        asked: set[str] = set()
        for want in wants:
            topic = want.target.topic
            if topic in asked:
                continue
            asked.add(topic)
            try:
                self._gate.admit(session, Operation.READ, topic_resource(topic))
            except Denied as refusal:
                denied[topic] = refusal
        return denied


async def _catch_up(replica: Replica) -> None:
    end_offset = replica.log.end_offset
    if end_offset > replica.high_watermark:
        with suppress(TimeoutError):  # Then the lookup answers with the committed end.
            async with asyncio.timeout(CATCH_UP_S_MAX):
                await replica.committed(end_offset, None)


def _check_replicas(target: TopicPartition, replica: Replica, count_min: int) -> None:
    if replica.in_step_count < count_min:
        raise NotEnoughReplicas(
            f"{target} has {replica.in_step_count} replicas in step, "
            f"its min_insync_replicas is {count_min}"
        )
