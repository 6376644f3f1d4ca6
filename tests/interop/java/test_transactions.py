"""The Java client's transactions: what is committed is seen once, what is aborted never."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.java.clients import SECONDS_MAX, Admin, Consumer, Java, Producer, Record
from tests.interop.java.driver import JavaError
from tests.interop.samples import CODECS, Sample, samples
from tests.support.broker_process import BrokerProcess

QUIET_MS = 500  # For so long nothing more comes.


def numbers(first: int, count: int) -> list[Sample]:
    return [Sample(None, b"%d" % number, [], -1) for number in range(first, first + count)]


def values(records: list[Record]) -> list[int]:
    return [int(record.sample.value or b"") for record in records]


def read_all(java: Java, address: str, topic: str, isolation: str) -> list[int]:
    with java.consumer(address, isolation_level=isolation) as consumer:
        consumer.assign(topic)
        return values(consumer.drain())


def write_in_transaction(producer: Producer, topic: str, samples: list[Sample], end: str) -> None:
    producer.ask("begin")
    assert all(isinstance(outcome, tuple) for outcome in producer.send(topic, samples))
    producer.ask(end)


def wait_for_state(admin: Admin, verb: str, state: str, **named: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while admin.ask(verb, **named)["state"] != state:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("codec", CODECS)
def test_committed_records_are_read_and_aborted_ones_are_not(
    java: Java, broker: BrokerProcess, topic: str, codec: str
) -> None:
    settings = {"transactional_id": f"writer-{topic}", "compression_type": codec}
    with java.producer(broker.address, **settings) as producer:
        producer.ask("init")
        write_in_transaction(producer, topic, numbers(0, 10), "commit")
        write_in_transaction(producer, topic, numbers(10, 10), "abort")
        write_in_transaction(producer, topic, numbers(20, 10), "commit")

    committed = read_all(java, broker.address, topic, "read_committed")
    everything = read_all(java, broker.address, topic, "read_uncommitted")

    assert committed == [*range(10), *range(20, 30)]
    assert everything == list(range(30))


def test_an_open_transaction_holds_back_those_who_read_what_is_committed(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    at = f"{topic},0"
    with (
        java.producer(broker.address, transactional_id=f"slow-{topic}") as slow,
        java.producer(broker.address) as plain,
        java.consumer(broker.address, isolation_level="read_committed") as consumer,
    ):
        slow.ask("init")
        plain.send(topic, numbers(0, 1))
        slow.ask("begin")
        slow.send(topic, numbers(1, 1))
        plain.send(topic, numbers(2, 1))
        consumer.assign(topic)
        before, _ = consumer.poll(1_000_000, QUIET_MS)
        stable = consumer.ask("ends", partition=at)[1]
        slow.ask("commit")
        after = consumer.take(2)
        end = consumer.ask("ends", partition=at)[1]

    assert values(before) == [0]
    assert stable == [1]
    assert values(after) == [1, 2]
    assert end == [4]  # The mark of the commit takes an offset.


def test_one_transaction_spans_topics_and_partitions(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    other = f"{topic}-other"
    with java.producer(broker.address, transactional_id=f"wide-{topic}") as producer:
        producer.ask("init")
        for end, first in (("abort", 0), ("commit", 100)):
            producer.ask("begin")
            for partition in range(3):
                producer.send(topic, numbers(first + partition, 1), partition)
                producer.send(other, numbers(first + partition, 1), partition)
            producer.ask(end)

    for name in (topic, other):
        with java.consumer(broker.address, isolation_level="read_committed") as consumer:
            consumer.assign(name, 0, 1, 2)
            taken = consumer.drain()
        assert sorted((record.partition, *values([record])) for record in taken) == [
            (0, 100),
            (1, 101),
            (2, 102),
        ]


def test_short_transactions_follow_each_other_without_a_retry(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    """The next one meets the end of the last one, and waits for it on the broker."""
    partitions = [f"{topic},{partition}" for partition in range(3)]
    with java.producer(broker.address, transactional_id=f"short-{topic}") as producer:
        producer.ask("init")
        retried = producer.ask("short_transactions", count=200, partition=partitions)

    assert retried == 0
    for partition in range(3):
        with java.consumer(broker.address, isolation_level="read_committed") as consumer:
            consumer.assign(topic, partition)
            assert values(consumer.drain()) == list(range(200))


def test_a_producer_whose_id_is_taken_over_is_fenced(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    settings = {"transactional_id": f"shared-{topic}"}
    with (
        java.producer(broker.address, **settings) as old,
        java.producer(broker.address, **settings) as new,
    ):
        old.ask("init")
        old.ask("begin")
        old.send(topic, numbers(0, 3))
        new.ask("init")
        with pytest.raises(JavaError) as fenced:
            old.ask("commit")
        write_in_transaction(new, topic, numbers(10, 3), "commit")

    assert fenced.value.errors[0] in {"ProducerFencedException", "InvalidProducerEpochException"}
    assert read_all(java, broker.address, topic, "read_committed") == [10, 11, 12]


def test_a_producer_is_fenced_from_outside(java: Java, broker: BrokerProcess, topic: str) -> None:
    name = f"outside-{topic}"
    with (
        java.producer(broker.address, transactional_id=name) as producer,
        java.admin(broker.address) as admin,
    ):
        producer.ask("init")
        producer.ask("begin")
        producer.send(topic, numbers(0, 3))
        admin.ask("fence_producers", transactional_id=name)
        with pytest.raises(JavaError) as fenced:
            producer.ask("commit")

    assert fenced.value.errors[0] in {"ProducerFencedException", "InvalidProducerEpochException"}
    assert read_all(java, broker.address, topic, "read_committed") == []


def test_a_transaction_that_takes_too_long_is_aborted(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    settings = {"transactional_id": f"late-{topic}", "transaction_timeout_ms": 1_000}
    with (
        java.producer(broker.address, **settings) as producer,
        java.producer(broker.address) as plain,
        java.consumer(broker.address, isolation_level="read_committed") as consumer,
    ):
        producer.ask("init")
        producer.ask("begin")
        producer.send(topic, numbers(0, 3))
        plain.send(topic, numbers(10, 1))
        consumer.assign(topic)
        taken = consumer.take(1)  # Comes when the broker lost its patience, and not before.
        with pytest.raises(JavaError):
            producer.ask("commit")

    assert values(taken) == [10]


def test_a_timeout_longer_than_the_broker_allows_is_refused(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    settings = {"transactional_id": f"patient-{topic}", "transaction_timeout_ms": 7_200_000}
    with java.producer(broker.address, **settings) as producer, pytest.raises(JavaError) as refused:
        producer.ask("init")

    # Java has an exception for it and does not throw it here; the words are those of the error.
    assert "transaction timeout is larger than the maximum value" in str(refused.value)


@pytest.mark.parametrize("leave", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill -9"])
def test_a_transaction_goes_on_after_the_broker_is_back(
    java: Java, broker: BrokerProcess, topic: str, leave: Callable[[BrokerProcess], None]
) -> None:
    with java.producer(broker.address, transactional_id=f"lasting-{topic}") as producer:
        producer.ask("init")
        write_in_transaction(producer, topic, numbers(0, 5), "abort")
        producer.ask("begin")
        producer.send(topic, numbers(10, 5))
        leave(broker)
        broker.start()
        producer.send(topic, numbers(15, 5))
        producer.ask("commit")

    assert read_all(java, broker.address, topic, "read_committed") == list(range(10, 20))


# -- consume, transform, produce ---------------------------------------------------------------


def step(
    producer: Producer, consumer: Consumer, topics: tuple[str, str], count: int, end: str
) -> None:
    """Read some, write each doubled, and commit the position with them, or none of it."""
    source, sink = topics
    taken = consumer.take(count)
    producer.ask("begin")
    producer.send(sink, [Sample(None, b"%d" % (2 * value), [], -1) for value in values(taken)])
    producer.send_offset(consumer, source, 0, taken[-1].offset + 1)
    producer.ask(end)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_positions_are_committed_with_what_was_written_or_not_at_all(
    java: Java, broker: BrokerProcess, topic: str, group: str, protocol: str
) -> None:
    topics = (topic, f"{topic}-doubled")
    java.write(broker.address, topic, numbers(0, 30))
    reading: dict[str, Any] = {
        "group_id": group,
        "group_protocol": protocol,
        "max_poll_records": 10,
        "isolation_level": "read_committed",
    }
    with java.producer(broker.address, transactional_id=f"copier-{topic}") as producer:
        producer.ask("init")
        for end, expected in (("abort", None), ("commit", 10), ("abort", 10), ("commit", 20)):
            with java.consumer(broker.address, **reading) as consumer:
                consumer.ask("subscribe", topic=topic)
                step(producer, consumer, topics, 10, end)
                committed = consumer.committed(topic)
            assert (committed and committed[0]) == expected
        with java.consumer(broker.address, **reading) as consumer:
            consumer.ask("subscribe", topic=topic)
            step(producer, consumer, topics, 10, "commit")

    doubled = read_all(java, broker.address, topics[1], "read_committed")
    assert doubled == list(range(0, 60, 2))


def test_a_position_is_not_taken_from_somebody_outside_the_group(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    """The consumer's metadata names a member and a generation that the group has left behind."""
    java.write(broker.address, topic, samples())
    with (
        java.producer(broker.address, transactional_id=f"stale-{topic}") as producer,
        java.consumer(broker.address, group_id=group, max_poll_interval_ms=2_000) as consumer,
    ):
        producer.ask("init")
        consumer.ask("subscribe", topic=topic)
        consumer.take(1)
        with java.admin(broker.address) as admin:
            wait_for_state(admin, "describe_group", "Empty", group=group)
        producer.ask("begin")
        with pytest.raises(JavaError) as refused:
            producer.send_offset(consumer, topic, 0, 1)
        producer.ask("abort")

    assert "CommitFailedException" in refused.value.errors


# -- what operators see ------------------------------------------------------------------------


def test_transactions_and_their_producers_are_described(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    name = f"seen-{topic}"
    with (
        java.producer(broker.address, transactional_id=name) as producer,
        java.admin(broker.address) as admin,
    ):
        producer.ask("init")
        empty = admin.ask("describe_transaction", transactional_id=name)
        producer.ask("begin")
        producer.send(topic, numbers(0, 3))
        ongoing = admin.ask("describe_transaction", transactional_id=name)
        listed = admin.ask("list_transactions")
        (writing,) = admin.ask("describe_producers", partition=f"{topic},0")
        producer.ask("commit")
        wait_for_state(admin, "describe_transaction", "CompleteCommit", transactional_id=name)
        (written,) = admin.ask("describe_producers", partition=f"{topic},0")

    assert (empty["state"], empty["partitions"], empty["has_start"]) == ("Empty", [], False)
    assert (ongoing["state"], ongoing["partitions"]) == ("Ongoing", [f"{topic}-0"])
    assert ongoing["has_start"]
    assert ongoing["timeout_ms"] == 60_000
    assert listed[name] == "Ongoing"
    assert (writing["last_sequence"], writing["transaction_start"]) == (2, 0)
    assert written["transaction_start"] is None


def test_an_unknown_transaction_is_not_described(java: Java, broker: BrokerProcess) -> None:
    with java.admin(broker.address) as admin, pytest.raises(JavaError) as refused:
        admin.ask("describe_transaction", transactional_id="nobody")

    assert "TransactionalIdNotFoundException" in refused.value.errors


def test_an_operator_aborts_a_hanging_transaction(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    with (
        java.producer(broker.address, transactional_id=f"hanging-{topic}") as producer,
        java.producer(broker.address) as plain,
        java.admin(broker.address) as admin,
        java.consumer(broker.address, isolation_level="read_committed") as consumer,
    ):
        producer.ask("init")
        producer.ask("begin")
        producer.send(topic, numbers(0, 3))
        plain.send(topic, numbers(10, 1))
        admin.ask("abort_transaction", partition=f"{topic},0")
        consumer.assign(topic)
        taken = consumer.take(1)

    assert values(taken) == [10]
