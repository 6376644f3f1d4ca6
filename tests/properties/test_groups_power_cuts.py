"""Groups and offsets through power cuts: what was acknowledged is never lost.

Several groups commit at once, one of them in transactions, members join and leave, and at some
moment the power goes, in the middle of a write or of a sync. The next life must know every offset
and every generation that any client was told of, and must not know any that was not sent; what was
committed in a transaction it must know of all partitions or of none.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.config import Config, Timing
from millstream.engine.groups.views import Commit, Committed
from millstream.errors import (
    CoordinatorLoading,
    MillstreamError,
    NotCoordinator,
    RequestError,
    TopicExists,
    TransactionInProgress,
)
from millstream.errors.groups import GroupNotFound
from millstream.model import Producer, TopicPartition
from millstream.server.node import Node, build_node
from tests.support.crashing_files import CrashingFiles
from tests.support.groups import Consumer
from tests.support.nodes import SESSION, fake_ports
from tests.support.tiers import sized
from tests.support.virtual_loop import run

GROUPS = ["a", "b", "c", "d"]
EXACT = "exact"  # It commits in transactions, the same offset for all partitions.
TARGETS = [TopicPartition("orders", partition) for partition in range(3)]
CONFIG = Config(offsets_partitions=2, timing=Timing(group_initial_rebalance_delay_ms=20))


class Promises:
    """What clients know: the offsets they sent, and those they were told are safe."""

    def __init__(self) -> None:
        groups = [*GROUPS, EXACT]
        self.sent = {(group, target): -1 for group in groups for target in TARGETS}
        self.safe = dict(self.sent)
        self.generations: dict[str, int] = {}


@asynccontextmanager
async def life(files: CrashingFiles, random: Random) -> AsyncIterator[Node]:
    """A node until its power goes. Its ids are drawn anew in each life."""
    node = build_node(CONFIG, replace(fake_ports(files), entropy=random))
    task = asyncio.ensure_future(node.run())
    await node.ready.wait()
    try:
        yield node
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def commit_often(node: Node, group_id: str, promises: Promises, random: Random) -> None:
    while True:
        targets = random.sample(TARGETS, random.randint(1, len(TARGETS)))
        commits = {}
        for target in targets:
            promises.sent[group_id, target] += 1
            commits[target] = Commit(promises.sent[group_id, target])
        try:
            await node.groups.commit_offsets(SESSION, group_id, commits)
        except RequestError:
            await asyncio.sleep(0.01)
            continue
        for target, commit in commits.items():
            promises.safe[group_id, target] = commit.offset
        await asyncio.sleep(random.choice([0, 0.001, 0.01]))


async def commit_exactly(node: Node, promises: Promises, random: Random) -> None:
    producer = await take_over(node)
    while True:
        offset = promises.sent[EXACT, TARGETS[0]] + 1
        is_meant = random.random() < 0.8
        try:
            await node.transactions.add_offsets(SESSION, EXACT, producer, EXACT)
            for target in TARGETS:
                promises.sent[EXACT, target] = offset
                await node.groups.commit_in_transaction(
                    SESSION,
                    EXACT,
                    {target: Commit(offset)},
                    transactional_id=EXACT,
                    producer=producer,
                )
            await node.transactions.end(SESSION, EXACT, producer, commits=is_meant)
        except TransactionInProgress:
            await asyncio.sleep(0.001)
            continue
        if is_meant:
            promises.safe |= {(EXACT, target): offset for target in TARGETS}


async def take_over(node: Node) -> Producer:
    """Become the producer, once what its predecessor left open is ended."""
    async with asyncio.timeout(10):
        while True:
            with suppress(TransactionInProgress, CoordinatorLoading, NotCoordinator):
                return await node.transactions.init(SESSION, EXACT, timeout_ms=60_000)
            await asyncio.sleep(0.001)


async def rebalance_often(node: Node, group_id: str, promises: Promises, random: Random) -> None:
    while True:
        member = Consumer(node.groups, group_id=group_id)
        try:
            await member.enter()
            promises.generations[group_id] = member.generation
            await asyncio.sleep(random.choice([0, 0.01]))
            await member.leave()
        except RequestError:
            await asyncio.sleep(0.1)


async def check(node: Node, promises: Promises) -> None:
    await loaded(node)
    await check_exact(node, promises)
    for group_id in GROUPS:
        answered = await node.groups.fetch_offsets(SESSION, group_id, TARGETS)
        for target, committed in answered.items():
            assert isinstance(committed, Committed)
            safe, sent = promises.safe[group_id, target], promises.sent[group_id, target]
            assert safe <= committed.offset <= sent, (group_id, target)
    for group_id, generation in promises.generations.items():
        with suppress(GroupNotFound):
            group = await node.groups.describe(SESSION, group_id)
            assert group.generation >= generation
            continue
        raise AssertionError(f"group {group_id} was forgotten")


async def check_exact(node: Node, promises: Promises) -> None:
    await take_over(node)
    committed = await node.groups.fetch_offsets(SESSION, EXACT, TARGETS, must_be_stable=True)
    offsets = {place.offset for place in committed.values() if isinstance(place, Committed)}
    assert len(offsets) == 1, committed
    assert promises.safe[EXACT, TARGETS[0]] <= min(offsets) <= promises.sent[EXACT, TARGETS[0]]


async def loaded(node: Node) -> None:
    async with asyncio.timeout(1):
        while True:
            with suppress(CoordinatorLoading):
                node.groups.list(SESSION)
                return
            await asyncio.sleep(0.001)


async def live_and_lose_power(files: CrashingFiles, promises: Promises, random: Random) -> None:
    async with life(files, random) as node:
        with suppress(TopicExists):
            await node.topics.create(SESSION, "orders", partitions=len(TARGETS))
        await node.groups.coordinator_of(SESSION, "a")
        await check(node, promises)
        busy = [
            asyncio.ensure_future(commit_often(node, group_id, promises, random))
            for group_id in GROUPS
        ]
        busy.append(asyncio.ensure_future(rebalance_often(node, "rebalancing", promises, random)))
        busy.append(asyncio.ensure_future(commit_exactly(node, promises, random)))
        await asyncio.sleep(random.choice([0.002, 0.02, 0.3]) * random.random())
        files.power_cut(random, reorder=random.random() < 0.5)
        for task in busy:
            task.cancel()
        outcomes = await asyncio.gather(*busy, return_exceptions=True)
        for outcome in outcomes:
            assert isinstance(outcome, asyncio.CancelledError | MillstreamError), outcome


@settings(deadline=None, max_examples=sized(25))
@given(st.integers(0, 2**32))
def test_no_acknowledged_commit_or_generation_is_lost(seed: int) -> None:
    random = Random(seed)
    files = CrashingFiles()
    promises = Promises()

    for _ in range(4):
        run(live_and_lose_power(files, promises, random))

    async def last_life() -> None:
        async with life(files, random) as node:
            await check(node, promises)

    run(last_life())
