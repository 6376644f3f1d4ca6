"""Deliveries through power cuts: nothing is lost, and no record becomes a dead letter twice.

A subscriber acknowledges, fails and rejects at random, and at some moment the power goes, in the
middle of a write or of a sync. What is in the dead-letter topic when a node comes up is settled: it
is never delivered again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.config import Config, Timing
from millstream.engine.dead_letters.service import DeadLetter, RedrivePlan
from millstream.engine.partitions.slices import Earliest
from millstream.engine.publish.publisher import Publication
from millstream.engine.push import Delivered, Member, RetryPolicy, SubscriptionSpec
from millstream.errors import MillstreamError
from millstream.server.node import Node, build_node
from tests.support.crashing_files import CrashingFiles
from tests.support.deliveries import make_topic, until, values_in
from tests.support.nodes import SESSION, fake_ports
from tests.support.sealed import config_if_sealing
from tests.support.tiers import sized
from tests.support.virtual_loop import run

CONFIG = Config(delivery_partitions=2, timing=Timing(delivery_save_ms=10))
BILLING = SubscriptionSpec(
    name="billing",
    topics=("orders",),
    start=Earliest(),
    retry=RetryPolicy(max_retries=2, ack_timeout_ms=30, retry_delay_ms=5),
)


class World:
    """What is true whatever happens to the broker."""

    def __init__(self) -> None:
        self.files = CrashingFiles()
        self.published = 0  # Answered: these must not be lost.
        self.acked: set[int] = set()
        self.sent: Counter[int] = Counter()


class Worker:
    """Answers what it gets, one way or the other, or not at all."""

    def __init__(self, world: World, random: Random, dead: set[int]) -> None:
        self.world = world
        self.random = random
        self.dead = dead
        self.member: Member | None = None
        self.is_patient = False

    def send(self, deliveries: Sequence[Delivered]) -> bool:
        if self.member is None:
            return False
        for delivery in deliveries:
            offset = delivery.record.offset
            assert offset not in self.dead, "a dead letter was delivered again"
            self.world.sent[offset] += 1
            choice = 0.0 if self.is_patient else self.random.random()
            if choice < 0.4:
                assert self.member.ack(delivery.target, offset)
                self.world.acked.add(offset)
            elif choice < 0.6:
                assert self.member.reject(delivery.target, offset, "bad", "by chance")
            elif choice < 0.8:
                assert self.member.nack(delivery.target, offset)
        return True


@asynccontextmanager
async def life(world: World, random: Random) -> AsyncIterator[Node]:
    """A node until its power goes. Its ids are drawn anew in each life."""
    node = build_node(config_if_sealing(CONFIG), replace(fake_ports(world.files), entropy=random))
    task = asyncio.ensure_future(node.run())
    await node.ready.wait()
    try:
        await make_topic(node)
        yield node
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def dead_letters(node: Node) -> list[DeadLetter]:
    return list(await node.dead_letters.list(SESSION, "orders", count_max=10_000))


async def publish_often(node: Node, world: World, random: Random) -> None:
    while True:
        values = [Publication("orders", b"v") for _ in range(random.randint(1, 4))]
        for future in node.publisher.publish(SESSION, values):
            world.published = max(world.published, (await future).offset + 1)
        await asyncio.sleep(0.002)


async def work(node: Node, world: World, random: Random, *, patient: bool = False) -> Worker:
    letters = await dead_letters(node)
    offsets = [letter.origin.offset for letter in letters]
    assert len(offsets) == len(set(offsets)), "two dead letters of one record"
    worker = Worker(world, random, set(offsets))
    worker.is_patient = patient
    worker.member = await node.deliveries.subscribe(SESSION, BILLING, worker.send)
    worker.member.resume()
    return worker


async def live_and_lose_power(world: World, random: Random) -> None:
    async with life(world, random) as node:
        publishing = asyncio.ensure_future(publish_often(node, world, random))
        working = asyncio.ensure_future(work(node, world, random))
        await asyncio.sleep(random.choice([0.02, 0.1, 0.3]) * random.random())
        world.files.power_cut(random, reorder=random.random() < 0.5)
        for task in (publishing, working):
            task.cancel()
        for outcome in await asyncio.gather(publishing, working, return_exceptions=True):
            allowed = asyncio.CancelledError | MillstreamError | Worker
            assert isinstance(outcome, allowed), outcome


@settings(deadline=None, max_examples=sized(25))
@given(st.integers(0, 2**32))
def test_every_record_is_acknowledged_or_one_dead_letter(seed: int) -> None:
    random = Random(seed)
    world = World()
    for _ in range(4):
        run(live_and_lose_power(world, random))

    async def last_life() -> None:
        async with life(world, random) as node:
            count = len(await values_in(node, "orders"))
            assert count >= world.published
            worker = await work(node, world, random, patient=True)
            assert worker.member is not None
            dispatcher = worker.member._subscription.dispatcher
            await until(lambda: all(c.floor >= count for c in dispatcher.cursors.values()))

            letters = [letter.origin.offset for letter in await dead_letters(node)]
            assert len(letters) == len(set(letters)), "two dead letters of one record"
            assert set(range(count)) <= world.acked | set(letters)
            assert set(range(count)) <= set(world.sent), "a record that was never delivered"

    run(last_life())


@settings(deadline=None, max_examples=sized(15))
@given(st.integers(0, 2**32))
def test_every_dead_letter_is_sent_back_once(seed: int) -> None:
    random = Random(seed)
    world = World()

    async def make_dead_letters() -> None:
        async with life(world, random) as node:
            futures = node.publisher.publish(
                SESSION, [Publication("orders", b"%d" % at) for at in range(20)]
            )
            await asyncio.gather(*futures)
            member: list[Member] = []

            def send(deliveries: Sequence[Delivered]) -> bool:
                return bool(member) and all(
                    member[0].reject(delivery.target, delivery.record.offset)
                    for delivery in deliveries
                )

            member.append(await node.deliveries.subscribe(SESSION, BILLING, send))
            member[0].resume()
            dispatcher = member[0]._subscription.dispatcher
            await until(lambda: all(c.floor >= 20 for c in dispatcher.cursors.values()))
            await asyncio.sleep(1)
            world.files.power_cut(random, reorder=False)

    async def redrive_and_lose_power() -> None:
        async with life(world, random) as node:
            plan = RedrivePlan(rate=random.choice([100.0, 1000.0]))
            redriving = asyncio.ensure_future(node.dead_letters.redrive(SESSION, "orders", plan))
            await asyncio.sleep(0.2 * random.random())
            world.files.power_cut(random, reorder=random.random() < 0.5)
            redriving.cancel()
            await asyncio.gather(redriving, return_exceptions=True)

    async def last_life() -> None:
        async with life(world, random) as node:
            await node.dead_letters.redrive(SESSION, "orders", RedrivePlan())
            values = await values_in(node, "orders")
            assert Counter(values) == Counter({b"%d" % at: 2 for at in range(20)})

    run(make_dead_letters())
    for _ in range(3):
        run(redrive_and_lose_power())
    run(last_life())
