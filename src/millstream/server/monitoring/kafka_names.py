"""Metrics in the names that Kafka's dashboards know: kafka_exporter's, and some of JMX.

The names and labels of kafka_exporter, and of the JMX metrics those that Strimzi's dashboards use,
as its exporter spells them. A total has an empty topic, which to Prometheus is none.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

from millstream.metrics import (
    APPEND_FAILURES,
    APPEND_SECONDS,
    APPENDED_BYTES,
    APPENDED_RECORDS,
    FETCH_FAILURES,
    FETCH_SECONDS,
    READ_BYTES,
    Kind,
    Metric,
    Metrics,
    Sample,
    Step,
)
from millstream.model import CONTROL_LOG
from millstream.replication.hub import Hub
from millstream.server.monitoring.group_lag import GroupLags, PartitionLag, member_count
from millstream.server.monitoring.observing import LABELLED_MAX, Observer

_TOPIC, _PARTITION = ("topic",), ("topic", "partition")
_GROUP = ("consumergroup", "topic")


def _gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(f"kafka_{name}", Kind.GAUGE, text, labels)


BROKERS = _gauge("brokers", "Brokers of the cluster.")
BROKER_INFO = _gauge("broker_info", "1, with what is known of a broker.", ("id", "address"))
PARTITIONS = _gauge("topic_partitions", "Partitions of a topic.", _TOPIC)
CURRENT = _gauge("topic_partition_current_offset", "The high watermark.", _PARTITION)
OLDEST = _gauge("topic_partition_oldest_offset", "The first offset.", _PARTITION)
LEADER = _gauge("topic_partition_leader", "The broker that leads.", _PARTITION)
REPLICAS = _gauge("topic_partition_replicas", "Replicas of a partition.", _PARTITION)
IN_SYNC = _gauge("topic_partition_in_sync_replica", "Replicas that are in sync.", _PARTITION)
PREFERRED = _gauge("topic_partition_leader_is_preferred", "1 if the first leads.", _PARTITION)
UNDER_REPLICATED = _gauge(
    "topic_partition_under_replicated_partition", "1 if a replica is not in sync.", _PARTITION
)
GROUP_OFFSET = _gauge(
    "consumergroup_current_offset", "The committed offset.", (*_GROUP, "partition")
)
GROUP_OFFSET_SUM = _gauge(
    "consumergroup_current_offset_sum", "Committed offsets of a topic, summed up.", _GROUP
)
GROUP_LAG = _gauge("consumergroup_lag", "Records that are not read.", (*_GROUP, "partition"))
GROUP_LAG_SUM = _gauge("consumergroup_lag_sum", "Records of a topic that are not read.", _GROUP)
GROUP_MEMBERS = _gauge("consumergroup_members", "Members of a group.", ("consumergroup",))


def _jmx_counter(name: str, text: str) -> Metric:
    full_name = f"kafka_server_brokertopicmetrics_{name}_total"
    return Metric(full_name, Kind.COUNTER, text, _TOPIC)


MESSAGES_IN = _jmx_counter("messagesin", "Records written.")
BYTES_IN = _jmx_counter("bytesin", "Bytes written.")
BYTES_OUT = _jmx_counter("bytesout", "Bytes read.")
PRODUCE_REQUESTS = _jmx_counter("totalproducerequests", "Batches that producers sent.")
FETCH_REQUESTS = _jmx_counter("totalfetchrequests", "Requests of readers.")
PRODUCE_FAILURES = _jmx_counter("failedproducerequests", "Batches that were refused.")
FETCH_FAILURES_JMX = _jmx_counter("failedfetchrequests", "Requests of readers that were refused.")
PARTITION_COUNT = _gauge("server_replicamanager_partitioncount", "Partitions with a replica here.")
LEADER_COUNT = _gauge("server_replicamanager_leadercount", "Partitions led here.")
UNDER_REPLICATED_COUNT = _gauge(
    "server_replicamanager_underreplicatedpartitions", "Partitions led here that lack a replica."
)
ACTIVE_CONTROLLER = _gauge(
    "controller_kafkacontroller_activecontrollercount", "1 if this node is the controller."
)
OFFLINE_COUNT = _gauge(
    "controller_kafkacontroller_offlinepartitionscount", "Partitions here without a leader."
)
LOG_SIZE = _gauge("log_log_size", "Bytes of a partition.", _PARTITION)


class KafkaNames:
    def __init__(
        self,
        metrics: Metrics,
        observer: Observer,
        hub: Hub,
        lags: GroupLags,
        *,
        node_id: int,
        address: str,
    ) -> None:
        self._metrics = metrics
        self._observer = observer
        self._hub = hub
        self._lags = lags
        self._node_id = node_id
        self._address = address

    def samples(self, topic: str | None = None) -> Iterator[Step]:
        if topic is None:
            yield from self._node()
        yield from self._topics(topic)
        yield from self._partitions(topic)
        yield from self._groups(topic)

    def _node(self) -> Iterator[Step]:
        control = self._hub.replicas[CONTROL_LOG]
        yield Sample(BROKERS, (), len(control.core.voters))
        yield Sample(BROKER_INFO, (str(self._node_id), self._address), 1)
        metrics, every = self._metrics, ("",)
        yield Sample(MESSAGES_IN, every, metrics.value(APPENDED_RECORDS))
        yield Sample(BYTES_IN, every, metrics.value(APPENDED_BYTES))
        yield Sample(BYTES_OUT, every, metrics.value(READ_BYTES))
        refused = metrics.value(APPEND_FAILURES)
        appended = sum(metrics.observed(APPEND_SECONDS).counts)
        yield Sample(PRODUCE_REQUESTS, every, appended + refused)
        yield Sample(FETCH_REQUESTS, every, sum(metrics.observed(FETCH_SECONDS).counts))
        yield Sample(PRODUCE_FAILURES, every, refused)
        yield Sample(FETCH_FAILURES_JMX, every, metrics.value(FETCH_FAILURES))
        figures = yield from self._observer.replica_figures()
        yield Sample(PARTITION_COUNT, (), self._hub.log_count)
        yield Sample(LEADER_COUNT, (), figures.leaders)
        yield Sample(UNDER_REPLICATED_COUNT, (), figures.under_replicated)
        yield Sample(OFFLINE_COUNT, (), figures.offline)
        yield Sample(ACTIVE_CONTROLLER, (), int(control.is_leader))

    def _topics(self, name: str | None) -> Iterator[Sample]:
        for topic in islice(self._observer.topics(name), LABELLED_MAX):
            labels = (topic.name,)
            yield Sample(PARTITIONS, labels, topic.partition_count)
            traffic = self._hub.traffic.get(topic.topic_id)
            if traffic is not None:
                yield Sample(MESSAGES_IN, labels, traffic.records)
                yield Sample(BYTES_IN, labels, traffic.bytes)
                yield Sample(BYTES_OUT, labels, traffic.read_bytes)

    def _partitions(self, name: str | None) -> Iterator[Sample]:
        targets = self._observer.partitions(name)
        for (topic, partition), ends, replica in islice(targets, LABELLED_MAX):
            labels = topic, str(partition)
            yield Sample(CURRENT, labels, ends.high_watermark)
            yield Sample(OLDEST, labels, ends.start_offset)
            yield Sample(LOG_SIZE, labels, ends.size_bytes)
            leader: int | None = self._node_id
            voters = in_sync = 1
            if replica is not None:
                voters, leader = len(replica.core.voters), replica.leader
                in_sync = replica.in_step_count if replica.is_leader else voters
            yield Sample(LEADER, labels, -1 if leader is None else leader)
            yield Sample(REPLICAS, labels, voters)
            yield Sample(IN_SYNC, labels, in_sync)
            yield Sample(PREFERRED, labels, int(leader is not None))
            yield Sample(UNDER_REPLICATED, labels, int(in_sync < voters))

    def _groups(self, name: str | None) -> Iterator[Sample]:
        left = LABELLED_MAX
        for group_id, group, coordinator in self._lags.groups():
            if left <= 0:
                return
            if name is None:
                yield Sample(GROUP_MEMBERS, (group_id,), member_count(group))
            by_topic: defaultdict[str, list[PartitionLag]] = defaultdict(list)
            for lag in self._lags.lags(group_id, coordinator):
                if name is None or lag.target.topic == name:
                    by_topic[lag.target.topic].append(lag)
            for topic, lags in by_topic.items():
                left -= len(lags)
                for lag in lags:
                    labels = group_id, topic, str(lag.target.partition)
                    yield Sample(GROUP_OFFSET, labels, lag.committed)
                    yield Sample(GROUP_LAG, labels, lag.records)
                sums = group_id, topic
                yield Sample(GROUP_OFFSET_SUM, sums, sum(lag.committed for lag in lags))
                yield Sample(GROUP_LAG_SUM, sums, sum(lag.records for lag in lags))
