"""librdkafka's consumer groups: sharing, committing, and a broker that goes away and comes back."""

import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.interop.conftest import PARTITIONS
from tests.interop.librdkafka.clients import QUIET, SECONDS_MAX, consuming, produce, take
from tests.interop.ownership import Ownership
from tests.interop.samples import samples
from tests.support.broker_process import BrokerProcess

STRATEGIES = ["range", "roundrobin", "cooperative-sticky"]


class Member:
    """A member of a group that tells what it owns, and commits before it gives it up."""

    def __init__(self, name: str, consumer: Consumer, topic: str, ownership: Ownership) -> None:
        self._name, self._consumer, self._ownership = name, consumer, ownership
        self.values: list[bytes] = []
        consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def poll(self) -> None:
        message = self._consumer.poll(0.02)
        if message is not None:
            assert message.error() is None, message.error()
            self.values.append(message.value())  # type: ignore[arg-type]

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._ownership.take(self._name, [partition.partition for partition in partitions])

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as problem:
            if problem.args[0].name() != "_NO_OFFSET":  # It read nothing since it last committed.
                raise
        self._ownership.give_up(self._name, [partition.partition for partition in partitions])


def until(claim: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + 2 * SECONDS_MAX
    while not claim():
        assert time.monotonic() < deadline, [len(member.values) for member in members]
        for member in members:
            member.poll()


def write_to_all(address: str, topic: str, first: int, count: int) -> set[bytes]:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, **QUIET})
    values = [b"%d" % number for number in range(first, first + count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(SECONDS_MAX) == 0
    return set(values)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_group_shares_partitions_while_a_member_joins_and_leaves(
    broker: BrokerProcess, topic: str, group: str, strategy: str
) -> None:
    ownership = Ownership()
    settings = {"group_id": group, "partition_assignment_strategy": strategy}
    written = write_to_all(broker.address, topic, 0, 90)

    with ExitStack() as first_life, ExitStack() as second_life:
        consumer = first_life.enter_context(consuming(broker.address, **settings))
        first = Member("first", consumer, topic, ownership)
        until(lambda: ownership.is_shared_by(["first"], PARTITIONS), first)

        consumer = second_life.enter_context(consuming(broker.address, **settings))
        second = Member("second", consumer, topic, ownership)
        until(lambda: ownership.is_shared_by(["first", "second"], PARTITIONS), first, second)
        written |= write_to_all(broker.address, topic, 90, 90)
        until(lambda: written <= {*first.values, *second.values}, first, second)
        shared = len(second.values)

        second_life.close()
        written |= write_to_all(broker.address, topic, 180, 90)
        until(lambda: ownership.is_shared_by(["first"], PARTITIONS), first)
        until(lambda: written <= {*first.values, *second.values}, first)

    assert ownership.clashes == []
    assert shared > 0
    # Every position was committed at its revocation: no record is read again.
    assert sorted([*first.values, *second.values]) == sorted(written)


def test_a_pattern_finds_the_topics_it_names(broker: BrokerProcess, topic: str, group: str) -> None:
    for name in (f"wanted.{topic}.a", f"wanted.{topic}.b", f"other.{topic}"):
        produce(broker.address, name, samples()[:1])

    with consuming(broker.address, group_id=group) as consumer:
        consumer.subscribe([rf"^wanted\.{topic}\..*"])
        taken = take(consumer, 2)

    assert {message.topic() for message in taken} == {f"wanted.{topic}.a", f"wanted.{topic}.b"}


def committed(consumer: Consumer, topic: str) -> int:
    return consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS_MAX)[0].offset


@pytest.mark.parametrize("leave", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill -9"])
def test_committed_offsets_and_acknowledged_records_outlive_the_broker(
    broker: BrokerProcess, topic: str, group: str, leave: Callable[[BrokerProcess], None]
) -> None:
    sent = samples()
    produce(broker.address, topic, sent, acks="all")
    with consuming(broker.address, group_id=group) as consumer:
        consumer.subscribe([topic])
        third = take(consumer, 3)[-1]
        consumer.commit(third, asynchronous=False)  # type: ignore[call-overload]

    leave(broker)
    broker.start()

    with consuming(broker.address, group_id=group) as consumer:
        assert committed(consumer, topic) == 3
        consumer.subscribe([topic])
        remaining = take(consumer, len(sent) - 3)
    assert [message.value() for message in remaining] == [sample.value for sample in sent[3:]]


@pytest.mark.parametrize("leave", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill -9"])
def test_clients_that_stay_go_on_when_the_broker_is_back(
    broker: BrokerProcess, topic: str, group: str, leave: Callable[[BrokerProcess], None]
) -> None:
    sent = samples()
    produce(broker.address, topic, sent)
    with consuming(broker.address, group_id=group) as consumer:
        consumer.subscribe([topic])
        before = take(consumer, len(sent))
        consumer.commit(before[-1], asynchronous=False)  # type: ignore[call-overload]

        leave(broker)
        broker.start()
        produce(broker.address, topic, sent)
        # A member that the new process does not know yet may have to join again first.
        deadline = time.monotonic() + SECONDS_MAX
        after: list[int] = []
        while len(after) < len(sent) and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                after.append(message.offset())  # type: ignore[arg-type]

    assert after == list(range(len(sent), 2 * len(sent)))


def test_a_commit_carries_its_metadata(broker: BrokerProcess, topic: str, group: str) -> None:
    produce(broker.address, topic, samples())

    with consuming(broker.address, group_id=group) as consumer:
        target = TopicPartition(topic, 0, 2, metadata="half way")
        consumer.commit(offsets=[target], asynchronous=False)
        committed = consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS_MAX)[0]

    assert (committed.offset, committed.metadata) == (2, "half way")


def test_a_static_member_that_returns_keeps_its_partitions(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    produce(broker.address, topic, samples())
    settings = {"group_id": group, "group_instance_id": "the-one"}
    ownership = Ownership()
    with consuming(broker.address, **settings) as consumer:
        member = Member("first", consumer, topic, ownership)
        until(lambda: len(member.values) == len(samples()), member)

    with consuming(broker.address, **settings) as consumer:
        again = Member("again", consumer, topic, ownership)
        until(lambda: ownership.is_shared_by(["again"], PARTITIONS), again)

    assert ownership.clashes == []


def first_error(consumer: Consumer) -> str:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is not None:
            return str(message.error().name())  # type: ignore[union-attr]
    return "none came"


def test_a_member_that_speaks_another_protocol_is_refused(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    ownership = Ownership()
    produce(broker.address, topic, samples())
    eager = {"group_id": group, "partition_assignment_strategy": "range"}
    other = {"group_id": group, "partition_assignment_strategy": "cooperative-sticky"}

    with consuming(broker.address, **eager) as consumer:
        member = Member("first", consumer, topic, ownership)
        until(lambda: ownership.is_shared_by(["first"], PARTITIONS), member)
        with consuming(broker.address, **other) as stranger:
            stranger.subscribe([topic])
            error = first_error(stranger)

    assert error == "INCONSISTENT_GROUP_PROTOCOL"


def test_a_session_timeout_below_what_the_broker_allows_is_refused(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    produce(broker.address, topic, samples())

    with consuming(broker.address, group_id=group, session_timeout_ms=1_000) as consumer:
        consumer.subscribe([topic])
        error = first_error(consumer)

    assert error == "INVALID_SESSION_TIMEOUT"
