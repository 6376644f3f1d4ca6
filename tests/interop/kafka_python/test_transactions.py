"""kafka-python's transactions, and its tools that look into them and end them by hand."""

import time

import pytest
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from kafka import KafkaProducer, TopicPartition
from tests.interop.kafka_python.clients import (
    SECONDS_MAX,
    administering,
    consuming,
    poll,
    producing,
    take,
)
from tests.support.broker_process import BrokerProcess

TRANSACTIONAL = {"enable_idempotence": True, "acks": "all", "transaction_timeout_ms": 60_000}


def write(producer: KafkaProducer, topic: str, *values: bytes) -> None:
    for future in [producer.send(topic, value, partition=0) for value in values]:
        future.get(timeout=SECONDS_MAX)


def read(broker: BrokerProcess, topic: str, isolation: str, count: int) -> list[bytes]:
    """The records that there are: so many, and no more."""
    with consuming(broker.address, isolation_level=isolation) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values = [record.value for record in take(consumer, count)]
        assert poll(consumer) == []
    return values


def test_readers_of_committed_records_see_whole_transactions_only(
    broker: BrokerProcess, topic: str
) -> None:
    with producing(broker.address, **TRANSACTIONAL, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            write(producer, topic, b"%d" % number, b"%d" % number)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()

    assert read(broker, topic, "read_committed", 6) == [b"0", b"0", b"2", b"2", b"4", b"4"]
    assert len(read(broker, topic, "read_uncommitted", 12)) == 12


def test_a_second_producer_of_the_same_id_fences_the_first(
    broker: BrokerProcess, topic: str
) -> None:
    settings = {**TRANSACTIONAL, "transactional_id": topic}
    with producing(broker.address, **settings) as zombie:
        zombie.init_transactions()
        zombie.begin_transaction()
        write(zombie, topic, b"zombie")
        with producing(broker.address, **settings) as heir:
            heir.init_transactions()
            heir.begin_transaction()
            write(heir, topic, b"heir")
            heir.commit_transaction()

        with pytest.raises(KafkaError):
            zombie.commit_transaction()

    assert read(broker, topic, "read_committed", 1) == [b"heir"]


def test_a_transaction_survives_a_broker_that_is_killed_before_the_commit(
    broker: BrokerProcess, topic: str
) -> None:
    with producing(broker.address, **TRANSACTIONAL, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        write(producer, topic, b"before")
        broker.kill()
        broker.start()
        write(producer, topic, b"after")
        producer.commit_transaction()

    assert read(broker, topic, "read_committed", 2) == [b"before", b"after"]


def test_offsets_are_committed_with_the_records_or_not_at_all(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    place = TopicPartition(topic, 0)
    with (
        producing(broker.address, **TRANSACTIONAL, transactional_id=topic) as producer,
        consuming(broker.address, group_id=group) as consumer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        write(producer, topic, b"a")
        producer.commit_transaction()
        consumer.assign([place])

        for is_committed in (False, True):
            producer.begin_transaction()
            offsets = {place: OffsetAndMetadata(1, "", -1)}
            producer.send_offsets_to_transaction(offsets, group)
            if is_committed:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
                assert consumer.committed(place) is None

        # A commit is answered before its marker is written, and this client asks for what is.
        deadline = time.monotonic() + SECONDS_MAX
        while (committed := consumer.committed(place)) is None:
            assert time.monotonic() < deadline
        assert committed == 1


def test_tools_list_and_describe_transactions_and_producers(
    broker: BrokerProcess, topic: str
) -> None:
    with (
        producing(broker.address, **TRANSACTIONAL, transactional_id=topic) as producer,
        administering(broker.address) as admin,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        write(producer, topic, b"a")

        listed = admin.list_transactions()
        described = admin.describe_transactions([topic])
        producers = admin.describe_producers([TopicPartition(topic, 0)])
        producer.commit_transaction()

    assert topic in str(listed)
    assert "Ongoing" in str(described).replace("ONGOING", "Ongoing")
    assert "producer_id" in str(producers)
