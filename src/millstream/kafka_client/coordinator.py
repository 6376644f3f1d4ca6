"""Committed offsets of consumer groups, and the coordinators of groups and transactional ids.

Groups that are written here have no members: Spark decides which task reads which partition, and a
query goes on from its checkpoint. The group shows every tool how far the query is.
"""

from collections.abc import Iterable, Mapping

from millstream.kafka_client.answers import Committed
from millstream.kafka_client.cluster import RETRIED, Cluster, check
from millstream.kafka_client.connection import Connection
from millstream.kafka_client.errors import UnknownPartition
from millstream.kafka_wire.apis.discovery import FindCoordinatorRequest, FindCoordinatorResponse
from millstream.kafka_wire.apis.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import TopicPartition

COMMIT_TRIES_MAX = 3  # A query does not wait for its lag to be shown.
GROUP, TRANSACTION = 0, 1  # Key types of FindCoordinator.


def committed(
    cluster: Cluster, group: str, targets: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offsets that the group has committed; partitions without one are left out."""
    return {target: at.offset for target, at in _fetch(cluster, group, targets).items()}


def committed_with_metadata(
    cluster: Cluster, group: str, target: TopicPartition
) -> Committed | None:
    """The group's committed offset of one partition, with its text; None if there is none."""
    return _fetch(cluster, group, [target]).get(target)


def _fetch(
    cluster: Cluster, group: str, targets: Iterable[TopicPartition]
) -> dict[TopicPartition, Committed]:
    topics: dict[str, list[int]] = {}
    for target in sorted(targets):
        topics.setdefault(target.topic, []).append(target.partition)
    request = OffsetFetchRequest(
        group_id=group,
        topics=[
            OffsetFetchRequest.Topic(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ],
        require_stable=True,
    )

    def ask() -> dict[TopicPartition, Committed]:
        response = coordinator(cluster, group).call(request, OffsetFetchResponse)
        check(response.error_code, f"group {group}")
        offsets = {}
        for topic in response.topics:
            for partition in topic.partitions:
                target = TopicPartition(topic.name, partition.partition_index)
                if partition.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    check(partition.error_code, target)
                    offsets[target] = Committed(
                        partition.committed_offset, partition.metadata or ""
                    )
        return {target: at for target, at in offsets.items() if at.offset >= 0}

    return cluster.retry(f"read the offsets of group {group}", ask)


def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit for the group, in few tries; raises what the last one raised."""
    for attempt in range(1, COMMIT_TRIES_MAX + 1):
        try:
            _commit(cluster, group, offsets)
            break
        except RETRIED:
            cluster.forget()
            if attempt == COMMIT_TRIES_MAX:
                raise


def _commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    parts = OffsetCommitRequest.Topic
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            parts(
                name=topic,
                partitions=[
                    parts.Partition(partition_index=t.partition, committed_offset=offsets[t])
                    for t in sorted(offsets)
                    if t.topic == topic
                ],
            )
            for topic in sorted({t.topic for t in offsets})
        ],
    )
    response = coordinator(cluster, group).call(request, OffsetCommitResponse)
    for topic in response.topics:
        for partition in topic.partitions:
            try:
                check(partition.error_code, f"group {group}")
            except UnknownPartition:
                continue  # Deleted meanwhile: there is no lag to show.


def coordinator(cluster: Cluster, name: str, kind: int = GROUP) -> Connection:
    """A connection to the coordinator of a group, or of a transactional id."""
    request = FindCoordinatorRequest(key=name, key_type=kind)
    response = cluster.any_broker().call(request, FindCoordinatorResponse)
    check(response.error_code, f"{'transactional id' if kind else 'group'} {name}")
    return cluster.connection((response.host, response.port))
