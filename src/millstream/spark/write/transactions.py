"""Sends the requests of transactions: producer ids, partitions, ends, and whole batches.

Each request to a transaction's coordinator is retried until the time limit. All of them may be sent
twice: a broker that has done the work already gives the same response.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millstream.kafka_client.cluster import Cluster, check
from millstream.kafka_client.coordinator import GROUP, TRANSACTION, coordinator
from millstream.kafka_client.errors import TransientError
from millstream.kafka_wire.apis.millstream import (
    BeginBatchRequest,
    BeginBatchResponse,
    EndBatchRequest,
    EndBatchResponse,
    RenewBatchRequest,
    RenewBatchResponse,
)
from millstream.kafka_wire.apis.offsets import OffsetFetchRequest, OffsetFetchResponse
from millstream.kafka_wire.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from millstream.kafka_wire.error_codes import RETRIABLE, ErrorCode
from millstream.model import NO_PRODUCER, Producer, TopicPartition
from millstream.spark.errors import BatchRefused, Fenced

_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class Member(NamedTuple):
    """A task's transaction, and its producer."""

    transactional_id: str
    producer: Producer


class Opened(NamedTuple):
    """A batch group as it was opened. Drivers that opened it before are fenced."""

    term: int
    series: str  # In which batches are numbered; empty if none was ever committed.
    last_committed_batch: int


def new_producer(cluster: Cluster) -> Producer:
    """A producer without transactions."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)

    def ask() -> Producer:
        response = cluster.any_broker().call(request, InitProducerIdResponse)
        check(response.error_code, "a producer id")
        return Producer(response.producer_id, response.producer_epoch)

    return cluster.retry("get a producer id", ask)


def begin(cluster: Cluster, transactional_id: str, timeout_ms: int) -> Member:
    """Take over the id; what another has open under it is aborted."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )

    def ask() -> Member:
        connection = coordinator(cluster, transactional_id, TRANSACTION)
        response = connection.call(request, InitProducerIdResponse)
        check_unfenced(response.error_code, transactional_id)
        return Member(transactional_id, Producer(response.producer_id, response.producer_epoch))

    return cluster.retry(f"begin transaction {transactional_id}", ask)


def add_partitions(cluster: Cluster, member: Member, targets: Iterable[TopicPartition]) -> None:
    topics: dict[str, list[int]] = {}
    for target in sorted(targets):
        topics.setdefault(target.topic, []).append(target.partition)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=member.transactional_id,
        v3_and_below_producer_id=member.producer.producer_id,
        v3_and_below_producer_epoch=member.producer.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.Topic(name=name, partitions=numbers)
            for name, numbers in topics.items()
        ],
    )

    def ask() -> None:
        connection = coordinator(cluster, member.transactional_id, TRANSACTION)
        response = connection.call(request, AddPartitionsToTxnResponse)
        for topic in response.results_by_topic_v3_and_below:
            for part in topic.results_by_partition:
                if part.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                    where = TopicPartition(topic.name, part.partition_index)
                    check_unfenced(part.partition_error_code, where)

    cluster.retry(f"add partitions to {member.transactional_id}", ask)


def end(cluster: Cluster, member: Member, *, commits: bool) -> None:
    cluster.retry(
        f"end transaction {member.transactional_id}",
        lambda: end_now(cluster, member, commits=commits),
    )


def end_now(cluster: Cluster, member: Member, *, commits: bool) -> None:
    """End the transaction in one try."""
    request = EndTxnRequest(
        transactional_id=member.transactional_id,
        producer_id=member.producer.producer_id,
        producer_epoch=member.producer.epoch,
        committed=commits,
    )
    connection = coordinator(cluster, member.transactional_id, TRANSACTION)
    check_unfenced(connection.call(request, EndTxnResponse).error_code, member.transactional_id)


# -- offsets that remember batches -----------------------------------------------------------------


def remembered(cluster: Cluster, group: str) -> int:
    """The highest offset that the group has committed anywhere, 0 if none."""
    request = OffsetFetchRequest(group_id=group, topics=None, require_stable=True)

    def ask() -> int:
        response = coordinator(cluster, group, GROUP).call(request, OffsetFetchResponse)
        check(response.error_code, f"group {group}")
        offsets = [0]
        for topic in response.topics:
            for part in topic.partitions:
                check(part.error_code, TopicPartition(topic.name, part.partition_index))
                offsets.append(part.committed_offset)
        return max(offsets)

    return cluster.retry(f"read the offsets of group {group}", ask)


def remember(
    cluster: Cluster,
    member: Member,
    group: str,
    target: TopicPartition,
    number: int,
    *,
    note: str = "",
) -> None:
    """Have the group commit `number` as an offset, in the transaction."""
    joins = AddOffsetsToTxnRequest(
        transactional_id=member.transactional_id,
        producer_id=member.producer.producer_id,
        producer_epoch=member.producer.epoch,
        group_id=group,
    )
    topic = TxnOffsetCommitRequest.Topic
    part = topic.Partition(
        partition_index=target.partition, committed_offset=number, committed_metadata=note
    )
    commits = TxnOffsetCommitRequest(
        transactional_id=member.transactional_id,
        group_id=group,
        producer_id=member.producer.producer_id,
        producer_epoch=member.producer.epoch,
        topics=[topic(name=target.topic, partitions=[part])],
    )

    def ask() -> None:
        connection = coordinator(cluster, member.transactional_id, TRANSACTION)
        check_unfenced(connection.call(joins, AddOffsetsToTxnResponse).error_code, group)
        answer = coordinator(cluster, group, GROUP).call(commits, TxnOffsetCommitResponse)
        for topic in answer.topics:
            for partition in topic.partitions:
                check_unfenced(partition.error_code, group)

    cluster.retry(f"commit offsets of group {group}", ask)


# -- batches of transactions -----------------------------------------------------------------------


def has_batches(cluster: Cluster) -> bool:
    """Whether the cluster can end many transactions as one: Millstream can, Kafka can't."""
    return cluster.retry("reach a broker", lambda: cluster.any_broker().serves(BeginBatchRequest))


def begin_batch(cluster: Cluster, group: str) -> Opened:
    """Open the group; ends the transactions that an earlier holder left open."""
    request = BeginBatchRequest(group=group)

    def ask() -> Opened:
        connection = coordinator(cluster, group, TRANSACTION)
        response = connection.call(request, BeginBatchResponse)
        _check_batch(response.error_code, response.error_message, group)
        return Opened(response.term, response.series, response.last_committed_batch)

    return cluster.retry(f"begin a batch of {group}", ask)


def renews_batches(cluster: Cluster) -> bool:
    """Whether open batches can be renewed; earlier versions of Millstream can't."""
    return cluster.retry("reach a broker", lambda: cluster.any_broker().serves(RenewBatchRequest))


def renew_batch(cluster: Cluster, group: str, term: int, member: Member | None) -> None:
    """Renew the lease of all transactions of the batch.

    Raises `Fenced` or `BatchRefused` if the batch, or the transaction of `member`, is lost.
    """
    producer = NO_PRODUCER if member is None else member.producer
    request = RenewBatchRequest(
        group=group,
        term=term,
        transactional_id=None if member is None else member.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )

    def ask() -> None:
        connection = coordinator(cluster, group, TRANSACTION)
        response = connection.call(request, RenewBatchResponse)
        _check_batch(response.error_code, response.error_message, group)

    cluster.retry(f"renew the batch of {group}", ask)


def end_batch(
    cluster: Cluster,
    group: str,
    term: int,
    *,
    series: str,
    batch_id: int,
    commits: bool,
    members: Sequence[Member],
) -> None:
    """Commit all members, or abort them. Raises `Fenced` or `BatchRefused`, with nothing done."""
    request = EndBatchRequest(
        group=group,
        term=term,
        series=series,
        batch_id=batch_id,
        committed=commits,
        members=[
            EndBatchRequest.Member(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
            )
            for transactional_id, producer in members
        ],
    )

    def ask() -> None:
        connection = coordinator(cluster, group, TRANSACTION)
        response = connection.call(request, EndBatchResponse)
        _check_batch(response.error_code, response.error_message, group)

    cluster.retry(f"end batch {batch_id} of {group}", ask)


def check_unfenced(code: int, subject: object) -> None:
    """Raise `Fenced` if another has taken over, else the error of the code."""
    if code in _FENCED:
        raise Fenced(subject)
    check(code, subject)


def _check_batch(code: int, message: str | None, group: str) -> None:
    if code in RETRIABLE:
        raise TransientError(f"{group}: {message or code}")
    if code in _FENCED:
        raise Fenced(group)
    if code == ErrorCode.INVALID_TXN_STATE:
        raise BatchRefused(message or group)
    check(code, group)
