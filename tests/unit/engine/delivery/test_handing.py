"""A crash in the middle of a hand-over, at every step that it has."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from millstream.config import Config
from millstream.engine.delivery import RetryPolicy, SubscriptionSpec
from millstream.engine.delivery.shard import DeliveryShard
from millstream.engine.reading import Earliest
from millstream.model import TopicPartition
from millstream.server.node import Node, build_node
from tests.support.crashing_files import CrashingFiles
from tests.support.deliveries import Subscriber, make_topic, pause, publish, until, values_in
from tests.support.nodes import ORDERS, SESSION, fake_ports
from tests.support.virtual_loop import run

BILLING = SubscriptionSpec(
    name="billing",
    topics=("orders",),
    start=Earliest(),
    retry=RetryPolicy(max_retries=0, ack_timeout_ms=60_000),
)
CONFIG = Config(delivery_partitions=1)


@asynccontextmanager
async def life(files: CrashingFiles) -> AsyncIterator[Node]:
    node = build_node(CONFIG, fake_ports(files))
    task = asyncio.ensure_future(node.run())
    await node.ready.wait()
    try:
        yield node
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def stop_after_the_intent(shard: DeliveryShard, reached: asyncio.Event) -> None:
    async def deliver(*arguments: object) -> int:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    shard.courier._deliver = deliver  # type: ignore[method-assign]


def stop_after_the_append(shard: DeliveryShard, reached: asyncio.Event) -> None:
    courier = shard.courier
    deliver = courier._deliver

    async def deliver_and_stop(*arguments: object) -> int:
        await deliver(*arguments)  # type: ignore[arg-type]
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    courier._deliver = deliver_and_stop  # type: ignore[method-assign]


def stop_after_the_end(shard: DeliveryShard, reached: asyncio.Event) -> None:
    write = shard.courier._write

    def write_and_tell(target: object, lane: object, others: object = ()) -> int:
        offset = write(target, lane, others)  # type: ignore[arg-type]
        if others:
            asyncio.get_running_loop().call_soon(reached.set)
        return offset

    shard.courier._write = write_and_tell  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize("stop", [stop_after_the_intent, stop_after_the_append, stop_after_the_end])
@pytest.mark.parametrize("seed", range(3))
def test_a_hand_over_that_was_cut_short_is_finished_once(
    stop: Callable[[DeliveryShard, asyncio.Event], None], seed: int
) -> None:
    files = CrashingFiles()

    async def first_life() -> None:
        async with life(files) as node:
            await make_topic(node)
            await publish(node, b"good", b"bad")
            subscriber = await Subscriber().subscribe(node, BILLING)
            await until(lambda: len(subscriber.got) == 2)
            assert subscriber.ack(subscriber.got[0])
            await pause()
            (shard,) = node._delivering.shards.all_here()
            reached = asyncio.Event()
            stop(shard, reached)
            assert subscriber.member is not None
            assert subscriber.member.reject(ORDERS, 1, "bad", "why")
            await reached.wait()
            files.power_cut(Random(seed), reorder=seed % 2 == 1)

    async def second_life() -> None:
        async with life(files) as node:
            subscriber = await Subscriber(acks=True).subscribe(node, BILLING)
            await publish(node, b"new")
            await until(lambda: bool(subscriber.got))
            await pause(5)

            assert subscriber.values == [b"new"]
            assert await values_in(node, "orders.dlq") == [b"bad"]
            (letter,) = await node.dead_letters.list(SESSION, "orders")
            assert letter.origin == (TopicPartition("orders", 0), 1, "billing", 1, "bad", "why")
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 3
            (shard,) = node._delivering.shards.all_here()
            assert not shard.courier.unfinished
            await pause()
            assert shard.stored.settled("billing") == {}, "marks are taken back"

    run(first_life())
    run(second_life())
