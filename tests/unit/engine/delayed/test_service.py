"""Delayed records while they wait: listed, looked at, cancelled, kept over restarts."""

import asyncio
from contextlib import suppress

import pytest

from millstream.engine.delayed.service import LISTED_MAX
from millstream.engine.gate import Everyone, Operation
from millstream.errors import InternalTopic, TopicExists, UnknownTopic
from millstream.errors.delayed import UnknownDelayedRecord
from millstream.model import Acks, Session, TopicPartition, user_principal
from millstream.names import DELAYED_TOPIC
from millstream.server.node import Node
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import NOW_MS, ORDERS, SESSION, FixedClock, batch, running_node
from tests.support.queues import (
    Message,
    batch_of,
    found_in,
    message,
    running_orders,
    until_count,
    values_in,
)
from tests.support.virtual_loop import run


async def delay(node: Node, *messages: Message, target: TopicPartition = ORDERS) -> list[str]:
    """Send delayed records and return their ids."""
    appended = await node.partitions.append(SESSION, target, batch_of(*messages), Acks.ALL)
    return [appended.delayed[at] for at in range(len(messages))]


def test_those_that_wait_are_listed_in_pages() -> None:
    async def story() -> None:
        async with running_orders(partitions=2) as node:
            await node.topics.create(SESSION, "payments")
            ids = await delay(node, *[message(b"x", delay_ms=60_000)] * 3)
            await delay(node, message(b"y", delay_ms=60_000), target=TopicPartition("payments", 0))
            ids += await delay(
                node, message(b"z", delay_ms=5_000), target=TopicPartition("orders", 1)
            )

            first = await node.delayed.list(SESSION, "orders", count=3)
            second = await node.delayed.list(SESSION, "orders", after=first.next_after)

            assert [delayed_record.id for delayed_record in first.delayed] == ids[:3]
            assert [(entry.id, entry.target.partition) for entry in second.delayed] == [(ids[3], 1)]
            assert second.next_after is None
            assert second.delayed[0].due_ms < first.delayed[0].due_ms
            assert LISTED_MAX >= 3

    run(story())


def test_those_of_all_topics_are_listed_in_pages() -> None:
    async def story() -> None:
        async with running_orders() as node:
            assert (await node.delayed.list(SESSION)).delayed == []
            ids: set[str] = set()
            for name in ("payments", "orders", "a", "b", "c"):
                with suppress(TopicExists):
                    await node.topics.create(SESSION, name)
                sent = [message(b"x", delay_ms=60_000)] * 3
                ids.update(await delay(node, *sent, target=TopicPartition(name, 0)))

            collected: list[str] = []
            after: str | None = None
            for _ in range(8):
                page = await node.delayed.list(SESSION, after=after, count=2)
                collected += [delayed_record.id for delayed_record in page.delayed]
                after = page.next_after

            assert after is None
            assert len(collected) == 15
            assert set(collected) == ids
            await node.topics.delete(SESSION, "a")
            assert len((await node.delayed.list(SESSION)).delayed) == 12

    run(story())


def test_of_all_topics_those_are_listed_that_the_session_may_know_of() -> None:
    class Secretive(Everyone):
        def allows(self, session: Session, operation: Operation, resource: str) -> bool:
            return session == SESSION or resource != "topic:orders"

    async def story() -> None:
        async with running_node(policy=Secretive()) as node:
            for name in ("orders", "payments"):
                await node.topics.create(SESSION, name)
                sent = message(b"x", delay_ms=60_000)
                await delay(node, sent, target=TopicPartition(name, 0))

            seen = await node.delayed.list(Session(principal=user_principal("stranger")))

            assert [delayed_record.target.topic for delayed_record in seen.delayed] == ["payments"]

    run(story())


def test_nothing_waits_where_nothing_was_ever_delayed() -> None:
    async def story() -> None:
        async with running_orders() as node:
            assert (await node.delayed.list(SESSION, "orders")).delayed == []
            with pytest.raises(UnknownDelayedRecord, match="'orders~0'"):
                await node.delayed.describe(SESSION, "orders~0")
            with pytest.raises(UnknownTopic):
                await node.delayed.list(SESSION, "nothing")

    run(story())


def test_one_that_waits_can_be_looked_at() -> None:
    async def story() -> None:
        async with running_orders() as node:
            sent = message(b"x", deliver_at=NOW_MS + 60_000)
            (name,) = await delay(node, sent)

            delayed, record = await node.delayed.describe(SESSION, name)

            assert delayed == (name, ORDERS, NOW_MS + 60_000)
            assert (record.value, record.headers) == (b"x", sent.headers)

    run(story())


def test_one_that_was_cancelled_is_never_delivered() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_orders(files=files) as node:
            ids = await delay(node, *[message(b"%d" % at, delay_ms=10_000) for at in range(3)])

            await node.delayed.cancel(SESSION, ids[1])

            with pytest.raises(UnknownDelayedRecord):
                await node.delayed.cancel(SESSION, ids[1])
            await asyncio.sleep(5)
        async with running_orders(files=files) as node:
            listed = await node.delayed.list(SESSION, "orders")
            assert [delayed_record.id for delayed_record in listed.delayed] == [ids[0], ids[2]]
            records = await until_count(node, 2)
            assert [record.value for record in records] == [b"0", b"2"]

    run(story())


def test_the_message_id_of_a_cancelled_record_is_free_again() -> None:
    async def story() -> None:
        async with running_orders() as node:
            (name,) = await delay(node, message(b"1", delay_ms=60_000, message_id=b"a"))
            await node.delayed.cancel(SESSION, name)

            (name,) = await delay(node, message(b"2", delay_ms=1_000, message_id=b"a"))

            assert [record.value for record in await until_count(node, 1)] == [b"2"]

    run(story())


@pytest.mark.parametrize("name", ["", "orders", "orders~", "orders~x", "other~0", "orders~1"])
def test_an_id_of_nothing_is_unknown(name: str) -> None:
    async def story() -> None:
        async with running_orders() as node:
            await delay(node, message(b"x", delay_ms=60_000))
            with pytest.raises((UnknownDelayedRecord, UnknownTopic)):
                await node.delayed.cancel(SESSION, name)

    run(story())


def test_delayed_records_survive_a_restart_and_are_not_early_after_it() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_orders(files=files) as node:
            delays = [20_000, 1_000, 10_000]
            await delay(node, *[message(b"%d" % ms, delay_ms=ms) for ms in delays])
        await asyncio.sleep(5)  # The first is due while the node is down.
        async with running_orders(files=files) as node:
            assert [r.value for r in await until_count(node, 1)] == [b"1000"]
            while len(records := await found_in(node)) < 3:
                await asyncio.sleep(0.01)
                now_ms = NOW_MS + asyncio.get_running_loop().time() * 1000
                assert all(record.timestamp <= now_ms for record in records)
            assert [record.value for record in records] == [b"1000", b"10000", b"20000"]

    run(story())


def test_a_clock_that_steps_back_makes_nothing_early() -> None:
    async def story() -> None:
        clock = FixedClock()
        async with running_orders(clock=clock) as node:
            await delay(node, message(b"x", delay_ms=10_000))
            clock.start_ms -= 30_000
            await asyncio.sleep(35)
            assert await values_in(node) == []
            clock.start_ms += 60_000  # And when it steps forward, that is noticed soon.
            await asyncio.sleep(1.5)
            assert await values_in(node) == [b"x"]

    run(story())


def test_what_was_delayed_for_a_topic_goes_with_it() -> None:
    async def story() -> None:
        async with running_orders() as node:
            await delay(node, *[message(b"x", delay_ms=5_000)] * 3)
            await node.topics.delete(SESSION, "orders")
            await node.topics.create(SESSION, "orders")
            assert (await node.delayed.list(SESSION, "orders")).delayed == []

            await asyncio.sleep(6)
            await delay(node, message(b"y", delay_ms=1_000))

            assert [record.value for record in await until_count(node, 1)] == [b"y"]

    run(story())


def test_many_due_at_once_are_all_delivered_in_order() -> None:
    async def story() -> None:
        async with running_orders() as node:
            for start in range(0, 3_000, 500):
                some = [
                    message(b"%d" % at, deliver_at=NOW_MS + 9_000)
                    for at in range(start, start + 500)
                ]
                await delay(node, *some)

            records = await until_count(node, 3_000)

            assert [record.value for record in records] == [b"%d" % at for at in range(3_000)]

    run(story())


def test_records_of_one_batch_are_delivered_each_in_its_time() -> None:
    async def story() -> None:
        async with running_orders() as node:
            delays = [at * 7_919 % 9_000 + 1_000 for at in range(100)]
            ids = await delay(node, *[message(b"%d" % ms, delay_ms=ms) for ms in delays])
            gone = min(range(100), key=lambda at: abs(delays[at] - 5_000))
            await asyncio.sleep(3)
            await node.delayed.cancel(SESSION, ids[gone])

            records = await until_count(node, 99)

            left = sorted(delays[:gone] + delays[gone + 1 :])
            assert [int(record.value or b"") for record in records] == left

    run(story())


def test_only_the_broker_writes_to_the_internal_topic() -> None:
    async def story() -> None:
        async with running_orders() as node:
            await delay(node, message(b"x", delay_ms=60_000))
            with pytest.raises(InternalTopic):
                node.partitions.append(
                    SESSION, TopicPartition(DELAYED_TOPIC, 0), batch(b"x"), Acks.ALL
                )

    run(story())
