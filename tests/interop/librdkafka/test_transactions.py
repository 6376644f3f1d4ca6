"""librdkafka's transactions: what readers see of them, who is fenced, and a broker that dies."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer, TopicPartition

from tests.interop.librdkafka.clients import QUIET, SECONDS_MAX, consuming, take
from tests.support.broker_process import BrokerProcess

PARTITIONS = 3


def transacting(broker: BrokerProcess, name: str, *, timeout_ms: int = 60_000) -> Producer:
    config: dict[str, Any] = {
        "bootstrap.servers": broker.address,
        "transactional.id": name,
        "transaction.timeout.ms": timeout_ms,
        "linger.ms": 5,
    }
    producer = Producer({**config, **QUIET})
    producer.init_transactions(SECONDS_MAX)
    return producer


def write(producer: Producer, topic: str, *values: bytes) -> None:
    for at, value in enumerate(values):
        producer.produce(topic, value, partition=at % PARTITIONS)
    assert producer.flush(SECONDS_MAX) == 0


@contextmanager
def reading(broker: BrokerProcess, topic: str, isolation: str) -> Iterator[Consumer]:
    with consuming(broker.address, isolation_level=isolation) as consumer:
        consumer.assign([TopicPartition(topic, at, 0) for at in range(PARTITIONS)])
        yield consumer


def read(broker: BrokerProcess, topic: str, isolation: str, count: int) -> list[bytes]:
    """The records that there are: so many, and no more."""
    with reading(broker, topic, isolation) as consumer:
        values = sorted(message.value() for message in take(consumer, count))  # type: ignore[type-var]
        assert consumer.poll(0.3) is None
    return values  # type: ignore[return-value]


def test_readers_of_committed_records_see_whole_transactions_only(
    broker: BrokerProcess, topic: str
) -> None:
    producer = transacting(broker, topic)

    for number in range(10):
        producer.begin_transaction()
        write(producer, topic, *[b"%d-%d" % (number, at) for at in range(6)])
        if number % 2:
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.commit_transaction(SECONDS_MAX)

    committed = read(broker, topic, "read_committed", 30)
    assert {value.split(b"-")[0] for value in committed} == {b"0", b"2", b"4", b"6", b"8"}
    assert len(read(broker, topic, "read_uncommitted", 60)) == 60


def test_an_open_transaction_is_not_seen_until_it_is_committed(
    broker: BrokerProcess, topic: str
) -> None:
    producer = transacting(broker, topic)
    producer.begin_transaction()
    write(producer, topic, b"a", b"b", b"c")

    with reading(broker, topic, "read_committed") as consumer:
        assert consumer.poll(0.5) is None
        producer.commit_transaction(SECONDS_MAX)
        assert sorted(message.value() for message in take(consumer, 3)) == [b"a", b"b", b"c"]  # type: ignore[type-var]


def test_a_second_producer_of_the_same_id_fences_the_first(
    broker: BrokerProcess, topic: str
) -> None:
    zombie = transacting(broker, topic)
    zombie.begin_transaction()
    write(zombie, topic, b"zombie")

    heir = transacting(broker, topic)
    heir.begin_transaction()
    write(heir, topic, b"heir")
    heir.commit_transaction(SECONDS_MAX)

    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(SECONDS_MAX)
    assert refused.value.args[0].fatal()
    assert read(broker, topic, "read_committed", 1) == [b"heir"]


def test_a_transaction_past_its_timeout_is_aborted(broker: BrokerProcess, topic: str) -> None:
    producer = transacting(broker, topic, timeout_ms=1_000)
    producer.begin_transaction()
    write(producer, topic, b"hanging")

    other = transacting(broker, f"{topic}-other")
    other.begin_transaction()
    write(other, topic, b"behind it")
    other.commit_transaction(SECONDS_MAX)

    assert read(broker, topic, "read_committed", 1) == [b"behind it"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS_MAX)


def test_a_transaction_survives_a_broker_that_is_killed_before_the_commit(
    broker: BrokerProcess, topic: str
) -> None:
    producer = transacting(broker, topic)
    producer.begin_transaction()
    write(producer, topic, b"before", b"before", b"before")

    broker.kill()
    broker.start()
    write(producer, topic, b"after")
    commit(producer)

    assert read(broker, topic, "read_committed", 4) == [b"after", *3 * [b"before"]]


def test_a_committed_transaction_survives_a_broker_that_is_killed_right_after(
    broker: BrokerProcess, topic: str
) -> None:
    producer = transacting(broker, topic)
    for number in range(5):
        producer.begin_transaction()
        write(producer, topic, *3 * [b"%d" % number])
        commit(producer)
        broker.kill()
        broker.start()

    assert read(broker, topic, "read_committed", 15) == sorted(3 * [b"0", b"1", b"2", b"3", b"4"])


def test_offsets_and_records_are_committed_together(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    producer = transacting(broker, topic)
    with consuming(broker.address, group_id=group) as consumer:
        consumer.subscribe([topic])
        producer.begin_transaction()
        write(producer, topic, b"in")
        producer.commit_transaction(SECONDS_MAX)
        take(consumer, 1)
        position = consumer.position(consumer.assignment())

        for is_committed in (False, True):
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                position, consumer.consumer_group_metadata(), SECONDS_MAX
            )
            if is_committed:
                producer.commit_transaction(SECONDS_MAX)
            else:
                producer.abort_transaction(SECONDS_MAX)
            committed = consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS_MAX)
            assert [item.offset for item in committed] == (
                [1] if is_committed else [OFFSET_INVALID]
            )


def commit(producer: Producer) -> None:
    """As an application does: again after an error that says it may be tried again."""
    deadline = time.monotonic() + 2 * SECONDS_MAX
    while True:
        try:
            producer.commit_transaction(SECONDS_MAX)
            return
        except KafkaException as problem:
            if not problem.args[0].retriable() or time.monotonic() > deadline:
                raise
