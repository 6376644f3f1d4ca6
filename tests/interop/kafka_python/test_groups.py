"""kafka-python's consumer groups: sharing, committing, and a broker that comes back."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import (
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
)

from kafka import (
    AsyncConsumerRebalanceListener,
    KafkaConsumer,
    OffsetAndMetadata,
    TopicPartition,
)
from tests.interop.conftest import PARTITIONS
from tests.interop.kafka_python.clients import (
    SECONDS_MAX,
    consuming,
    poll,
    produce,
    producing,
    take,
)
from tests.interop.ownership import Ownership
from tests.interop.samples import samples
from tests.support.broker_process import BrokerProcess


class Member(AsyncConsumerRebalanceListener):
    """A member of a group that tells what it owns, and commits before it gives it up."""

    def __init__(
        self, name: str, consumer: KafkaConsumer, topic: str, ownership: Ownership
    ) -> None:
        self._name, self._consumer, self._ownership = name, consumer, ownership
        self.values: list[bytes] = []
        consumer.subscribe([topic], listener=self)

    def poll(self) -> None:
        self.values += [record.value for record in poll(self._consumer)]

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._ownership.take(self._name, [place.partition for place in assigned])

    async def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            await self._consumer.commit_async()
        self._ownership.give_up(self._name, [place.partition for place in revoked])


def until(claim: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + 2 * SECONDS_MAX
    while not claim():
        assert time.monotonic() < deadline, [len(member.values) for member in members]
        for member in members:
            member.poll()


def write_to_all(address: str, topic: str, first: int, count: int) -> set[bytes]:
    values = [b"%d" % number for number in range(first, first + count)]
    with producing(address, linger_ms=5) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % PARTITIONS)
        producer.flush(timeout=SECONDS_MAX)
    return set(values)


def test_a_group_shares_partitions_while_a_member_joins_and_leaves(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    ownership = Ownership()
    written = write_to_all(broker.address, topic, 0, 90)

    with ExitStack() as first_life, ExitStack() as second_life:
        consumer = first_life.enter_context(consuming(broker.address, group_id=group))
        first = Member("first", consumer, topic, ownership)
        until(lambda: ownership.is_shared_by(["first"], PARTITIONS), first)

        consumer = second_life.enter_context(consuming(broker.address, group_id=group))
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
    assert sorted([*first.values, *second.values]) == sorted(written)


@pytest.mark.parametrize("leave", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill -9"])
def test_committed_offsets_and_acknowledged_records_outlive_the_broker(
    broker: BrokerProcess, topic: str, group: str, leave: Callable[[BrokerProcess], None]
) -> None:
    sent, target = samples(), TopicPartition(topic, 0)
    produce(broker.address, topic, sent, acks="all")
    with consuming(broker.address, topic, group_id=group) as consumer:
        take(consumer, len(sent))
        consumer.commit({target: OffsetAndMetadata(3, "third", -1)})

    leave(broker)
    broker.start()

    with consuming(broker.address, topic, group_id=group) as consumer:
        remaining = take(consumer, len(sent) - 3)
        committed = consumer.committed(target, metadata=True)
    assert [record.value for record in remaining] == [sample.value for sample in sent[3:]]
    assert (committed.offset, committed.metadata) == (3, "third")


@pytest.mark.parametrize("leave", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill -9"])
def test_a_reader_that_stays_goes_on_when_the_broker_is_back(
    broker: BrokerProcess, topic: str, group: str, leave: Callable[[BrokerProcess], None]
) -> None:
    sent = samples()
    produce(broker.address, topic, sent)
    with consuming(broker.address, topic, group_id=group) as consumer:
        take(consumer, len(sent))
        consumer.commit()

        leave(broker)
        broker.start()
        produce(broker.address, topic, sent)
        after = take(consumer, len(sent))

    assert [record.offset for record in after] == list(range(len(sent), 2 * len(sent)))


def test_a_member_that_speaks_another_protocol_is_refused(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    produce(broker.address, topic, samples())
    by_range = {"partition_assignment_strategy": [RangePartitionAssignor]}
    in_turn = {"partition_assignment_strategy": [RoundRobinPartitionAssignor]}

    with consuming(broker.address, topic, group_id=group, **by_range) as consumer:
        take(consumer, len(samples()))
        with (
            consuming(broker.address, topic, group_id=group, **in_turn) as stranger,
            pytest.raises(InconsistentGroupProtocolError),
        ):
            take(stranger, 1)


def test_a_session_timeout_below_what_the_broker_allows_is_refused(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    produce(broker.address, topic, samples())

    with (
        consuming(broker.address, topic, group_id=group, session_timeout_ms=1_000) as consumer,
        pytest.raises(InvalidSessionTimeoutError),
    ):
        take(consumer, 1)


def test_a_group_without_a_name_is_refused(broker: BrokerProcess, topic: str) -> None:
    produce(broker.address, topic, samples())

    with (
        consuming(broker.address, topic, group_id="") as consumer,
        pytest.raises(InvalidGroupIdError),
    ):
        take(consumer, 1)
