"""librdkafka's consumers of the new kind (`group.protocol=consumer`): the broker shares out."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.interop.conftest import PARTITIONS
from tests.interop.librdkafka.clients import QUIET, SECONDS_MAX, produce, take
from tests.interop.librdkafka.test_groups import Member, until, write_to_all
from tests.interop.ownership import Ownership
from tests.interop.samples import samples
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Members are heard of often, so that a rebalance takes a few tenths of a second."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        DEFAULT_PARTITIONS=PARTITIONS,
        TIMING__CONSUMER_HEARTBEAT_INTERVAL_MS=100,
        TIMING__CONSUMER_SESSION_TIMEOUT_MS=6_000,
    )
    process.start()
    yield process
    process.kill()


@contextmanager
def consuming(address: str, group: str, **settings: object) -> Iterator[Consumer]:
    config = {
        "bootstrap.servers": address,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,
        "topic.metadata.refresh.interval.ms": 500,
        **QUIET,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    consumer = Consumer(config)
    try:
        yield consumer
    finally:
        consumer.close()


def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address, **QUIET})


class Load(Thread):
    """A producer that writes to all partitions until it is told to end."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__()
        self.written: set[bytes] = set()
        self._address, self._topic = address, topic
        self._ended = Event()

    def run(self) -> None:
        while not self._ended.is_set():
            self.written |= write_to_all(self._address, self._topic, len(self.written), 30)
            self._ended.wait(0.02)

    def end(self) -> None:
        self._ended.set()
        self.join(SECONDS_MAX)


def test_a_group_shares_partitions_while_members_come_and_go_under_load(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    ownership = Ownership()
    load = Load(broker.address, topic)
    members: dict[str, Member] = {}
    everyone: list[Member] = []
    lives: dict[str, ExitStack] = {}

    def come(name: str) -> None:
        lives[name] = ExitStack()
        consumer = lives[name].enter_context(consuming(broker.address, group))
        members[name] = Member(name, consumer, topic, ownership)
        everyone.append(members[name])

    def go(name: str) -> None:
        lives.pop(name).close()
        del members[name]

    def share() -> None:
        until(lambda: ownership.is_shared_by(members, PARTITIONS), *members.values())

    load.start()
    try:
        for name in ("first", "second", "third"):
            come(name)
            share()
        go("first")
        share()
        come("fourth")
        share()
        go("second")
        go("third")
        share()
        load.end()
        read = lambda: [value for member in everyone for value in member.values]  # noqa: E731
        until(lambda: load.written <= set(read()), *members.values())
    finally:
        load.end()
        for life in lives.values():
            life.close()

    assert ownership.clashes == []
    # Every position was committed at its revocation: no record is read again.
    assert sorted(read()) == sorted(load.written)


@pytest.mark.parametrize("leave", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill -9"])
def test_members_stay_when_the_broker_goes_and_comes_back(
    broker: BrokerProcess, topic: str, group: str, leave: Callable[[BrokerProcess], None]
) -> None:
    ownership = Ownership()
    written = write_to_all(broker.address, topic, 0, 30)

    with consuming(broker.address, group) as reader, consuming(broker.address, group) as other:
        first = Member("first", reader, topic, ownership)
        second = Member("second", other, topic, ownership)
        until(lambda: ownership.is_shared_by(["first", "second"], PARTITIONS), first, second)
        owned = ownership.of("first"), ownership.of("second")
        until(lambda: written <= {*first.values, *second.values}, first, second)

        leave(broker)
        broker.start()
        written |= write_to_all(broker.address, topic, 30, 30)
        until(lambda: written <= {*first.values, *second.values}, first, second)

        assert (ownership.of("first"), ownership.of("second")) == owned
    assert ownership.clashes == []


def test_a_pattern_finds_topics_that_are_there_and_that_come(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    for name in (f"wanted.{topic}.a", f"other.{topic}"):
        produce(broker.address, name, samples()[:1])

    with consuming(broker.address, group) as consumer:
        consumer.subscribe([rf"^wanted\.{topic}\..*"])
        first = take(consumer, 1)
        produce(broker.address, f"wanted.{topic}.b", samples()[:1])
        second = take(consumer, 1)

    assert [message.topic() for message in (*first, *second)] == [
        f"wanted.{topic}.a",
        f"wanted.{topic}.b",
    ]


def test_partitions_that_are_added_are_read(broker: BrokerProcess, topic: str, group: str) -> None:
    client = admin(broker)
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS_MAX)
    ownership = Ownership()
    with consuming(broker.address, group) as consumer:
        member = Member("one", consumer, topic, ownership)
        until(lambda: ownership.of("one") == {0}, member)

        client.create_partitions([NewPartitions(topic, 3)])[topic].result(SECONDS_MAX)

        until(lambda: ownership.of("one") == {0, 1, 2}, member)


def test_an_administrator_sees_the_group(broker: BrokerProcess, topic: str, group: str) -> None:
    ownership = Ownership()
    client = admin(broker)
    produce(broker.address, topic, samples())

    with consuming(broker.address, group, client_id="reader") as consumer:
        member = Member("one", consumer, topic, ownership)
        until(lambda: ownership.is_shared_by(["one"], PARTITIONS), member)
        listed = client.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(SECONDS_MAX)
        seen = client.describe_consumer_groups([group])[group].result(SECONDS_MAX)
        with pytest.raises(KafkaException) as refused:
            client.delete_consumer_groups([group])[group].result(SECONDS_MAX)

    (mine,) = [listing for listing in listed.valid if listing.group_id == group]
    assert (mine.state, mine.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert (seen.state, seen.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert seen.partition_assignor == "uniform"
    (described_member,) = seen.members
    assert described_member.client_id == "reader"
    shares = described_member.assignment.topic_partitions
    assert {(share.topic, share.partition) for share in shares} == {
        (topic, n) for n in range(PARTITIONS)
    }
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP

    client.delete_consumer_groups([group])[group].result(SECONDS_MAX)


def test_a_static_member_that_returns_keeps_its_partitions(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    ownership = Ownership()
    produce(broker.address, topic, samples())
    with consuming(broker.address, group) as other, ExitStack() as life:
        neighbour = Member("other", other, topic, ownership)
        static = {"group_instance_id": "the-one"}
        consumer = life.enter_context(consuming(broker.address, group, **static))
        member = Member("static", consumer, topic, ownership)
        until(lambda: ownership.is_shared_by(["other", "static"], PARTITIONS), neighbour, member)
        owned = ownership.of("static")
        life.close()

        consumer = life.enter_context(consuming(broker.address, group, **static))
        again = Member("static", consumer, topic, ownership)
        until(lambda: ownership.is_shared_by(["other", "static"], PARTITIONS), neighbour, again)

        assert ownership.of("static") == owned
    assert ownership.clashes == []


def test_committed_offsets_are_found_again(broker: BrokerProcess, topic: str, group: str) -> None:
    sent = samples()
    produce(broker.address, topic, sent)
    with consuming(broker.address, group) as consumer:
        consumer.subscribe([topic])
        consumer.commit(take(consumer, 3)[-1], asynchronous=False)  # type: ignore[call-overload]

    with consuming(broker.address, group) as consumer:
        consumer.subscribe([topic])
        remaining = take(consumer, len(sent) - 3)
        committed = consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS_MAX)[0]

    assert [message.value() for message in remaining] == [sample.value for sample in sent[3:]]
    assert committed.offset == 3


def test_a_group_without_members_may_change_its_protocol(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    sent = samples()
    produce(broker.address, topic, sent)
    for protocol in ("consumer", "classic", "consumer"):
        with consuming(broker.address, group, group_protocol=protocol) as consumer:
            consumer.subscribe([topic])
            consumer.commit(take(consumer, 1)[0], asynchronous=False)  # type: ignore[call-overload]

    with consuming(broker.address, group) as consumer:
        committed = consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS_MAX)[0]
    assert committed.offset == 3


def first_error(consumer: Consumer) -> str:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is not None:
            return str(message.error())
    return "none came"


def test_members_of_the_two_protocols_do_not_mix(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    produce(broker.address, topic, samples())
    ownership = Ownership()
    with consuming(broker.address, group) as consumer:
        member = Member("one", consumer, topic, ownership)
        until(lambda: ownership.is_shared_by(["one"], PARTITIONS), member)

        with consuming(broker.address, group, group_protocol="classic") as stranger:
            stranger.subscribe([topic])
            assert "INCONSISTENT_GROUP_PROTOCOL" in first_error(stranger)


def test_a_bad_pattern_is_told_to_the_consumer(broker: BrokerProcess, group: str) -> None:
    with consuming(broker.address, group) as consumer:
        consumer.subscribe([r"^(a)\1"])
        assert "The regular expression is not valid" in first_error(consumer)
