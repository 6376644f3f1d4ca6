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
from millstream.names import BATCH_MEMBER_MARK

COMMIT_TRIES_MAX = 3  # A query does not wait for its lag to be shown.
COORDINATORS_MAX = 1_000  # That one client remembers.
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


class Commits:
    """Commits offsets for one group without waiting; the answer is taken with the next commit.

    Offsets only show where a query stands, so a lost commit is made up for by the next one.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._unanswered: Connection | None = None

    def send(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Raises what the commit before met, or what sending met; then the next one may work."""
        self.finish()
        address = coordinator(self._cluster, self._group).address
        connection = self._cluster.take_connection(address)
        try:
            connection.send(_commit_request(self._group, offsets))
        except BaseException:
            connection.close()
            self._cluster.forget()
            raise
        self._unanswered = connection

    def finish(self) -> None:
        """Take the answer to the last commit, if it was not taken yet."""
        connection, self._unanswered = self._unanswered, None
        if connection is None:
            return
        try:
            _check_commit(self._group, connection.receive(OffsetCommitResponse))
        except RETRIED:
            self._cluster.forget()  # The coordinator may have moved.
            raise
        finally:
            self._cluster.give_back(connection)

    def __del__(self) -> None:
        # Spark drops readers without a word: the connection is in no pool until it is answered.
        if self._unanswered is not None:
            self._unanswered.close()


def _commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    connection = coordinator(cluster, group)
    request = _commit_request(group, offsets)
    _check_commit(group, connection.call(request, OffsetCommitResponse))


def _commit_request(group: str, offsets: Mapping[TopicPartition, int]) -> OffsetCommitRequest:
    parts = OffsetCommitRequest.Topic
    return OffsetCommitRequest(
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


def _check_commit(group: str, response: OffsetCommitResponse) -> None:
    for topic in response.topics:
        for partition in topic.partitions:
            try:
                check(partition.error_code, f"group {group}")
            except UnknownPartition:
                continue  # Deleted meanwhile: there is no lag to show.


def coordinator(cluster: Cluster, name: str, kind: int = GROUP) -> Connection:
    """A connection to the coordinator of a group, or of a transactional id.

    It is looked up once: `Cluster.retry` forgets it when a request to it fails. All transactions of
    a batch group have one coordinator.
    """
    key = (kind, name.partition(BATCH_MEMBER_MARK)[0])
    address = cluster.coordinators.get(key)
    if address is None:
        request = FindCoordinatorRequest(key=name, key_type=kind)
        response = cluster.any_broker().call(request, FindCoordinatorResponse)
        check(response.error_code, f"{'transactional id' if kind else 'group'} {name}")
        address = (response.host, response.port)
        if len(cluster.coordinators) >= COORDINATORS_MAX:
            cluster.coordinators.clear()
        cluster.coordinators[key] = address
    return cluster.connection(address)
