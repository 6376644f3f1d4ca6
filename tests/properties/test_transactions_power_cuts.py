"""Transactions through power cuts: whole or not at all, and nothing is left hanging.

Producers of both protocols write to several partitions in transactions, and at some moment the
power goes, in the middle of a write, of a sync, or of the markers. In the next life every commit
that was answered is there in all partitions, every other transaction in all or in none, and once
the next producer has taken over no reader of committed records is held up.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.config import Config
from millstream.errors import CoordinatorLoading, MillstreamError, NotCoordinator, TopicExists
from millstream.model import TopicPartition
from millstream.server.node import Node, build_node
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import SESSION, fake_ports
from tests.support.sealed import config_if_sealing
from tests.support.tiers import sized
from tests.support.transactions import Writer, committed, stable
from tests.support.virtual_loop import run

PLACES = [TopicPartition("orders", partition) for partition in range(3)]
WRITERS = {"older": False, "newer": True}
CONFIG = Config(transaction_partitions=2)


class Promises:
    """What clients know of their transactions, by a number that is the value they write."""

    def __init__(self) -> None:
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.count = 0


@asynccontextmanager
async def life(files: CrashingFiles, random: Random) -> AsyncIterator[Node]:
    """A node until its power goes. Its ids are drawn anew in each life."""
    node = build_node(config_if_sealing(CONFIG), replace(fake_ports(files), entropy=random))
    task = asyncio.ensure_future(node.run())
    await node.ready.wait()
    try:
        yield node
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def taking_over(node: Node, name: str) -> Writer:
    writer = Writer(node, transactional_id=name, is_v2=WRITERS[name])
    async with asyncio.timeout(30):
        while True:
            with suppress(CoordinatorLoading, NotCoordinator):
                await writer.init()
                return writer
            await asyncio.sleep(0.01)


async def write_often(node: Node, name: str, promises: Promises, random: Random) -> None:
    writer = await taking_over(node, name)
    while True:
        promises.count += 1
        value = b"%s-%d" % (name.encode(), promises.count)
        commits = random.random() < 0.7
        for place in PLACES:
            await writer.write(place, value)
        if not commits:
            promises.aborted.add(value)
        await writer.end(commits=commits)
        if commits:
            promises.committed.add(value)
        await asyncio.sleep(random.choice([0, 0.001, 0.01]))


async def check(node: Node, promises: Promises) -> None:
    for name in WRITERS:
        await taking_over(node, name)
    async with asyncio.timeout(60):
        for place in PLACES:
            await stable(node, place)
    seen = [Counter(await committed(node, place)) for place in PLACES]
    assert seen[0] == seen[1] == seen[2]
    assert set(seen[0].values()) <= {1}
    assert promises.committed <= seen[0].keys()
    assert promises.aborted.isdisjoint(seen[0].keys())


async def live_and_lose_power(files: CrashingFiles, promises: Promises, random: Random) -> None:
    async with life(files, random) as node:
        with suppress(TopicExists):
            await node.topics.create(SESSION, "orders", partitions=len(PLACES))
        await check(node, promises)
        writers = [
            asyncio.ensure_future(write_often(node, name, promises, random)) for name in WRITERS
        ]
        await asyncio.sleep(random.choice([0.005, 0.05, 0.5]) * random.random())
        files.power_cut(random, reorder=random.random() < 0.5)
        for writer in writers:
            writer.cancel()
        for outcome in await asyncio.gather(*writers, return_exceptions=True):
            assert isinstance(outcome, asyncio.CancelledError | MillstreamError), outcome


@settings(max_examples=sized(25), deadline=None)
@given(st.integers(0, 2**32))
def test_transactions_are_whole_after_every_power_cut(seed: int) -> None:
    random, files, promises = Random(seed), CrashingFiles(), Promises()

    for _ in range(4):
        run(live_and_lose_power(files, promises, random))

    async def last_life() -> None:
        async with life(files, random) as node:
            await check(node, promises)

    run(last_life())
