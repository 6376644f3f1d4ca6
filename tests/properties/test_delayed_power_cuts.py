"""Delayed records through power cuts: none lost, none early, none twice, none that was cancelled.

Two producers send delayed records, mixed with others, and at some moment the power goes: while
records are taken, while they wait, or anywhere on their way into their topic. One producer sends
everything once, and takes some of it back, about when it is due. The other is idempotent and sends
a batch again until it is answered, over any number of lives, as Kafka's clients do.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.config import Config
from millstream.errors import CoordinatorLoading, MillstreamError, TopicExists
from millstream.errors.delayed import UnknownDelayedRecord
from millstream.model import Acks, Producer, TopicPartition
from millstream.server.node import Node, build_node
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import NOW_MS, SESSION, FixedClock, fake_ports
from tests.support.queues import Message, batch_of, found_in, message
from tests.support.sealed import config_if_sealing
from tests.support.tiers import sized
from tests.support.virtual_loop import run

PLACES = [TopicPartition("orders", partition) for partition in range(2)]
CONFIG = Config(delayed_partitions=2)
ME = Producer(7_000_000, 0)

T = TypeVar("T")


class SlowThreads:
    """What is done there is done at once, but it takes a while until that is known."""

    def __init__(self, random: Random) -> None:
        self._random = random

    async def run(self, work: Callable[[], T]) -> T:
        result = work()
        await asyncio.sleep(self._random.choice([0.001, 0.004, 0.02]))
        return result


Client = Callable[[Node, "World", FixedClock], Coroutine[None, None, None]]


class World:
    """What is left when the power goes, and what clients know."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.files = CrashingFiles()
        self.now_ms = NOW_MS
        self.count = 0
        self.sent: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.ids: deque[tuple[str, bytes]] = deque(maxlen=20)  # Of the latest delayed records.
        self.perhaps_cancelled: set[bytes] = set()
        self.cancelled: set[bytes] = set()
        self.unanswered: tuple[Message, ...] = ()  # The idempotent producer's latest batch.
        self.sequence = 0

    def messages(self, now_ms: int) -> tuple[Message, ...]:
        collected = []
        for _ in range(self.random.randint(1, 4)):
            self.count += 1
            value = b"%d" % self.count
            due_ms = now_ms + self.random.choice([1, 10, 100, 1_000])
            collected.append(
                self.random.choice(
                    [
                        message(value, deliver_at=due_ms),
                        message(value, delay_ms=self.random.choice([0, 5, 500])),
                        message(value, deliver_at=due_ms, message_id=value),
                        message(value),
                    ]
                )
            )
        self.sent |= {message.value for message in collected}
        return tuple(collected)


async def send_once(node: Node, world: World, clock: FixedClock) -> None:
    while True:
        messages = world.messages(clock.now_ms())
        place = world.random.choice(PLACES)
        done = await node.partitions.append(SESSION, place, batch_of(*messages), Acks.ALL)
        world.acknowledged |= {message.value for message in messages}
        world.ids += [(name, messages[at].value) for at, name in done.delayed.items()]
        await asyncio.sleep(world.random.choice([0.001, 0.02]))


async def send_bursts(node: Node, world: World, clock: FixedClock) -> None:
    """Many that are due soon, and then some that are due before most of those."""
    while True:
        for delay_ms_max, count in ((60, 30), (8, 3), (8, 3)):
            values = [b"%d" % (world.count + at) for at in range(count)]
            world.count += count
            world.sent.update(values)
            delays_ms = [world.random.randint(1, delay_ms_max) for _ in values]
            messages = [
                message(value, deliver_at=clock.now_ms() + delay_ms)
                for value, delay_ms in zip(values, delays_ms, strict=True)
            ]
            done = await node.partitions.append(SESSION, PLACES[0], batch_of(*messages), Acks.ALL)
            world.acknowledged.update(values)
            world.ids += [(name, messages[at].value) for at, name in done.delayed.items()]
            await asyncio.sleep(world.random.choice([0.001, 0.004]))
        await asyncio.sleep(world.random.choice([0.01, 0.06]))


async def cancel_some(node: Node, world: World, clock: FixedClock) -> None:
    while True:
        await asyncio.sleep(world.random.choice([0.001, 0.02, 0.1]))
        if not world.ids:
            continue
        name, value = world.random.choice(world.ids)
        is_first = value not in world.perhaps_cancelled
        world.perhaps_cancelled.add(value)
        try:
            await node.delayed.cancel(SESSION, name)
        except UnknownDelayedRecord:
            if is_first:
                world.perhaps_cancelled.discard(value)
        except CoordinatorLoading:
            continue  # Whether an earlier life delivered it is about to be known.
        else:
            assert value not in world.cancelled
            world.cancelled.add(value)


async def send_until_answered(node: Node, world: World, clock: FixedClock) -> None:
    while True:
        world.unanswered = world.unanswered or world.messages(clock.now_ms())
        messages = world.unanswered
        sent = batch_of(*messages, producer=ME, base_sequence=world.sequence)
        await node.partitions.append(SESSION, PLACES[0], sent, Acks.ALL)
        world.acknowledged |= {message.value for message in messages}
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
    assert not seen.keys() & world.cancelled
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


async def live(world: World, *senders: Client, is_last: bool) -> None:
    clock = FixedClock(world.now_ms)
    ports = fake_ports(world.files, clock)
    threads = SlowThreads(world.random)
    ports = replace(ports, entropy=world.random, threads=threads, sync_threads=threads)
    node = build_node(config_if_sealing(CONFIG), ports)
    task = asyncio.ensure_future(node.run())
    await node.ready.wait()
    with suppress(TopicExists):
        await node.topics.create(SESSION, "orders", partitions=len(PLACES))
    clients = [
        asyncio.ensure_future(client(node, world, clock)) for client in (*senders, cancel_some)
    ]
    for _ in range(3):
        await asyncio.sleep(world.random.choice([0.001, 0.01, 0.1]) * world.random.random())
        await check(node, world, clock)
    if is_last:
        async with asyncio.timeout(60):
            while world.unanswered:
                await asyncio.sleep(0.0005)
        for client in clients:
            client.cancel()
        await asyncio.sleep(5)
        seen = await check(node, world, clock)
        assert world.acknowledged <= seen.keys() | world.perhaps_cancelled, "lost"
        assert len(world.acknowledged) > 10
    else:
        await lose_power(world)
    for client in clients:
        client.cancel()
    for outcome in await asyncio.gather(*clients, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError | MillstreamError), outcome
    task.cancel()
    # A group, if it ended by itself: without its control log there is no node.
    with suppress(asyncio.CancelledError, MillstreamError, OSError, ExceptionGroup):
        await task
    world.now_ms = clock.now_ms() + world.random.choice([0, 100, 10_000])


@settings(max_examples=sized(20), deadline=None)
@given(st.integers(0, 2**32))
def test_delayed_records_are_delivered_once_and_in_time_after_every_power_cut(seed: int) -> None:
    world = World(seed)

    for life in range(5):
        run(live(world, send_once, send_until_answered, is_last=life == 4))


@settings(max_examples=sized(20), deadline=None)
@given(st.integers(0, 2**32))
def test_the_same_if_the_power_goes_while_many_are_due(seed: int) -> None:
    world = World(seed)

    for life in range(8):
        run(live(world, send_bursts, is_last=life == 7))
