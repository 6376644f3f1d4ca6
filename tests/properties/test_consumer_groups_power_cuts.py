"""Consumer groups through power cuts: what a member was told still holds in the next life.

Members beat, come and go while the power goes at any moment, in the middle of a write or of a sync.
They live on and ask the next life. No member that was told of an epoch is unknown or fenced there,
and no partition is ever in the hands of two of them.
"""

import asyncio
from contextlib import suppress
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.engine.groups.consumer.reconciliation import LEAVING
from millstream.engine.groups.consumer.vocabulary import Beat
from millstream.errors import MillstreamError, RequestError, TopicExists
from millstream.errors.groups import FencedMember, UnknownMember
from millstream.model import LogId
from millstream.server.node import Node
from tests.properties.test_groups_power_cuts import life, loaded
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import SESSION
from tests.support.tiers import sized
from tests.support.virtual_loop import run

GROUP = "billing"
PARTITIONS = 6


class Reader:
    """A member that outlives the broker. Under a new name it begins anew."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.renamed = 0
        self.epoch = 0
        self.owned: frozenset[LogId] = frozenset()

    @property
    def member_id(self) -> str:
        return f"{self.name}{self.renamed}"

    async def beat(self, node: Node) -> None:
        beat = Beat(
            member_id=self.member_id,
            epoch=self.epoch,
            rebalance_timeout_ms=60_000,
            names=("orders",),
            owned=self.owned,
        )
        response = await node.consumer_groups.heartbeat(SESSION, GROUP, beat)
        assert response.assignment is not None
        self.epoch, self.owned = response.epoch, response.assignment

    async def leave(self, node: Node) -> None:
        beat = Beat(member_id=self.member_id, epoch=LEAVING)
        self.epoch, self.owned = 0, frozenset()
        self.renamed += 1
        await node.consumer_groups.heartbeat(SESSION, GROUP, beat)


def check(readers: list[Reader]) -> None:
    owned = [partition for reader in readers for partition in reader.owned]
    assert len(owned) == len(set(owned)), [(reader.name, reader.owned) for reader in readers]


async def read_on(node: Node, reader: Reader, readers: list[Reader], random: Random) -> None:
    while True:
        if reader.epoch and random.random() < 0.1:
            await reader.leave(node)
        await reader.beat(node)
        check(readers)
        await asyncio.sleep(random.choice([0, 0.001, 0.01]))


async def live_and_lose_power(files: CrashingFiles, readers: list[Reader], random: Random) -> None:
    async with life(files, random) as node:
        with suppress(TopicExists):
            await node.topics.create(SESSION, "orders", partitions=PARTITIONS)
        await node.groups.coordinator_of(SESSION, GROUP)
        await loaded(node)
        for reader in readers:
            await reader.beat(node)  # No member is refused.
            check(readers)
        busy = [asyncio.ensure_future(read_on(node, reader, readers, random)) for reader in readers]
        await asyncio.sleep(random.choice([0.002, 0.02, 0.3]) * random.random())
        files.power_cut(random, reorder=random.random() < 0.5)
        for task in busy:
            task.cancel()
        outcomes = await asyncio.gather(*busy, return_exceptions=True)
        for outcome in outcomes:
            assert isinstance(outcome, asyncio.CancelledError | MillstreamError), outcome
            assert not isinstance(outcome, FencedMember | UnknownMember), outcome


@settings(deadline=None, max_examples=sized(20))
@given(st.integers(0, 2**32))
def test_what_a_member_was_told_holds_after_the_power_was_gone(seed: int) -> None:
    random = Random(seed)
    files = CrashingFiles()
    readers = [Reader("a"), Reader("b"), Reader("c")]

    for _ in range(4):
        run(live_and_lose_power(files, readers, random))

    async def last_life() -> None:
        async with life(files, random) as node:
            await loaded(node)
            # Those who left without an answer hold on to their partitions for a session at most.
            for _ in range(60):
                for reader in readers:
                    with suppress(RequestError):
                        await reader.beat(node)
                    check(readers)
                await asyncio.sleep(1)
            assert sum(len(reader.owned) for reader in readers) == PARTITIONS

    run(last_life())
