"""Batches of transactions through power cuts: each is in all its partitions once, or in none.

A driver writes batches with two tasks, each to a topic of its own, and at some moment the power
goes, in the middle of a write or of a sync. The driver keeps its own log, as Spark does: what is in
it is never lost, and a batch that is not is run again.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.config import Config
from millstream.errors import CoordinatorLoading, MillstreamError, NotCoordinator, TopicExists
from millstream.server.node import Node, build_node
from tests.support.batches import Driver
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import ORDERS, SESSION, fake_ports
from tests.support.sealed import config_if_sealing
from tests.support.tiers import sized
from tests.support.transactions import PAYMENTS, committed, stable
from tests.support.virtual_loop import run

CONFIG = Config(transaction_partitions=2)


class Log:
    """What the driver knows to be committed, over all its lives."""

    def __init__(self) -> None:
        self.batch_count = 0


@asynccontextmanager
async def life(files: CrashingFiles, random: Random) -> AsyncIterator[Node]:
    """A node until its power goes. Its ids are drawn anew in each life."""
    node = build_node(config_if_sealing(CONFIG), replace(fake_ports(files), entropy=random))
    task = asyncio.ensure_future(node.run())
    await node.ready.wait()
    try:
        for target in (ORDERS, PAYMENTS):
            with suppress(TopicExists):
                await node.topics.create(SESSION, target.topic, partitions=3)
        yield node
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def begin(driver: Driver) -> int:
    """Begin a batch once the coordinator is there; return what was committed last."""
    async with asyncio.timeout(10):
        while True:
            with suppress(CoordinatorLoading, NotCoordinator):
                return (await driver.begin()).last_committed_batch
            await asyncio.sleep(0.001)


async def write_batch(node: Node, log: Log, random: Random) -> None:
    driver, batch_id = Driver(node), log.batch_count
    tasks = []
    if await begin(driver) < batch_id:
        value = b"%d" % batch_id
        for target in (ORDERS, PAYMENTS):
            if random.random() < 0.3:
                await driver.wrote(value, name=f"loser-{target}", target=target)
            tasks.append(await driver.wrote(value, name=str(target), target=target))
    await driver.commit(batch_id, *tasks)
    if random.random() < 0.8:  # Else the driver dies before its own log has it.
        log.batch_count += 1


async def write_often(node: Node, log: Log, random: Random) -> None:
    while True:
        await write_batch(node, log, random)


async def live_and_lose_power(files: CrashingFiles, log: Log, random: Random) -> None:
    async with life(files, random) as node:
        writing = asyncio.ensure_future(write_often(node, log, random))
        await asyncio.sleep(random.choice([0.02, 0.1, 0.3]) * random.random())
        files.power_cut(random, reorder=random.random() < 0.5)
        writing.cancel()
        (outcome,) = await asyncio.gather(writing, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError | MillstreamError), outcome


@settings(deadline=None, max_examples=sized(25))
@given(st.integers(0, 2**32))
def test_every_batch_is_in_all_partitions_once(seed: int) -> None:
    random = Random(seed)
    files, log = CrashingFiles(), Log()
    for _ in range(4):
        run(live_and_lose_power(files, log, random))

    async def last_life() -> None:
        async with life(files, random) as node:
            await write_batch(node, log, Random(1))
            count = (await Driver(node).begin()).last_committed_batch + 1
            await stable(node, ORDERS)
            await stable(node, PAYMENTS)

            assert count >= log.batch_count
            for target in (ORDERS, PAYMENTS):
                assert await committed(node, target) == [b"%d" % at for at in range(count)]

    run(last_life())
