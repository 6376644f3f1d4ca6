"""Appends to partitions with acks, reads them with long poll, and looks offsets up.

Owns the checks of every request for a partition: rights, leader, epoch. The log, its leadership and
the waits for it are in `replication`. `append` does its ordered part before it returns, so that two
appends of one connection keep their order, whichever is awaited first.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from millstream.codec.batch import TRANSACTIONAL, Header, read_header
from millstream.codec.markers import ControlKind, Marker
from millstream.config import Config
from millstream.control.catalog import Topic
from millstream.engine.controller import Controller
from millstream.engine.filters.filter import Filter
from millstream.engine.gate import CLUSTER, Gate, Operation, topic_resource, transaction_resource
from millstream.engine.partitions.admission import admit_batch
from millstream.engine.partitions.held_appends import HeldAppends
from millstream.engine.partitions.leaders import Leaders, Leadership
from millstream.engine.partitions.long_poll import FilterFigures, LongPoll
from millstream.engine.partitions.lookups import look_up
from millstream.engine.partitions.markers import write_marker
from millstream.engine.partitions.slices import (
    ANY_EPOCH,
    OffsetAndTimestamp,
    Place,
    Slice,
    Want,
    check_epoch,
)
from millstream.engine.produce.pipeline import ProducePipeline
from millstream.engine.produce.split import IncomingBatch
from millstream.engine.produce.unpacking import NotSmall, Unpacking
from millstream.errors import (
    Denied,
    InternalTopic,
    LeaderNotReady,
    NoSpace,
    NotEnoughReplicas,
    NotLeader,
    OffsetOutOfRange,
    RequestError,
    UnknownTopic,
)
from millstream.metrics import APPEND_FAILURES, APPEND_SECONDS, Histogram, Metrics
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
from millstream.names import AUDIT_TOPIC, CONTROL_LOG_NAME, SCHEMAS_TOPIC
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.peering.leadership import KnownLeader
from millstream.replication.replica import Replica
from millstream.replication.space import refusals
from millstream.storage.log.health import LogHealth
from millstream.storage.log.producers import ProducerView
from millstream.storage.log.segment import Segment

if TYPE_CHECKING:  # It calls this one.
    from millstream.engine.cluster.relay.remote_partitions import RemotePartitions

# Resting logs that one request for metadata opens.
AWAKENED_MAX = 1_000


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
        # Partitions that other nodes lead; None before the first link to one.
        self.remote: RemotePartitions | None = None
        self._gate = gate
        self._controller = controller
        self._hub = hub
        self._me = NodeId(config.node_id)
        self._pipeline = pipeline
        self._limits = config.limits
        self._own_topics = config.own_topics
        self._clock = clock
        self._metrics = metrics
        self._failures = metrics.counter(APPEND_FAILURES)
        self._seconds: dict[tuple[str, Acks], Histogram] = {}  # Of appends.
        self._held = HeldAppends(hub)
        self._leaders = Leaders(controller.state.catalog, hub, held=self._held.queues)
        self._long_poll = LongPoll(
            controller.state.catalog,
            hub,
            self._leaders,
            unpacking,
            limits=config.limits,
            clock=clock,
            metrics=metrics,
            gate=gate,
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
        header: Header | None = None,
    ) -> asyncio.Future[Appended]:
        """Write one batch now; the awaitable is done when `acks` says so.

        Raises at once, with nothing written, or from the awaitable, with the outcome unknown: then
        an idempotent producer sends the same batch again and gets the first offset. A batch in
        a transaction needs its id; with `joins` the partition is added to the transaction first.
        A batch that the broker encoded itself has its `header` with it, and is not verified.
        """
        began_s = self._metrics.elapsed_s()
        try:
            self._gate.admit(session, Operation.APPEND, topic_resource(target.topic))
            appending = self._append(session, target, data, acks, transactional_id, joins, header)
        except RequestError:
            self._failures.value += 1
            raise
        seconds = self._seconds.get((session.protocol, acks))
        if seconds is None:
            seconds = self._seconds_of(session.protocol, acks)
        if appending.done():
            self._observe(seconds, began_s, appending)
        else:
            appending.add_done_callback(partial(self._observe, seconds, began_s))
        return appending

    def _append(
        self,
        session: Session,
        target: TopicPartition,
        data: Buffer,
        acks: Acks,
        transactional_id: str | None,
        joins: bool,
        header: Header | None,
    ) -> asyncio.Future[Appended]:
        if target.topic in self._own_topics:
            raise InternalTopic(target.topic)
        remote = self.remote
        if remote is not None and remote.holds(session, target):
            return remote.append(session, target, data, acks, transactional_id, joins)
        try:
            replica = self._leaders.find_writable(target)
        except NotLeader:
            log_id = self._leaders.log_id(target)
            if not self._held.takes(target, log_id):
                if remote is None or not remote.serves(session):
                    raise
                return remote.append(session, target, data, acks, transactional_id, joins)
            # Not `append`: its caller has counted, timed and noted this request already.
            again = partial(
                self._append, session, target, data, acks, transactional_id, joins, header
            )
            return self._held.hold(target, log_id, again)
        settings = replica.log.settings
        if acks is Acks.ALL and settings.min_insync_replicas > 1:
            _check_replicas(target, replica, settings.min_insync_replicas)
        now_ms, bytes_max = self._clock.now_ms(), self._limits.batch_decompressed_bytes_max
        admit = None
        try:
            header, data = admit_batch(
                data,
                settings,
                now_ms=now_ms,
                decompressed_bytes_max=bytes_max,
                is_on_loop=True,
                header=header,
            )
        except NotSmall:
            header = read_header(data)
            admit = partial(
                admit_batch, data, settings, now_ms=now_ms, decompressed_bytes_max=bytes_max
            )
        if header.attributes & TRANSACTIONAL:
            if transactional_id is None:
                raise self._gate.refuse(session, Operation.TRANSACT, transaction_resource(""))
            self._gate.admit(session, Operation.TRANSACT, transaction_resource(transactional_id))
        incoming = IncomingBatch(replica, target, data, header, acks, transactional_id, joins)
        return self._pipeline.append(incoming, admit=admit)

    def admit_append(self, session: Session, topic: str) -> None:
        """Raise unless the session may write to the topic; for what the broker writes for it."""
        self._gate.admit(session, Operation.APPEND, topic_resource(topic))

    def admit_read(self, session: Session, topic: str) -> None:
        """Raise unless the session may read the topic; for a reader that begins later."""
        self._gate.admit(session, Operation.READ, topic_resource(topic))

    def write_marker(
        self,
        session: Session,
        target: TopicPartition,
        marker: Marker,
        *,
        must_be_newer: bool = False,
    ) -> Awaitable[Appended]:
        """End a producer's transaction in one partition, whatever its coordinator knows of it."""
        if not self._gate.allows(session, Operation.CLUSTER_ACTION, CLUSTER):
            self._gate.admit(session, Operation.ALTER, CLUSTER)
        now_ms = self._clock.now_ms()
        written = write_marker(
            self._leaders.find_writable(target), marker, now_ms=now_ms, must_be_newer=must_be_newer
        )
        if marker.kind is ControlKind.ABORT:
            details = {"partition": target.partition, "producer_id": marker.producer_id}
            self._gate.note("txn.abort", session, topic_resource(target.topic), details)
        return written

    async def producers(self, session: Session, target: TopicPartition) -> list[ProducerView]:
        """The idempotent and transactional producers of a partition."""
        self._gate.admit(session, Operation.READ, topic_resource(target.topic))
        replica = self._leaders.find(target)
        await self._hub.links.confirm(replica)
        return replica.log.producers.describe()

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
        if self.remote is not None and self.remote.is_elsewhere(session, wants):
            return await self.remote.read(
                session, wants, min_bytes, bytes_max, deadline, isolation, filter
            )
        return await self._long_poll.read(
            wants,
            partial(self._denied, session, wants),
            min_bytes=min_bytes,
            bytes_max=bytes_max,
            deadline=deadline,
            isolation=isolation,
            reader_filter=filter,
            protocol=session.protocol,
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
        records. A leader that was cut off refuses.
        """
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(target.topic))
        if self._hub.has_unopened:
            await self._hub.awake([self._leaders.log_id(target)])
        try:
            replica = self._leaders.find_current(target)
            check_epoch(target, leader_epoch, replica)
            await self._hub.links.confirm(replica)
        except (NotLeader, LeaderNotReady):
            if self.remote is None or not self.remote.serves(session):
                raise
            return await self.remote.find(session, target, place, isolation)
        return await look_up(replica, target, place, isolation, self.unpacking)

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
        if target.topic == AUDIT_TOPIC:
            raise InternalTopic(target.topic)
        self._controller.state.catalog.find(target.topic).check_writable()
        if target.topic == SCHEMAS_TOPIC and target.topic in self._own_topics:
            raise InternalTopic(target.topic, "cut")
        replica = self._leaders.find_current(target)
        offset = replica.high_watermark if before is None else before
        if not 0 <= offset <= replica.high_watermark:
            start = replica.log.start_offset
            raise OffsetOutOfRange(target, offset, start, replica.high_watermark)
        replica.advance_start(offset)
        details = {"partition": target.partition, "before": offset}
        self._gate.note("records.delete", session, topic_resource(target.topic), details)
        return replica.log.start_offset

    def leadership(self, session: Session, topic: Topic) -> list[Leadership]:
        """The leader of each partition of a topic, as far as this node knows."""
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(topic.name))
        return [
            self._leadership(topic.log(partition), topic.assigned(partition))
            for partition in range(topic.partition_count)
        ]

    def current_leader(self, session: Session, target: TopicPartition) -> KnownLeader:
        """The leader of a partition and its epoch, as far as this node knows."""
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(target.topic))
        return self._hub.leadership.of(self._leaders.log_id(target))

    async def awake(self, session: Session, topics: Sequence[Topic]) -> None:
        """Open the logs of these topics that rest, and find their leaders: clients that ask for
        leaders use them next."""
        for topic in topics:
            self._gate.admit(session, Operation.DESCRIBE, topic_resource(topic.name))
        hub = self._hub
        if not hub.has_unopened and hub.leadership.inquire is None:
            return
        logs = [topic.log(at) for topic in topics for at in range(topic.partition_count)]
        if hub.has_unopened:
            await hub.awake(logs[:AWAKENED_MAX])
        await hub.leadership.find(logs)

    def health(self, session: Session, target: TopicPartition) -> PartitionHealth:
        """Figures of the replica here, leader or not."""
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(target.topic))
        log_id, resting = self._leaders.log_id(target), self._hub.resting
        if log_id in resting:  # Figures of thousands of logs open none of them.
            end, epoch = resting.end_offset(log_id), resting.epoch(log_id)
            return PartitionHealth(resting.health(log_id), end, end, self._me, epoch)
        replica = self._hub.find(log_id)
        return PartitionHealth(
            replica.log.health(),
            replica.high_watermark,
            replica.last_stable_offset,
            replica.leader,
            replica.core.epoch,
        )

    def segments(self, session: Session, target: TopicPartition) -> Sequence[Segment]:
        """Of the replica here, the oldest first; none of a log that rests."""
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(target.topic))
        log_id = self._leaders.log_id(target)
        return () if log_id in self._hub.resting else self._hub.find(log_id).log.segments()

    def filter_figures(self, session: Session, topic: str) -> FilterFigures:
        """What reads of this view, or of a topic with this filter, took since the start."""
        self._gate.admit(session, Operation.READ, topic_resource(topic))
        return self._long_poll.filter_figures(topic)

    def storage_problems(self, session: Session) -> list[StorageProblem]:
        """The partitions here whose storage refuses, for the moment or for good."""
        self._gate.admit(session, Operation.DESCRIBE, "cluster")
        catalog, problems = self._controller.state.catalog, []
        for log_id, problem in refusals(self._hub.replicas, self._hub.damaged).items():
            topic = CONTROL_LOG_NAME
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

    def _seconds_of(self, protocol: str, acks: Acks) -> Histogram:
        words = "all" if acks is Acks.ALL else str(acks.value)
        histogram = self._metrics.histogram(APPEND_SECONDS, protocol, words)
        return self._seconds.setdefault((protocol, acks), histogram)

    def _observe(
        self, seconds: Histogram, began_s: float, appending: asyncio.Future[Appended]
    ) -> None:
        if appending.cancelled() or appending.exception() is not None:
            self._failures.value += 1
        seconds.observe(self._metrics.elapsed_s() - began_s)

    def _leadership(self, log_id: LogId, replicas: Sequence[NodeId]) -> Leadership:
        if log_id in self._hub.resting:
            return Leadership(self._me, self._hub.resting.epoch(log_id), replicas)
        try:
            self._hub.get(log_id)
        except RequestError:
            return Leadership(None, NO_EPOCH, replicas)
        known = self._hub.leadership.of(log_id)
        learners = self._hub.leadership.learners(log_id, replicas)
        return Leadership(known.leader, known.epoch, replicas, learners)

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
                continue
            if topic == AUDIT_TOPIC:
                self._gate.note("audit.read", session, topic_resource(topic))
        return denied


def _check_replicas(target: TopicPartition, replica: Replica, count_min: int) -> None:
    if replica.in_step_count < count_min:
        raise NotEnoughReplicas(
            f"{target} has {replica.in_step_count} replicas in step, "
            f"its min_insync_replicas is {count_min}"
        )
