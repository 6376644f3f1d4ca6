"""When sync rounds begin: at once if somebody waits, together if nobody does."""

import asyncio

import pytest

from millstream.config import Config
from millstream.engine.reading import Want
from millstream.metrics import SYNC_ROUNDS
from millstream.model import Acks
from millstream.replication.group_commit import LINGER_S
from millstream.server.node import Node
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.virtual_loop import run

COUNT = 100


async def orders(node: Node) -> None:
    await node.topics.create(SESSION, "orders")
    await asyncio.sleep(1)


def end(node: Node) -> int:
    return node.partitions.health(SESSION, ORDERS).high_watermark


def test_writes_that_nobody_waits_for_share_a_round() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            before = node.metrics.value(SYNC_ROUNDS)
            for _ in range(COUNT):
                await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.LEADER)
                await asyncio.sleep(LINGER_S / COUNT)

            assert node.metrics.value(SYNC_ROUNDS) - before <= 2
            await asyncio.sleep(2 * LINGER_S)
            assert end(node) == COUNT

    run(story())


def test_who_waits_for_the_disk_waits_for_nothing_else() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            loop = asyncio.get_running_loop()
            started = loop.time()

            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)

            assert loop.time() - started < LINGER_S

    run(story())


@pytest.mark.parametrize("is_reader_first", [True, False])
def test_a_waiting_reader_sees_an_unacknowledged_write_without_delay(is_reader_first: bool) -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            loop = asyncio.get_running_loop()
            started = loop.time()
            if not is_reader_first:
                node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.LEADER)
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(
                    node.partitions.read(
                        SESSION, [Want(ORDERS, 0, 2**20)], min_bytes=1, deadline=started + 60
                    )
                )
                await asyncio.sleep(0)
                if is_reader_first:
                    node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.LEADER)

            assert reading.result()[0].size > 0
            assert loop.time() - started < LINGER_S

    run(story())


def test_with_durability_write_the_system_is_trusted_at_once_and_synced_later() -> None:
    async def story() -> None:
        async with running_node(Config(durability="write")) as node:
            await orders(node)
            before = node.metrics.value(SYNC_ROUNDS)
            loop = asyncio.get_running_loop()
            started = loop.time()

            waiting = [
                node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL) for _ in range(COUNT)
            ]
            await asyncio.gather(*waiting)

            assert loop.time() == started
            assert end(node) == COUNT
            assert node.metrics.value(SYNC_ROUNDS) == before
            await asyncio.sleep(2 * node.config.timing.flush_interval_ms / 1000)
            assert node.metrics.value(SYNC_ROUNDS) == before + 1

    run(story())
