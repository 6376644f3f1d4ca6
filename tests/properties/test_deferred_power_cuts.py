"""Delayed records through power cuts: none lost, none early, none twice.

Two producers send delayed records, mixed with others, and at some moment the power goes: while
records are taken, while they wait, or anywhere on their way into their topic. One producer sends
everything once. The other is idempotent and sends a batch again until it is answered, over any
number of lives, as Kafka's clients do.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.config import Config
from millstream.errors import MillstreamError, TopicExists
from millstream.model import Acks, Producer, TopicPartition
from millstream.server.node import Node, build_node
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import NOW_MS, SESSION, FixedClock, fake_ports
from tests.support.queues import Message, batch_of, found_in, message
from tests.support.virtual_loop import run

PLACES = [TopicPartition("orders", partition) for partition in range(2)]
CONFIG = Config(deferred_partitions=2)
ME = Producer(7_000_000, 0)


class World:
    """What is left when the power goes, and what clients know."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.files = CrashingFiles()
        self.now_ms = NOW_MS
        self.count = 0
        self.sent: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.unanswered: tuple[Message, ...] = ()  # The idempotent producer's latest batch.
        self.sequence = 0

    def messages(self, now_ms: int) -> tuple[Message, ...]:
        found = []
        for _ in range(self.random.randint(1, 4)):
            self.count += 1
            value = b"%d" % self.count
            due_ms = now_ms + self.random.choice([1, 10, 100, 1_000])
            found.append(
                self.random.choice(
                    [
                        message(value, deliver_at=due_ms),
                        message(value, delay_ms=self.random.choice([0, 5, 500])),
                        message(value, deliver_at=due_ms, message_id=value),
                        message(value),
                    ]
                )
            )
        self.sent |= {one.value for one in found}
        return tuple(found)


async def send_once(node: Node, world: World, clock: FixedClock) -> None:
    while True:
        messages = world.messages(clock.now_ms())
        place = world.random.choice(PLACES)
        await node.partitions.append(SESSION, place, batch_of(*messages), Acks.ALL)
        world.acknowledged |= {one.value for one in messages}
        await asyncio.sleep(world.random.choice([0.001, 0.02]))


async def send_until_answered(node: Node, world: World, clock: FixedClock) -> None:
    while True:
        world.unanswered = world.unanswered or world.messages(clock.now_ms())
        messages = world.unanswered
        sent = batch_of(*messages, producer=ME, base_sequence=world.sequence)
        await node.partitions.append(SESSION, PLACES[0], sent, Acks.ALL)
        world.acknowledged |= {one.value for one in messages}
        world.sequence += len(messages)
        world.unanswered = ()
        await asyncio.sleep(world.random.choice([0.001, 0.02]))


async def check(node: Node, world: World, clock: FixedClock) -> Counter[bytes | None]:
    seen: Counter[bytes | None] = Counter()
    for place in PLACES:
        for record in await found_in(node, place):
            due = dict(record.headers).get("ms-deliver-at")
            assert due is None or int(due) <= clock.now_ms(), "early"
            seen[record.value] += 1
    assert set(seen.values()) <= {1}, "twice"
    assert seen.keys() <= world.sent
    return seen


async def lose_power(world: World) -> None:
    """Before one of the next operations on files, whichever it is."""
    left = world.random.randint(1, 40)
    is_dark = asyncio.Event()

    def look(kind: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            world.files.on_operation = None
            world.files.power_cut(world.random, reorder=world.random.random() < 0.5)
            is_dark.set()

    world.files.on_operation = look
    async with asyncio.timeout(60):
        await is_dark.wait()


async def live(world: World, *, is_last: bool) -> None:
    clock = FixedClock(world.now_ms)
    node = build_node(CONFIG, replace(fake_ports(world.files, clock), entropy=world.random))
    task = asyncio.ensure_future(node.run())
    await node.ready.wait()
    with suppress(TopicExists):
        await node.topics.create(SESSION, "orders", partitions=len(PLACES))
    clients = [
        asyncio.ensure_future(send_once(node, world, clock)),
        asyncio.ensure_future(send_until_answered(node, world, clock)),
    ]
    for _ in range(3):
        await asyncio.sleep(world.random.choice([0.001, 0.01, 0.1]) * world.random.random())
        await check(node, world, clock)
    if is_last:
        clients[0].cancel()
        async with asyncio.timeout(60):
            while world.unanswered:
                await asyncio.sleep(0.0005)
        clients[1].cancel()
        await asyncio.sleep(5)
        seen = await check(node, world, clock)
        assert world.acknowledged <= seen.keys(), "lost"
        assert len(world.acknowledged) > 10
    else:
        await lose_power(world)
    for client in clients:
        client.cancel()
    for outcome in await asyncio.gather(*clients, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError | MillstreamError), outcome
    task.cancel()
    with suppress(asyncio.CancelledError, MillstreamError, OSError):
        await task
    world.now_ms = clock.now_ms() + world.random.choice([0, 100, 10_000])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_delayed_records_are_delivered_once_and_in_time_after_every_power_cut(seed: int) -> None:
    world = World(seed)

    for life in range(5):
        run(live(world, is_last=life == 4))
