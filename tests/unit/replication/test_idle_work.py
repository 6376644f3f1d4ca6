"""An idle node works for what happens, not for what exists: counted calls, no times."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from types import FrameType

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.model import Acks, TopicPartition
from millstream.server.node import Node
from tests.support.nodes import NOW_MS, SESSION, batch, running_node
from tests.support.virtual_loop import run

FEW, MANY = 10, 300
# Long enough for every periodic check but the sweep of expired groups.
IDLE_S = 540.0

Fill = Callable[[Node, int], Awaitable[None]]


async def partitions(node: Node, count: int) -> None:
    """Partitions with a record each."""
    await node.topics.create(SESSION, "orders", partitions=count)
    for partition in range(count):
        target = TopicPartition("orders", partition)
        await node.partitions.append(SESSION, target, batch(b"x"), acks=Acks.ALL)


async def empty_topics(node: Node, count: int) -> None:
    for number in range(count):
        await node.topics.create(SESSION, f"orders-{number}")


async def delayed_records(node: Node, count: int) -> None:
    """Records of one partition that are due tomorrow."""
    await node.topics.create(SESSION, "orders")
    header = ("ms-delay-ms", str(24 * 3600 * 1000).encode())
    records = [Record(at, NOW_MS, None, b"x", (header,)) for at in range(count)]
    data = encode_batch(records)
    await node.partitions.append(SESSION, TopicPartition("orders", 0), data, acks=Acks.ALL)


async def calls_while_idle(fill: Fill, count: int) -> int:
    """The Python calls of a node that has been filled and then left alone."""
    calls = 0

    def count_call(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async with running_node() as node:
        await fill(node, count)
        await asyncio.sleep(120.0)  # What the load caused is done by then.
        sys.setprofile(count_call)
        try:
            await asyncio.sleep(IDLE_S)
        finally:
            sys.setprofile(None)
    return calls


def check(fill: Fill) -> None:
    few, many = (run(calls_while_idle(fill, count)) for count in (FEW, MANY))

    assert many <= few * 1.01, f"{FEW}: {few} calls, {MANY}: {many} calls"


def test_idle_work_does_not_grow_with_partitions() -> None:
    check(partitions)


def test_idle_work_does_not_grow_with_topics() -> None:
    check(empty_topics)


def test_idle_work_does_not_grow_with_delayed_records() -> None:
    check(delayed_records)


def test_a_node_alone_does_not_tick() -> None:
    async def story() -> None:
        async with running_node() as node:
            await partitions(node, FEW)

            assert len(node.hub.replicas) > FEW
            assert node.hub.ticker.count == 0

    run(story())
