"""Sends one record over a connection of `kafka_client`, for a command that sends nothing else.

librdkafka's idempotent producer takes 30 to 1,000 ms for its first record: if its connection is not
up when it wants a producer id, it looks again after 500 ms. Here the id, the metadata and the
record are three requests, one after the other. Owns the promise that the record is written once:
it has a producer id and a sequence, and every further attempt sends the same batch.

`NotSent` means that the record was certainly not written: librdkafka's producer may send it, and
knows the sentence for what is wrong.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic, sleep, time_ns
from typing import NamedTuple

from millstream.client._librdkafka.link import dotted
from millstream.client.errors import ClientError, TimedOut
from millstream.client.extensions.requests import Config, connection_settings
from millstream.codec.encoding import encode_batch
from millstream.codec.murmur2 import partition_hash
from millstream.codec.records import Record
from millstream.errors import MillstreamError, ProtocolError
from millstream.kafka_client.cluster import Cluster
from millstream.kafka_client.errors import TransientError
from millstream.kafka_wire.apis.data import ProduceRequest, ProduceResponse
from millstream.kafka_wire.apis.transactions import InitProducerIdRequest, InitProducerIdResponse
from millstream.kafka_wire.error_codes import ErrorCode, name_of
from millstream.model import TopicPartition

# Larger ones are for librdkafka, which compares them with its own limits first.
RECORD_BYTES_MAX = 64 * 2**10
RETRY_S = 0.1
ALL_REPLICAS = -1
# Settings that `connection_settings` understands; any other is for librdkafka alone.
_KNOWN_SETTINGS = ("client.id", "security.protocol", "sasl.", "ssl.", "enable.ssl.")
# Codes of a broker that did not write the batch, and would not if asked again.
_REFUSED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.POLICY_VIOLATION,
    }
)
_LOST = (OSError, ProtocolError, TransientError)


class NotSent(Exception):
    """The record was certainly not written."""


class Place(NamedTuple):
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleRecord:
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None

    @property
    def size(self) -> int:
        named = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + named


def send_once(
    record: SingleRecord,
    address: str,
    settings: Config,
    *,
    timeout_s: float,
    waiting: Callable[[], None],
) -> Place:
    """Write the record, with `acks=all`, and return where it is; raises `NotSent`.

    `waiting` is called between two attempts, and may raise. A record whose fate is not known when
    the time is over raises `TimedOut`.
    """
    deadline = monotonic() + timeout_s
    with _before_it_is_sent():
        cluster = _cluster(record, address, settings, timeout_s)
        try:
            target, batch = _prepare(cluster, record)
        except BaseException:
            cluster.forget()
            raise
    try:
        return _write(cluster, target, batch, deadline, timeout_s, waiting)
    finally:
        cluster.forget()


@contextmanager
def _before_it_is_sent() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, MillstreamError) as problem:
        raise NotSent(str(problem)) from problem


def _cluster(record: SingleRecord, address: str, settings: Config, timeout_s: float) -> Cluster:
    config = dotted(settings)
    for name in config:
        if not name.startswith(_KNOWN_SETTINGS):
            raise NotSent(f"{name} is librdkafka's")
    if record.size > RECORD_BYTES_MAX:
        raise NotSent("it is large")
    brokers = []
    for broker in address.split(","):
        host, _, port = broker.strip().rpartition(":")
        brokers.append((host.strip("[]"), int(port)))
    client = connection_settings(brokers[0], config, doing="send", timeout_s=timeout_s)
    # One attempt: a broker that is not there is for librdkafka, which waits for it.
    return Cluster(replace(client, bootstrap=tuple(brokers), patience_ms=0))


def _prepare(cluster: Cluster, record: SingleRecord) -> tuple[TopicPartition, bytes]:
    count = cluster.partition_count(record.topic)
    if record.partition is not None:
        partition = record.partition
    elif record.key is not None:
        partition = partition_hash(record.key) % count
    else:
        partition = random.randrange(count)
    if not 0 <= partition < count:
        raise NotSent(f"{record.topic} has {count} partitions")
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    producer = cluster.any_broker().call(request, InitProducerIdResponse)
    if producer.error_code:
        raise NotSent(name_of(producer.error_code))
    batch = encode_batch(
        [Record(0, time_ns() // 1_000_000, record.key, record.value, record.headers)],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
    )
    return TopicPartition(record.topic, partition), batch


def _write(
    cluster: Cluster,
    target: TopicPartition,
    batch: bytes,
    deadline: float,
    timeout_s: float,
    waiting: Callable[[], None],
) -> Place:
    is_first = True
    while True:
        try:
            ((leader, _),) = cluster.leader_addresses([target]).items()
            connection = cluster.connection(leader)
        except _LOST as problem:
            if is_first:
                raise NotSent(str(problem)) from problem
            reason = str(problem)
        else:
            try:
                request = _request(target, batch, timeout_s)
                answer = connection.call(request, ProduceResponse).responses[0]
                (outcome,) = answer.partition_responses
            except _LOST as problem:
                reason = str(problem)
            else:
                code = ErrorCode(outcome.error_code)
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    return Place(target.partition, outcome.base_offset)
                reason = outcome.error_message or name_of(code)
                if code in _REFUSED:
                    # After an attempt whose answer was lost this proves nothing about that one.
                    if is_first:
                        raise NotSent(reason)
                    raise ClientError(f"cannot send to {target.topic!r}: {reason}.", code=code.name)
        if monotonic() > deadline:
            raise TimedOut(
                f"cannot send to {target.topic!r}: {reason}; after {timeout_s:g} s it is not known "
                "whether the record was written.",
                retriable=True,
            )
        is_first = False
        cluster.forget()
        waiting()
        sleep(RETRY_S)


def _request(target: TopicPartition, batch: bytes, timeout_s: float) -> ProduceRequest:
    part = ProduceRequest.Topic.Partition(index=target.partition, records=batch)
    return ProduceRequest(
        transactional_id=None,
        acks=ALL_REPLICAS,
        timeout_ms=round(timeout_s * 1000),
        topic_data=[ProduceRequest.Topic(name=target.topic, partition_data=[part])],
    )
