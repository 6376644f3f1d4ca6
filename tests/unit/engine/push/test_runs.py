"""Runs: without acknowledgements records go past the queues, in order, and none is lost."""

from collections.abc import Sequence

import pytest

from millstream.codec.records import Record
from millstream.engine.publish.subjects import Pattern
from millstream.engine.push import (
    AckMode,
    Delivered,
    DeliveredRun,
    FlowPolicy,
    SubscriptionSpec,
)
from millstream.model import TopicPartition
from millstream.protocols.flux.messages import Messages
from tests.support.deliveries import Subscriber, make_topic, pause, publish
from tests.support.nodes import SESSION, running_node
from tests.support.virtual_loop import run

PLAIN = SubscriptionSpec(pattern=Pattern.parse(">"), acks=AckMode.ON_SEND)
NUMBERS = [b"%d" % number for number in range(300)]


class Watched(Subscriber):
    """Also keeps in which lists its records came."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Sequence[Delivered]] = []

    def send(self, deliveries: Sequence[Delivered]) -> bool:
        if self.has_room:
            self.sent.append(deliveries)
        return super().send(deliveries)

    @property
    def has_run(self) -> bool:
        return any(isinstance(deliveries, DeliveredRun) for deliveries in self.sent)


def test_subscribers_of_the_same_records_share_one_run() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            ann, bob = Watched(), Watched()
            for subscriber in (ann, bob):
                await subscriber.subscribe(node, PLAIN)
            await pause()
            await publish(node, *NUMBERS)
            await pause()

            assert ann.values == bob.values == NUMBERS
            assert ann.has_run
            assert all(buffer is other for buffer, other in zip(ann.sent, bob.sent, strict=True))
            assert ann.member is not None
            statistics = ann.member.statistics()
            assert (statistics.delivered, statistics.acknowledged) == (300, 300)
            assert (statistics.in_flight, statistics.buffered) == (0, 0)

    run(story())


def test_each_subscriber_gets_the_subjects_that_it_asked_for_in_order() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            everything, some = Watched(), Watched()
            await everything.subscribe(node, PLAIN)
            await some.subscribe(
                node,
                SubscriptionSpec(
                    topics=("orders",), pattern=Pattern.parse("a.*"), acks=AckMode.ON_SEND
                ),
            )
            await pause()
            for number in range(40):
                await publish(node, b"%d" % number, subject=("a.x", "b.x", "a.y")[number % 3])
            await pause()

            assert everything.values == [b"%d" % number for number in range(40)]
            assert some.values == [b"%d" % number for number in range(40) if number % 3 != 1]

    run(story())


def test_one_without_room_gets_all_of_it_later_and_holds_up_nobody() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            quick, slow = Watched(), Watched()
            for subscriber in (quick, slow):
                await subscriber.subscribe(node, PLAIN)
            await pause()
            slow.has_room = False
            await publish(node, *NUMBERS[:100])
            await publish(node, *NUMBERS[100:200])
            await pause()
            assert quick.values == NUMBERS[:200]
            assert slow.values == []

            slow.has_room = True
            assert slow.member is not None
            slow.member.resume()
            await publish(node, *NUMBERS[200:])
            await pause()

            assert slow.values == quick.values == NUMBERS

    run(story())


@pytest.mark.parametrize(
    "spec",
    [
        SubscriptionSpec(pattern=Pattern.parse(">")),
        SubscriptionSpec(
            pattern=Pattern.parse(">"), acks=AckMode.ON_SEND, flow=FlowPolicy(rate=1e6, burst=1000)
        ),
        SubscriptionSpec(pattern=Pattern.parse(">"), acks=AckMode.ON_SEND, filter="value != '7'"),
    ],
    ids=["acknowledged", "limited", "filtered"],
)
def test_what_must_be_remembered_or_limited_is_queued(spec: SubscriptionSpec) -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            subscriber = Watched()
            await subscriber.subscribe(node, spec)
            await pause()
            await publish(node, *NUMBERS[:50])
            await pause()

            assert len(subscriber.values) >= 49
            assert not subscriber.has_run

    run(story())


@pytest.mark.parametrize("has_headers", [False, True])
def test_frames_of_a_run_are_those_of_its_records(has_headers: bool) -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            target = TopicPartition("orders", 0)
            values = (b"", None, b"a\nb\r\nMSG x 1 2 3\r\n", b"\n", b"\x00" * 40)
            delivered = [
                Delivered(target, Record(at, 5, None, value, (("h", b"\n1"),)), f"s {at}\n", 1)
                for at, value in enumerate(values)
            ]
            shared = DeliveredRun(delivered)
            for sid in (b"1", b"other-sid"):
                messages = Messages(node.topics, SESSION)
                messages.has_headers = has_headers
                assert messages.encode(shared, sid) == messages.encode(delivered, sid)
            assert len(shared.encoded) == 1

    run(story())
