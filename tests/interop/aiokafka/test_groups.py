"""aiokafka's consumer groups: sharing, committing, and a broker that comes back."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import InvalidGroupIdError, InvalidSessionTimeoutError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from tests.interop.aiokafka.clients import SECONDS_MAX, consuming, produce, producing, take
from tests.interop.conftest import PARTITIONS
from tests.interop.ownership import Ownership
from tests.interop.samples import samples
from tests.support.broker_process import BrokerProcess

LEAVE = pytest.mark.parametrize(
    "leave", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill -9"]
)


class Member(ConsumerRebalanceListener):
    """A member of a group that tells what it owns, and commits before it gives it up."""

    def __init__(
        self, name: str, consumer: AIOKafkaConsumer, topic: str, ownership: Ownership
    ) -> None:
        self._name, self._consumer, self._ownership = name, consumer, ownership
        self.values: list[bytes] = []
        consumer.subscribe([topic], listener=self)

    async def poll(self) -> None:
        batches = await self._consumer.getmany(timeout_ms=20)
        self.values += [record.value for batch in batches.values() for record in batch]

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._ownership.take(self._name, [place.partition for place in assigned])

    async def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            await self._consumer.commit()
        self._ownership.give_up(self._name, [place.partition for place in revoked])


async def until(claim: Callable[[], bool], *members: Member) -> None:
    async with asyncio.timeout(2 * SECONDS_MAX):
        while not claim():
            for member in members:
                await member.poll()


async def write_to_all(address: str, topic: str, first: int, count: int) -> set[bytes]:
    values = [b"%d" % number for number in range(first, first + count)]
    async with producing(address, linger_ms=5) as producer:
        futures = [
            await producer.send(topic, value, partition=number % PARTITIONS)
            for number, value in enumerate(values)
        ]
        await asyncio.wait_for(asyncio.gather(*futures), SECONDS_MAX)
    return set(values)


def test_a_group_shares_partitions_while_a_member_joins_and_leaves(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    ownership = Ownership()

    async def scenario() -> tuple[list[bytes], list[bytes], set[bytes]]:
        written = await write_to_all(broker.address, topic, 0, 90)
        async with AsyncExitStack() as first_life, AsyncExitStack() as second_life:
            consumer = await first_life.enter_async_context(
                consuming(broker.address, group_id=group)
            )
            first = Member("first", consumer, topic, ownership)
            await until(lambda: ownership.is_shared_by(["first"], PARTITIONS), first)

            consumer = await second_life.enter_async_context(
                consuming(broker.address, group_id=group)
            )
            second = Member("second", consumer, topic, ownership)
            both = [first, second]
            await until(lambda: ownership.is_shared_by(["first", "second"], PARTITIONS), *both)
            written |= await write_to_all(broker.address, topic, 90, 90)
            await until(lambda: written <= {*first.values, *second.values}, *both)

            # This client does not call its listener when it closes.
            await consumer.commit()
            ownership.give_up("second", ownership.of("second"))
            await second_life.aclose()
            written |= await write_to_all(broker.address, topic, 180, 90)
            await until(lambda: ownership.is_shared_by(["first"], PARTITIONS), first)
            await until(lambda: written <= {*first.values, *second.values}, first)
        return first.values, second.values, written

    first, second, written = asyncio.run(scenario())

    assert ownership.clashes == []
    assert len(second) > 0
    assert sorted([*first, *second]) == sorted(written)


@LEAVE
def test_committed_offsets_and_acknowledged_records_outlive_the_broker(
    broker: BrokerProcess, topic: str, group: str, leave: Callable[[BrokerProcess], None]
) -> None:
    sent, target = samples(), TopicPartition(topic, 0)

    async def before() -> None:
        await produce(broker.address, topic, sent, acks="all")
        async with consuming(broker.address, topic, group_id=group) as consumer:
            await take(consumer, len(sent))
            await consumer.commit({target: OffsetAndMetadata(3, "third")})

    async def after() -> tuple[int, list[Any]]:
        async with consuming(broker.address, topic, group_id=group) as consumer:
            return await consumer.committed(target), await take(consumer, len(sent) - 3)

    asyncio.run(before())
    leave(broker)
    broker.start()
    committed, remaining = asyncio.run(after())

    assert committed == 3
    assert [record.value for record in remaining] == [sample.value for sample in sent[3:]]


@LEAVE
def test_a_reader_that_stays_goes_on_when_the_broker_is_back(
    broker: BrokerProcess, topic: str, group: str, leave: Callable[[BrokerProcess], None]
) -> None:
    sent = samples()

    async def scenario() -> list[int]:
        await produce(broker.address, topic, sent)
        async with consuming(broker.address, topic, group_id=group) as consumer:
            await take(consumer, len(sent))
            await consumer.commit()

            await asyncio.to_thread(leave, broker)
            await asyncio.to_thread(broker.start)
            await produce(broker.address, topic, sent)
            return [record.offset for record in await take(consumer, len(sent))]

    assert asyncio.run(scenario()) == list(range(len(sent), 2 * len(sent)))


def test_a_member_that_speaks_another_protocol_is_refused(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await produce(broker.address, topic, samples())
        by_range = {"partition_assignment_strategy": [RangePartitionAssignor]}
        in_turn = {"partition_assignment_strategy": [RoundRobinPartitionAssignor]}
        async with consuming(broker.address, topic, group_id=group, **by_range) as consumer:
            await take(consumer, len(samples()))
            async with consuming(broker.address, topic, group_id=group, **in_turn) as stranger:
                await take(stranger, 1)

    with pytest.raises(KafkaError) as refused:
        asyncio.run(scenario())

    assert "InconsistentGroupProtocol" in repr(refused.value)


def test_a_group_without_a_name_is_refused(broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> None:
        await produce(broker.address, topic, samples())
        async with consuming(broker.address, topic, group_id="") as consumer:
            await take(consumer, 1)

    with pytest.raises(InvalidGroupIdError):
        asyncio.run(scenario())


def test_a_session_timeout_below_what_the_broker_allows_is_refused(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await produce(broker.address, topic, samples())
        short = {"group_id": group, "session_timeout_ms": 1_000}
        async with consuming(broker.address, topic, **short) as consumer:
            await take(consumer, 1)

    with pytest.raises(InvalidSessionTimeoutError):
        asyncio.run(scenario())
