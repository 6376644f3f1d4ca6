"""Looks up metrics that are read on demand instead of counted.

Bounds how many partitions, groups and subscriptions have samples of their own: clients choose the
names, so there is no other bound on them. Samples are lazy: the reader may yield to the event loop
in between, and what is deleted meanwhile has no sample.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from millstream.control.catalog import Catalog
from millstream.engine.delayed.scheduler import DelayedScheduler
from millstream.engine.groups.coordinators import Coordinators
from millstream.engine.push.pump import Pump
from millstream.engine.push.subscription import Subscription
from millstream.errors import CoordinatorLoading, UnknownTopic
from millstream.internal_topics.groups import OffsetValue
from millstream.metrics import (
    CUT_SHORT,
    DAMAGED_NOW,
    DELAYED_RECORDS,
    END_OFFSET,
    FAILED_REPLICAS,
    GROUP_LAG,
    HIGH_WATERMARK,
    INDEX_ENTRIES,
    INDEX_GAPS,
    INDEX_STRETCH_BYTES,
    LAST_STABLE_OFFSET,
    LOW_WATERMARK,
    OUTSTANDING_RECORDS,
    PARTITION_BYTES,
    PARTITION_SEGMENTS,
    SCRUB_PASS_BYTES,
    SLOW_SUBSCRIBERS,
    SUBSCRIBERS,
    TERMS_BYTES,
    TERMS_MISSING_BYTES,
    WAITING_RECORDS,
    Metric,
    Sample,
)
from millstream.model import Offset, TopicPartition
from millstream.names import INTERNAL_TOPICS
from millstream.replication.hub import Hub
from millstream.storage.log.health import LogHealth
from millstream.storage.secondary_index.log_index import IndexFigures

LABELLED_MAX = 1_000  # Partitions, topics of groups and subscriptions with own samples.


class Observer:
    def __init__(
        self,
        catalog: Catalog,
        hub: Hub,
        coordinators: Coordinators,
        delaying: DelayedScheduler,
        pump: Pump,
    ) -> None:
        self._catalog = catalog
        self._hub = hub
        self._coordinators = coordinators
        self._delaying = delaying
        self._pump = pump

    def samples(self) -> Iterator[Sample]:
        yield Sample(DELAYED_RECORDS, (), self._delaying.delayed_count)
        failed = sum(replica.failure is not None for replica in self._hub.replicas.values())
        yield Sample(FAILED_REPLICAS, (), failed + len(self._hub.damaged))
        replicas = list(self._hub.replicas.values())
        yield Sample(DAMAGED_NOW, (), sum(len(replica.log.damage()) for replica in replicas))
        yield Sample(SCRUB_PASS_BYTES, (), self._hub.scrubber.state.pass_bytes)
        for kind, labelled in (
            ("partition", self._partitions()),
            ("group", self._groups()),
            ("subscription", self._subscriptions()),
        ):
            is_cut = False
            for count, figures in enumerate(labelled):
                is_cut = count == LABELLED_MAX
                if is_cut:
                    break
                yield from figures
            yield Sample(CUT_SHORT, (kind,), int(is_cut))

    # -- parts -----------------------------------------------------------------------------------

    def _partitions(self) -> Iterator[Sequence[Sample]]:
        """Figures of topics that have logs, users' topics first."""
        topics = [topic for topic in self._catalog.topics() if not topic.is_view]
        for topic in sorted(topics, key=lambda topic: (topic.name in INTERNAL_TOPICS, topic.name)):
            for partition in range(topic.partition_count):
                target, log_id = TopicPartition(topic.name, partition), topic.log(partition)
                replica = self._hub.replicas.get(log_id)
                if replica is not None:
                    ends = replica.high_watermark, replica.last_stable_offset
                    figures = self._hub.upkeep.indexer.figures(replica)
                    yield _partition(target, replica.log.health(), *ends, figures)
                elif log_id in self._hub.resting:
                    end = self._hub.resting.end_offset(log_id)
                    yield _partition(target, self._hub.resting.health(log_id), end, end, None)

    def _groups(self) -> Iterator[Sequence[Sample]]:
        try:
            coordinators = self._coordinators.all_here()
        except CoordinatorLoading:
            return
        homes = {name: coordinator for coordinator in coordinators for name in coordinator.groups}
        for group_id, coordinator in sorted(homes.items()):
            lags: defaultdict[str, int] = defaultdict(int)
            for target, value in coordinator.find_stored(group_id).offsets.items():
                lags[target.topic] += self._lag(target, value)
            for topic, lag in sorted(lags.items()):
                yield [Sample(GROUP_LAG, (group_id, topic), lag)]

    def _lag(self, target: TopicPartition, committed: OffsetValue) -> int:
        try:
            topic = self._catalog.find(target.topic)
            log_id = topic.log(target.partition)
        except UnknownTopic:
            return 0
        replica, resting = self._hub.replicas.get(log_id), self._hub.resting
        if topic.topic_id != committed.topic_id or not (replica or log_id in resting):
            return 0
        if replica is None:
            start, end = resting.health(log_id).start_offset, resting.end_offset(log_id)
        else:
            start, end = replica.log.start_offset, replica.high_watermark
        return max(0, end - max(committed.offset, start))

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
