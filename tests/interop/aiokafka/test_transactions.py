"""aiokafka's transactions: what readers see of them, who is fenced, and a broker that dies."""

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import ProducerFenced

from tests.interop.aiokafka.clients import SECONDS_MAX, consuming, producing, take
from tests.support.broker_process import BrokerProcess


async def read(broker: BrokerProcess, topic: str, isolation: str, count: int) -> list[bytes]:
    """The records that there are: so many, and no more."""
    async with consuming(broker.address, isolation_level=isolation) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values = [record.value for record in await take(consumer, count)]
        assert await consumer.getmany(timeout_ms=200) == {}
        return values


def transacting(broker: BrokerProcess, name: str, **settings: Any) -> Any:
    return producing(broker.address, transactional_id=name, **settings)


def test_readers_of_committed_records_see_whole_transactions_only(
    broker: BrokerProcess, topic: str
) -> None:
    async def scenario() -> tuple[list[bytes], list[bytes]]:
        async with transacting(broker, topic) as producer:
            for number in range(6):
                await producer.begin_transaction()
                for _ in range(2):
                    await producer.send_and_wait(topic, b"%d" % number, partition=0)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        return (
            await read(broker, topic, "read_committed", 6),
            await read(broker, topic, "read_uncommitted", 12),
        )

    committed, everything = asyncio.run(scenario())

    assert committed == [b"0", b"0", b"2", b"2", b"4", b"4"]
    assert len(everything) == 12


def test_a_second_producer_of_the_same_id_fences_the_first(
    broker: BrokerProcess, topic: str
) -> None:
    async def scenario() -> list[bytes]:
        async with transacting(broker, topic) as zombie:
            await zombie.begin_transaction()
            await zombie.send_and_wait(topic, b"zombie", partition=0)
            async with transacting(broker, topic) as heir, heir.transaction():
                await heir.send_and_wait(topic, b"heir", partition=0)

            with pytest.raises(ProducerFenced):
                await zombie.commit_transaction()
        return await read(broker, topic, "read_committed", 1)

    assert asyncio.run(scenario()) == [b"heir"]


def test_a_transaction_past_its_timeout_is_aborted(broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> list[bytes]:
        async with transacting(broker, topic, transaction_timeout_ms=1_000) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"hanging", partition=0)
            async with producing(broker.address, acks="all") as other:
                await other.send_and_wait(topic, b"behind it", partition=0)

            values = await read(broker, topic, "read_committed", 1)
            with pytest.raises(ProducerFenced):
                await producer.commit_transaction()
            return values

    assert asyncio.run(scenario()) == [b"behind it"]


def test_a_transaction_survives_a_broker_that_is_killed_before_the_commit(
    broker: BrokerProcess, topic: str
) -> None:
    async def scenario() -> list[bytes]:
        async with transacting(broker, topic) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"before", partition=0)
            broker.kill()
            await asyncio.to_thread(broker.start)
            await producer.send_and_wait(topic, b"after", partition=0)
            await producer.commit_transaction()
        return await read(broker, topic, "read_committed", 2)

    assert asyncio.run(scenario()) == [b"before", b"after"]


def test_offsets_are_committed_with_the_records_or_not_at_all(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    place = TopicPartition(topic, 0)

    async def scenario() -> list[int | None]:
        collected = []
        async with (
            transacting(broker, topic) as producer,
            consuming(broker.address, group_id=group) as consumer,
        ):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"a", partition=0)
            consumer.assign([place])
            for is_committed in (False, True):
                await producer.begin_transaction()
                await producer.send_offsets_to_transaction({place: 1}, group)
                if is_committed:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
                collected.append(await consumer.committed(place))
            # A commit is answered before its marker is written, and this client asks for what is.
            async with asyncio.timeout(SECONDS_MAX):
                while collected[-1] is None:
                    collected[-1] = await consumer.committed(place)
        return collected

    assert asyncio.run(scenario()) == [None, 1]
