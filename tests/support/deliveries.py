"""Subscribers on a whole node on virtual time, and what they were sent."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from millstream.engine.publish.publisher import Publication
from millstream.engine.publish.receipts import Receipt
from millstream.engine.publish.subjects import Pattern
from millstream.engine.push import Delivered, Member, SubscriptionSpec, read_records
from millstream.errors import TopicExists
from millstream.model import Session, TopicPartition
from millstream.server.node import Node
from tests.support.nodes import SESSION

SECONDS_MAX = 3600  # Of virtual time: no test waits longer.


class Subscriber:
    """Keeps what it is sent; does nothing by itself unless told to acknowledge."""

    def __init__(self, *, acks: bool = False) -> None:
        self.got: list[Delivered] = []
        self.acks = acks
        self.has_room = True
        self.member: Member | None = None

    @property
    def values(self) -> list[bytes | None]:
        return [delivery.record.value for delivery in self.got]

    async def subscribe(
        self, node: Node, spec: SubscriptionSpec, *, session: Session = SESSION
    ) -> "Subscriber":
        self.member = await node.deliveries.subscribe(session, spec, self.send)
        return self

    def send(self, deliveries: Sequence[Delivered]) -> bool:
        if not self.has_room:
            return False
        self.got += deliveries
        if self.acks and self.member is not None:
            for delivery in deliveries:
                assert self.member.ack(delivery.target, delivery.record.offset)
        return True

    def ack(self, delivery: Delivered) -> bool:
        assert self.member is not None
        return self.member.ack(delivery.target, delivery.record.offset)

    def ack_all(self) -> None:
        for delivery in self.got:
            self.ack(delivery)

    def close(self) -> None:
        assert self.member is not None
        self.member.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not is_so():
            await asyncio.sleep(0.005)


async def pause(seconds: float = 1.0) -> None:
    """Long enough for anything that would happen to happen."""
    await asyncio.sleep(seconds)


async def make_topic(node: Node, name: str = "orders", *, partitions: int = 1) -> None:
    with suppress(TopicExists):
        await node.topics.create(SESSION, name, partitions=partitions)


async def publish(
    node: Node, *values: bytes, topic: str = "orders", subject: str | None = None
) -> list[Receipt]:
    headers = () if subject is None else (("ms-subject", subject.encode()),)
    futures = node.publisher.publish(
        SESSION, [Publication(topic, value, headers=headers) for value in values]
    )
    return [await future for future in futures]


async def values_in(node: Node, topic: str, partition: int = 0) -> list[bytes | None]:
    chunk = await read_records(node.partitions, SESSION, TopicPartition(topic, partition), 0)
    return [record.value for record in chunk.records]


def on(pattern: str) -> Pattern:
    return Pattern.parse(pattern)
