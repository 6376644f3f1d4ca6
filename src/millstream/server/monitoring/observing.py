"""Looks up metrics that are read on demand instead of counted.

Bounds how many topics, partitions, groups and subscriptions have samples of their own: clients
choose the names, so there is no other bound on them. Samples are lazy: the reader may yield to the
event loop in between, and what is deleted meanwhile has no sample.
"""

from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from millstream.config import Config
from millstream.control.catalog import Catalog, Topic
from millstream.engine.assembly import Engine
from millstream.engine.dead_letters.redriven import waiting_count
from millstream.engine.delayed.scheduler import DelayedScheduler
from millstream.engine.ledgers.shards import Shards
from millstream.engine.publish.subjects import is_dead_topic
from millstream.engine.push.pump import Pump
from millstream.engine.push.shard import DeliveryShard
from millstream.engine.push.subscription import Subscription
from millstream.metrics import (
    CUT_SHORT,
    DAMAGED_NOW,
    DEAD_LETTERS_WAITING,
    DELAYED_RECORDS,
    END_OFFSET,
    FAILED_REPLICAS,
    GROUP_LAG,
    GROUP_LAG_SECONDS,
    GROUP_MEMBERS,
    GROUP_STATE,
    HIGH_WATERMARK,
    INDEX_ENTRIES,
    INDEX_GAPS,
    INDEX_STRETCH_BYTES,
    LAST_STABLE_OFFSET,
    LEADERS,
    LOW_WATERMARK,
    OUTSTANDING_RECORDS,
    PARTITION_BYTES,
    PARTITION_SEGMENTS,
    PARTITIONS_OFFLINE,
    PARTITIONS_UNDER_REPLICATED,
    REPLICA_LAG,
    SCRUB_PASS_BYTES,
    SLOW_SUBSCRIBERS,
    SUBSCRIBERS,
    TERMS_BYTES,
    TERMS_MISSING_BYTES,
    TOPIC_APPENDED_BYTES,
    TOPIC_APPENDED_RECORDS,
    TOPIC_READ_BYTES,
    WAITING_RECORDS,
    Metric,
    Metrics,
    Sample,
    Step,
)
from millstream.model import Offset, TopicPartition
from millstream.names import INTERNAL_TOPICS
from millstream.ports import Clock
from millstream.protocols.kafka.group_states import STATES
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica
from millstream.server.monitoring.group_lag import GroupLags, member_count
from millstream.storage.log.health import LogHealth
from millstream.storage.secondary_index.log_index import IndexFigures

LABELLED_MAX = 1_000  # Topics, partitions, topics of groups and subscriptions with own samples.
STEP_REPLICAS = 32  # Looked at in one step: a tenth of a millisecond.


class ReplicaFigures(NamedTuple):
    """Counts over all replicas of a node."""

    leaders: int = 0
    failed: int = 0
    damaged_ranges: int = 0
    offline: int = 0
    under_replicated: int = 0


class PartitionEnds(NamedTuple):
    start_offset: Offset
    high_watermark: Offset
    size_bytes: int
    segment_count: int


class Observer:
    def __init__(
        self,
        catalog: Catalog,
        hub: Hub,
        lags: GroupLags,
        delaying: DelayedScheduler,
        pump: Pump,
        delivery_shards: Shards[DeliveryShard],
    ) -> None:
        self._catalog = catalog
        self._hub = hub
        self._lags = lags
        self._delaying = delaying
        self._pump = pump
        self._delivery_shards = delivery_shards
        self._topics_known: tuple[int, list[Topic]] = (-1, [])

    def samples(self, topic: str | None = None) -> Iterator[Step]:
        if topic is None:
            yield Sample(DELAYED_RECORDS, (), self._delaying.delayed_count)
            yield Sample(SCRUB_PASS_BYTES, (), self._hub.scrubber.state.pass_bytes)
            figures = yield from self.replica_figures()
            yield Sample(LEADERS, (), figures.leaders)
            yield Sample(FAILED_REPLICAS, (), figures.failed)
            yield Sample(DAMAGED_NOW, (), figures.damaged_ranges)
            yield Sample(PARTITIONS_OFFLINE, (), figures.offline)
            yield Sample(PARTITIONS_UNDER_REPLICATED, (), figures.under_replicated)
        for kind, labelled in (
            ("topic", self._topic_figures(topic)),
            ("partition", self._partitions(topic)),
            ("group", self._groups(topic)),
            ("subscription", self._subscriptions() if topic is None else iter(())),
        ):
            is_cut = False
            for count, samples in enumerate(labelled):
                is_cut = count == LABELLED_MAX
                if is_cut:
                    break
                yield from samples
            yield Sample(CUT_SHORT, (kind,), int(is_cut))

    def replica_figures(self) -> Generator[None, None, ReplicaFigures]:
        leaders = failed = damaged = offline = behind = 0
        for count, replica in enumerate(list(self._hub.replicas.values()), start=1):
            if count % STEP_REPLICAS == 0:
                yield
            failed += replica.failure is not None
            damaged += len(replica.log.damage())
            offline += replica.leader is None
            if replica.is_leader:
                leaders += 1
                voters = len(replica.core.voters)
                behind += voters > 1 and replica.in_step_count < voters
        closed = len(self._hub.damaged)
        leaders += len(self._hub.resting)
        return ReplicaFigures(leaders, failed + closed, damaged, offline + closed, behind)

    def topics(self, name: str | None = None) -> list[Topic]:
        """The topics that have logs, users' topics first; or the one of this name."""
        version, topics = self._topics_known
        if version != self._catalog.version:
            version = self._catalog.version
            topics = [topic for topic in self._catalog.topics() if not topic.is_view]
            topics.sort(key=lambda topic: (topic.name in INTERNAL_TOPICS, topic.name))
            self._topics_known = version, topics
        return topics if name is None else [topic for topic in topics if topic.name == name]

    # -- parts -----------------------------------------------------------------------------------

    def _topic_figures(self, name: str | None) -> Iterator[Sequence[Sample]]:
        for topic in self.topics(name):
            samples = []
            traffic, labels = self._hub.traffic.get(topic.topic_id), (topic.name,)
            counts = (traffic.records, traffic.bytes, traffic.read_bytes) if traffic else (0, 0, 0)
            metrics = (TOPIC_APPENDED_RECORDS, TOPIC_APPENDED_BYTES, TOPIC_READ_BYTES)
            for metric, count in zip(metrics, counts, strict=True):
                samples.append(Sample(metric, labels, count))
            waiting = self._dead_letters(topic) if is_dead_topic(topic.name) else None
            if waiting is not None:
                samples.append(Sample(DEAD_LETTERS_WAITING, labels, waiting))
            yield samples

    def _dead_letters(self, topic: Topic) -> int | None:
        """The letters that wait; None while that is not known here."""
        spans = {}
        for partition in range(topic.partition_count):
            log_id = topic.log(partition)
            replica = self._hub.replicas.get(log_id)
            if replica is not None:
                spans[log_id] = replica.log.start_offset, replica.high_watermark
            elif log_id in self._hub.resting:
                health = self._hub.resting.health(log_id)
                spans[log_id] = health.start_offset, health.end_offset
        return waiting_count(self._catalog, self._delivery_shards, topic, spans)

    def partitions(
        self, name: str | None = None
    ) -> Iterator[tuple[TopicPartition, PartitionEnds, Replica | None]]:
        """All partitions here, or those of one topic; without a replica for a log that rests."""
        for topic in self.topics(name):
            for partition in range(topic.partition_count):
                target, log_id = TopicPartition(topic.name, partition), topic.log(partition)
                replica = self._hub.replicas.get(log_id)
                if replica is not None:
                    health = replica.log.health()
                    yield target, _ends(health, replica.high_watermark), replica
                elif log_id in self._hub.resting:
                    health = self._hub.resting.health(log_id)
                    yield target, _ends(health, health.end_offset), None

    def _partitions(self, name: str | None) -> Iterator[Sequence[Sample]]:
        for topic in self.topics(name):
            for partition in range(topic.partition_count):
                target, log_id = TopicPartition(topic.name, partition), topic.log(partition)
                replica = self._hub.replicas.get(log_id)
                if replica is not None:
                    ends = replica.high_watermark, replica.last_stable_offset
                    figures = self._hub.upkeep.indexer.figures(replica)
                    samples = _partition(target, replica.log.health(), *ends, figures)
                    yield [*samples, *_replica_lag(target, replica)]
                elif log_id in self._hub.resting:
                    end = self._hub.resting.end_offset(log_id)
                    yield _partition(target, self._hub.resting.health(log_id), end, end, None)

    def _groups(self, name: str | None) -> Iterator[Sequence[Sample]]:
        for group_id, group, coordinator in self._lags.groups():
            samples: list[Sample] = []
            if name is None:
                samples.append(Sample(GROUP_MEMBERS, (group_id,), member_count(group)))
                samples.append(Sample(GROUP_STATE, (group_id, STATES[group.state]), 1))
            lags: defaultdict[str, int] = defaultdict(int)
            ages_ms: defaultdict[str, int] = defaultdict(int)
            for lag in self._lags.lags(group_id, coordinator):
                topic = lag.target.topic
                if name is None or name == topic:
                    lags[topic] += lag.records
                    ages_ms[topic] = max(ages_ms[topic], lag.age_ms)
            for topic, count in lags.items():
                labels = group_id, topic
                samples.append(Sample(GROUP_LAG, labels, count))
                samples.append(Sample(GROUP_LAG_SECONDS, labels, ages_ms[topic] / 1000))
                yield samples
                samples = []
            if samples:
                yield samples

    def _subscriptions(self) -> Iterator[Sequence[Sample]]:
        named: defaultdict[str, list[Subscription]] = defaultdict(list)
        for subscription in self._pump.live:
            named[subscription.name].append(subscription)
        for name, subscriptions in sorted(named.items()):
            members = [
                subscription.statistics(member)
                for subscription in subscriptions
                for member in subscription.members.values()
            ]
            figures: dict[Metric, int] = {
                SUBSCRIBERS: len(members),
                SLOW_SUBSCRIBERS: sum(member.is_slow for member in members),
                OUTSTANDING_RECORDS: sum(member.in_flight for member in members),
                WAITING_RECORDS: sum(
                    subscription.dispatcher.ready_count for subscription in subscriptions
                ),
            }
            yield [Sample(metric, (name,), value) for metric, value in figures.items()]


def watch_node(
    metrics: Metrics, catalog: Catalog, hub: Hub, engine: Engine, clock: Clock, config: Config
) -> GroupLags:
    """Let metrics tell of what a node holds, in our names and in those of others."""
    lags = GroupLags(catalog, hub, engine.group_coordinators, clock)
    push = engine.push
    observer = Observer(catalog, hub, lags, engine.delayed_scheduler, push.pump, push.shards)

    def foreign(names: str, topic: str | None) -> Iterator[Step]:
        # Most nodes are never asked for them.
        from millstream.server.monitoring.foreign_names import foreign_samples

        return foreign_samples(
            names,
            topic,
            metrics,
            observer,
            hub,
            lags,
            node_id=config.node_id,
            address=f"{config.host}:{config.port}",
            now_s=lambda: clock.now_ms() / 1000,
        )

    metrics.watch_topics(observer.samples)
    for names in ("kafka", "flymq", "fluxmq"):
        metrics.watch_topics(partial(foreign, names), names=names)
    return lags


def _ends(health: LogHealth, high_watermark: Offset) -> PartitionEnds:
    return PartitionEnds(
        health.start_offset, high_watermark, health.size_bytes, health.segment_count
    )


def _replica_lag(target: TopicPartition, replica: Replica) -> Iterator[Sample]:
    """Of a leader with followers."""
    voters = len(replica.core.voters)
    if replica.is_leader and voters > 1:
        behind = replica.log.end_offset - replica.core.end_held_by(voters)
        yield Sample(REPLICA_LAG, (target.topic, str(target.partition)), max(0, behind))


def _partition(
    target: TopicPartition,
    log: LogHealth,
    high_watermark: Offset,
    last_stable_offset: Offset,
    terms: IndexFigures | None,
) -> Sequence[Sample]:
    figures: dict[Metric, int] = {
        LOW_WATERMARK: log.start_offset,
        HIGH_WATERMARK: high_watermark,
        LAST_STABLE_OFFSET: last_stable_offset,
        END_OFFSET: log.end_offset,
        PARTITION_BYTES: log.size_bytes,
        PARTITION_SEGMENTS: log.segment_count,
        INDEX_ENTRIES: log.index_entries,
        INDEX_STRETCH_BYTES: log.index_bytes_per_entry_max,
        INDEX_GAPS: log.index_gaps,
    }
    if terms is not None:
        figures |= {TERMS_BYTES: terms.size_bytes, TERMS_MISSING_BYTES: terms.missing_bytes}
    labels = target.topic, str(target.partition)
    return [Sample(metric, labels, value) for metric, value in figures.items()]
