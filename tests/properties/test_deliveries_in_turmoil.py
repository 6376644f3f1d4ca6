"""Whatever clients and operators do at the same time, the node lives, and all ends up settled.

Members come, answer in any way and go; topics are deleted, made again and widened; subscriptions
are deleted; dead letters are sent back and purged. A record of a topic that stays is worked on, or
is a dead letter, once.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.config import Config, Timing
from millstream.engine.dead_letters.records import Origin, origin_of
from millstream.engine.dead_letters.service import RedrivePlan
from millstream.engine.partitions.slices import Earliest
from millstream.engine.publish.publisher import Publication
from millstream.engine.push import (
    Delivered,
    FlowPolicy,
    Member,
    Overflow,
    RetryPolicy,
    SubscriptionSpec,
    read_records,
)
from millstream.errors import MillstreamError, UnknownTopic
from millstream.model import TopicPartition
from millstream.server.node import Node
from tests.support.deliveries import make_topic, on, until
from tests.support.nodes import SESSION, running_node
from tests.support.tiers import sized
from tests.support.virtual_loop import run

CONFIG = Config(delivery_partitions=2, timing=Timing(delivery_save_ms=10))
RETRY = RetryPolicy(max_retries=2, ack_timeout_ms=50, retry_delay_ms=10)
SPECS = [
    SubscriptionSpec(name="kept", topics=("stays",), start=Earliest(), retry=RETRY),
    SubscriptionSpec(name="all", pattern=on(">"), start=Earliest(), retry=RETRY),
    SubscriptionSpec(name="shared", is_durable=False, pattern=on("*"), retry=RETRY),
    SubscriptionSpec(topics=("goes",), retry=RETRY, flow=FlowPolicy(window=2, buffer=2)),
    SubscriptionSpec(
        name="lossy", pattern=on(">"), flow=FlowPolicy(window=1, buffer=1, overflow=Overflow.SHED)
    ),
]
STEPS = 60


class Worker:
    """Answers what it gets, one way or the other, now or later or not at all."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.member: Member | None = None
        self.got: list[Delivered] = []

    def send(self, deliveries: Sequence[Delivered]) -> bool:
        if self.member is None or self.random.random() < 0.1:
            return False
        self.got += deliveries
        for delivery in deliveries:
            self.answer(delivery)
        return True

    def answer(self, delivery: Delivered) -> None:
        assert self.member is not None
        place = delivery.target, delivery.record.offset
        match self.random.randrange(6):
            case 0 | 1:
                self.member.ack(*place)
            case 2:
                self.member.nack(*place, self.random.choice([None, 0, 20]))
            case 3:
                self.member.reject(*place, error="by chance")
            case 4:
                self.member.close()


class Turmoil:
    def __init__(self, node: Node, random: Random) -> None:
        self.node = node
        self.random = random
        self.workers: list[Worker] = []

    async def publish(self) -> None:
        topic = self.random.choice(["stays", "goes", "new"])
        count = self.random.randint(1, 150)
        values = [Publication(topic, b"v") for _ in range(count)]
        await asyncio.gather(*self.node.publisher.publish(SESSION, values), return_exceptions=True)

    async def join(self) -> None:
        worker = Worker(self.random)
        spec = self.random.choice(SPECS)
        worker.member = await self.node.deliveries.subscribe(SESSION, spec, worker.send)
        worker.member.resume()
        self.workers.append(worker)

    async def answer_late(self) -> None:
        for worker in self.workers:
            if worker.got:
                worker.answer(self.random.choice(worker.got))

    async def leave(self) -> None:
        if self.workers:
            worker = self.workers.pop(self.random.randrange(len(self.workers)))
            assert worker.member is not None
            worker.member.close()

    async def resume(self) -> None:
        for worker in self.workers:
            assert worker.member is not None
            worker.member.resume()

    async def delete_topic(self) -> None:
        await self.node.topics.delete(SESSION, self.random.choice(["goes", "new", "goes.dlq"]))

    async def make_topic(self) -> None:
        await make_topic(self.node, self.random.choice(["goes", "new"]))

    async def widen(self) -> None:
        topic = self.random.choice(["stays", "goes"])
        await self.node.topics.add_partitions(SESSION, topic, total=self.random.randint(2, 4))

    async def delete_subscription(self) -> None:
        await self.node.deliveries.delete(SESSION, self.random.choice(["all", "lossy"]))

    async def redrive(self) -> None:
        topic = self.random.choice(["stays", "goes", "new"])
        await self.node.dead_letters.redrive(SESSION, topic, RedrivePlan(count_max=5))

    async def purge(self) -> None:
        await self.node.dead_letters.purge(SESSION, "goes")

    async def step(self) -> None:
        deeds = [
            *[self.publish, self.join, self.answer_late, self.resume] * 3,
            self.leave,
            self.delete_topic,
            self.make_topic,
            self.widen,
            self.delete_subscription,
            self.redrive,
            self.purge,
        ]
        with suppress(MillstreamError):
            await self.random.choice(deeds)()


@settings(deadline=None, max_examples=sized(15))
@given(st.integers(0, 2**32))
def test_the_node_lives_and_all_that_stays_is_settled(seed: int) -> None:
    async def story() -> None:
        random = Random(seed)
        async with running_node(CONFIG) as node:
            await make_topic(node, "stays")
            await make_topic(node, "goes")
            await node.deliveries.create(SESSION, SPECS[0])
            turmoil = Turmoil(node, random)
            for _ in range(STEPS):
                steps = [turmoil.step() for _ in range(random.randint(1, 3))]
                await asyncio.gather(*steps)
                await asyncio.sleep(random.choice([0, 0.001, 0.05]))
            for worker in turmoil.workers:
                if worker.member is not None:
                    worker.member.close()

            members: list[Member] = []

            def finish(deliveries: Sequence[Delivered]) -> bool:
                return bool(members) and all(
                    members[0].ack(delivery.target, delivery.record.offset)
                    for delivery in deliveries
                )

            members.append(await node.deliveries.subscribe(SESSION, SPECS[0], finish))
            members[0].resume()
            dispatcher = members[0]._subscription.dispatcher
            ends = {
                target: node.partitions.health(SESSION, target).high_watermark
                for target in members[0]._subscription.logs
            }
            await until(lambda: all(dispatcher.cursors[at].floor >= ends[at] for at in ends))
            assert not dispatcher.given_up
            letters = [
                origin for origin in await origins(node, "stays.dlq") if origin.group == "kept"
            ]
            assert len({(letter.target, letter.offset) for letter in letters}) == len(letters)

    run(story())


async def origins(node: Node, topic: str) -> list[Origin]:
    """Of all dead letters that a topic has ever had."""
    target, offset, letters = TopicPartition(topic, 0), 0, []
    with suppress(UnknownTopic):
        while (chunk := await read_records(node.partitions, SESSION, target, offset)).records:
            letters += [origin_of(record) for record in chunk.records]
            offset = chunk.next_offset
    return [item for item in letters if item is not None]
