"""Committed offsets: where a query stands, as a consumer group that every tool can see.

Owns the talk with a group's coordinator. The group has no members: Spark itself decides who reads
what, and the checkpoint, not the group, is what a query goes on from.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millstream.errors import ProtocolError
from millstream.kafka_wire.apis.discovery import FindCoordinatorRequest, FindCoordinatorResponse
from millstream.kafka_wire.apis.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import TopicPartition
from millstream.spark.cluster import Again, Cluster, check
from millstream.spark.errors import UnknownPartition
from millstream.spark.wire import Connection

COMMIT_TRIES_MAX = 3  # A query does not wait for its lag to be shown.
GROUP, TRANSACTION = 0, 1  # What a coordinator is asked for.


class Noted(NamedTuple):
    """A committed offset, and the text that was committed with it."""

    offset: int
    note: str


def committed(
    cluster: Cluster, group: str, targets: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offsets that the group has committed; partitions without one are left out."""
    return {target: found.offset for target, found in _fetch(cluster, group, targets).items()}


def noted(cluster: Cluster, group: str, target: TopicPartition) -> Noted | None:
    """What the group has committed of one partition."""
    return _fetch(cluster, group, [target]).get(target)


def _fetch(
    cluster: Cluster, group: str, targets: Iterable[TopicPartition]
) -> dict[TopicPartition, Noted]:
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

    def ask() -> dict[TopicPartition, Noted]:
        response = coordinator(cluster, group).call(request, OffsetFetchResponse)
        check(response.error_code, f"group {group}")
        found = {}
        for topic in response.topics:
            for partition in topic.partitions:
                target = TopicPartition(topic.name, partition.partition_index)
                if partition.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    check(partition.error_code, target)
                    found[target] = Noted(partition.committed_offset, partition.metadata or "")
        return {target: one for target, one in found.items() if one.offset >= 0}

    return cluster.patiently(f"read the offsets of group {group}", ask)


def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit for the group, in few tries; raises what the last one raised."""
    for attempt in range(1, COMMIT_TRIES_MAX + 1):
        try:
            _commit(cluster, group, offsets)
            break
        except (OSError, ProtocolError, Again):
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
    """The broker that keeps the books on a group, or on a transactional id."""
    request = FindCoordinatorRequest(key=name, key_type=kind)
    response = cluster.anyone().call(request, FindCoordinatorResponse)
    check(response.error_code, f"{'transactional id' if kind else 'group'} {name}")
    return cluster.connection((response.host, response.port))
