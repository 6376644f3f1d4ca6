"""Metrics in the names of other brokers; FlyMQ's and FluxMQ's are here, each with a true value.

Left out is what cannot be told: FlyMQ promises `goroutines`, commits, rebalances and records read,
FluxMQ rates, percentiles and caches. What the two call a total though it may shrink is untyped.
"""

from collections.abc import Callable, Iterator, Mapping

from millstream.metrics import (
    APPEND_FAILURES,
    APPEND_SECONDS,
    APPENDED_BYTES,
    APPENDED_RECORDS,
    CONNECTIONS,
    CONNECTIONS_TAKEN,
    DEAD_LETTERS,
    ELECTIONS_WON,
    EXPIRED_RECORDS,
    FETCH_SECONDS,
    READ_BYTES,
    REQUESTS,
    SYNC_ROUND_SECONDS,
    TRANSACTIONS,
    TRANSACTIONS_OPEN,
    Kind,
    Metric,
    Metrics,
    Observed,
    Sample,
    Step,
)
from millstream.model import CONTROL_LOG
from millstream.replication.hub import Hub
from millstream.server.monitoring.group_lag import GroupLags, member_count
from millstream.server.monitoring.kafka_names import KafkaNames
from millstream.server.monitoring.observing import LABELLED_MAX, Observer
from millstream.server.system.process import process_figures

PARTITIONS_SUMMED_MAX = 100  # Sums over more partitions would take too long in one step.
MIB = 2**20
_MICROSECONDS = 1_000_000
_TOPIC, _PARTITION, _GROUP = ("topic",), ("topic", "partition"), ("group",)


def _metric(name: str, kind: Kind, labels: tuple[str, ...] = ()) -> Metric:
    broker = "FlyMQ" if name.startswith("flymq") else "FluxMQ"
    return Metric(name, kind, f"As {broker} calls it.", labels)


def _gauge(name: str, labels: tuple[str, ...] = ()) -> Metric:
    kind = Kind.UNTYPED if name.endswith("_total") else Kind.GAUGE
    return _metric(name, kind, labels)


def _counter(name: str, labels: tuple[str, ...] = ()) -> Metric:
    return _metric(name, Kind.COUNTER, labels)


# Ours by theirs.
FLYMQ_COUNTERS: Mapping[Metric, Metric] = {
    _counter("flymq_messages_produced_total"): APPENDED_RECORDS,
    _counter("flymq_messages_failed_total"): APPEND_FAILURES,
    _counter("flymq_messages_expired_total"): EXPIRED_RECORDS,
    _counter("flymq_messages_dlq_total"): DEAD_LETTERS,
    _counter("flymq_messages_bytes_produced_total"): APPENDED_BYTES,
    _counter("flymq_messages_bytes_consumed_total"): READ_BYTES,
    _counter("flymq_storage_bytes_written_total"): APPENDED_BYTES,
    _counter("flymq_storage_bytes_read_total"): READ_BYTES,
    _counter("flymq_connections_total"): CONNECTIONS_TAKEN,
    _counter("flymq_server_connections_total"): CONNECTIONS_TAKEN,
    _counter("flymq_raft_elections_total"): ELECTIONS_WON,
}
FLYMQ_HISTOGRAMS: Mapping[Metric, Metric] = {
    _metric("flymq_produce_latency_seconds", Kind.HISTOGRAM): APPEND_SECONDS,
    _metric("flymq_consume_latency_seconds", Kind.HISTOGRAM): FETCH_SECONDS,
    _metric("flymq_storage_sync_latency_seconds", Kind.HISTOGRAM): SYNC_ROUND_SECONDS,
}
PRODUCE_AVERAGE = _gauge("flymq_produce_latency_avg_microseconds")
CONSUME_AVERAGE = _gauge("flymq_consume_latency_avg_microseconds")
TRANSACTIONS_ACTIVE = _gauge("flymq_transactions_active")
COMMITTED = _counter("flymq_transactions_committed_total")
ABORTED = _counter("flymq_transactions_aborted_total")
TOPIC_PRODUCED = _counter("flymq_topic_messages_produced_total", _TOPIC)
TOPIC_MESSAGES = _gauge("flymq_topic_messages_total", _TOPIC)
TOPIC_BYTES = _gauge("flymq_topic_bytes_total", _TOPIC)
TOPIC_PARTITIONS = _gauge("flymq_topic_partitions", _TOPIC)
OLDEST = _gauge("flymq_topic_oldest_offset", _PARTITION)
NEWEST = _gauge("flymq_topic_newest_offset", _PARTITION)
GROUP_LAG = _gauge("flymq_consumer_group_lag", ("group", "topic"))
GROUP_MEMBERS = _gauge("flymq_consumer_group_members", _GROUP)
_FLYMQ_GAUGES = (
    "connections_active server_connections_active topics_count topics_total partitions_count "
    "consumer_groups_count consumer_groups_total cluster_nodes is_leader "
    "cluster_leader raft_term raft_commit_index uptime_seconds server_uptime_seconds "
    "memory_alloc_bytes server_memory_bytes memory_sys_bytes messages_total storage_segments"
)
FLYMQ_GAUGES = {name: _gauge(f"flymq_{name}") for name in _FLYMQ_GAUGES.split()}
FLUX_GROUP_MEMBERS = _gauge("fluxmq_consumer_group_members", _GROUP)
FLUX_GROUP_LAG = _gauge("fluxmq_consumer_group_lag", _GROUP)
FLUXMQ_COUNTERS: Mapping[Metric, Metric] = {
    _counter("fluxmq_messages_produced_total"): APPENDED_RECORDS,
    _counter("fluxmq_requests_total"): REQUESTS,
}
_FLUXMQ_GAUGES = (
    "topics_total partitions_total connections_active memory_usage_mb uptime_seconds "
    "storage_messages_total storage_bytes_total"
)
FLUXMQ_GAUGES = {name: _gauge(f"fluxmq_{name}") for name in _FLUXMQ_GAUGES.split()}


def foreign_samples(
    names: str,
    topic: str | None,
    metrics: Metrics,
    observer: Observer,
    hub: Hub,
    lags: GroupLags,
    *,
    node_id: int,
    address: str,
    now_s: Callable[[], float],
) -> Iterator[Step]:
    """Samples in the names of `kafka`, `flymq` or `fluxmq`; of one topic if it is named."""
    if names == "kafka":
        kafka = KafkaNames(metrics, observer, hub, lags, node_id=node_id, address=address)
        return kafka.samples(topic)
    others = FlyAndFluxNames(metrics, observer, hub, lags, now_s=now_s)
    return others.flymq(topic) if names == "flymq" else others.fluxmq(topic)


class FlyAndFluxNames:
    def __init__(
        self,
        metrics: Metrics,
        observer: Observer,
        hub: Hub,
        lags: GroupLags,
        *,
        now_s: Callable[[], float],
    ) -> None:
        self._metrics = metrics
        self._observer = observer
        self._hub = hub
        self._lags = lags
        self._now_s = now_s

    def flymq(self, topic: str | None = None) -> Iterator[Sample]:
        metrics = self._metrics
        if topic is None:
            for theirs, ours in FLYMQ_COUNTERS.items():
                yield Sample(theirs, (), metrics.total(ours))
            for theirs, ours in FLYMQ_HISTOGRAMS.items():
                observed = metrics.observed(ours)
                yield Sample(theirs, (), sum(observed.counts), observed)
            yield Sample(PRODUCE_AVERAGE, (), _average_us(metrics.observed(APPEND_SECONDS)))
            yield Sample(CONSUME_AVERAGE, (), _average_us(metrics.observed(FETCH_SECONDS)))
            yield Sample(COMMITTED, (), metrics.value(TRANSACTIONS, "committed"))
            yield Sample(ABORTED, (), metrics.value(TRANSACTIONS, "aborted"))
            for sample in metrics.samples():
                if sample.metric is TRANSACTIONS_OPEN:
                    yield Sample(TRANSACTIONS_ACTIVE, (), sample.value)
                    break
            values = self._gauges() | self._sums()
            for name, gauge in FLYMQ_GAUGES.items():
                if name in values:
                    yield Sample(gauge, (), values[name])
        yield from self._topics(topic)
        yield from self._groups(topic)

    def fluxmq(self, topic: str | None = None) -> Iterator[Sample]:
        for theirs, ours in FLUXMQ_COUNTERS.items():
            yield Sample(theirs, (), self._metrics.total(ours))
        values = self._gauges() | self._sums()
        for name, gauge in FLUXMQ_GAUGES.items():
            if name in values:
                yield Sample(gauge, (), values[name])
        for count, (group_id, group, coordinator) in enumerate(self._lags.groups()):
            if count == LABELLED_MAX:
                return
            records = sum(lag.records for lag in self._lags.lags(group_id, coordinator))
            yield Sample(FLUX_GROUP_MEMBERS, (group_id,), member_count(group))
            yield Sample(FLUX_GROUP_LAG, (group_id,), records)

    # -- parts -------------------------------------------------------------------------------------

    def _gauges(self) -> dict[str, float]:
        control = self._hub.replicas[CONTROL_LOG]
        process, connections = process_figures(), self._metrics.total(CONNECTIONS)
        topics, groups = len(self._observer.topics()), sum(1 for _ in self._lags.groups())
        uptime_s = max(0.0, self._now_s() - process.started_s)
        return {
            "connections_active": connections,
            "server_connections_active": connections,
            "topics_count": topics,
            "topics_total": topics,
            "partitions_count": self._hub.log_count,
            "partitions_total": self._hub.log_count,
            "consumer_groups_count": groups,
            "consumer_groups_total": groups,
            "cluster_nodes": len(control.core.voters),
            "is_leader": int(control.is_leader),
            "cluster_leader": -1 if control.leader is None else control.leader,
            "raft_term": control.core.epoch,
            "raft_commit_index": control.high_watermark,
            "uptime_seconds": uptime_s,
            "server_uptime_seconds": uptime_s,
            "memory_alloc_bytes": process.resident_bytes,
            "server_memory_bytes": process.resident_bytes,
            "memory_usage_mb": process.resident_bytes / MIB,
        } | ({} if process.virtual_bytes is None else {"memory_sys_bytes": process.virtual_bytes})

    def _sums(self) -> dict[str, float]:
        """Sums over all partitions, if those are few."""
        if self._hub.log_count > PARTITIONS_SUMMED_MAX:
            return {}
        ends = [ends for _, ends, _ in self._observer.partitions()]
        records = sum(each.high_watermark - each.start_offset for each in ends)
        return {
            "messages_total": records,
            "storage_messages_total": records,
            "storage_bytes_total": sum(each.size_bytes for each in ends),
            "storage_segments": sum(each.segment_count for each in ends),
        }

    def _topics(self, name: str | None) -> Iterator[Sample]:
        for topic in self._observer.topics(name)[:LABELLED_MAX]:
            labels = (topic.name,)
            traffic = self._hub.traffic.get(topic.topic_id)
            yield Sample(TOPIC_PARTITIONS, labels, topic.partition_count)
            yield Sample(TOPIC_PRODUCED, labels, 0 if traffic is None else traffic.records)
            records = size = 0
            partitions = self._observer.partitions(topic.name)
            for count, ((_, partition), ends, _) in enumerate(partitions):
                records += ends.high_watermark - ends.start_offset
                size += ends.size_bytes
                if count < LABELLED_MAX:
                    yield Sample(OLDEST, (topic.name, str(partition)), ends.start_offset)
                    yield Sample(NEWEST, (topic.name, str(partition)), ends.high_watermark)
            yield Sample(TOPIC_MESSAGES, labels, records)
            yield Sample(TOPIC_BYTES, labels, size)

    def _groups(self, name: str | None) -> Iterator[Sample]:
        for count, (group_id, group, coordinator) in enumerate(self._lags.groups()):
            if count == LABELLED_MAX:
                return
            if name is None:
                yield Sample(GROUP_MEMBERS, (group_id,), member_count(group))
            lags: dict[str, int] = {}
            for lag in self._lags.lags(group_id, coordinator):
                lags[lag.target.topic] = lags.get(lag.target.topic, 0) + lag.records
            for topic, records in lags.items():
                if name in {None, topic}:
                    yield Sample(GROUP_LAG, (group_id, topic), records)


def _average_us(observed: Observed) -> float:
    count = sum(observed.counts)
    return observed.total / count * _MICROSECONDS if count else 0.0
