"""Subscriptions when something else happens at the same time."""

import asyncio
from collections.abc import Sequence

import pytest

from millstream.config import Config, Limits
from millstream.engine.gate import Everyone, Operation
from millstream.engine.partitions.slices import Earliest
from millstream.engine.publish.publisher import Publication
from millstream.engine.push import (
    AckMode,
    Delivered,
    FlowPolicy,
    Member,
    RetryPolicy,
    SubscriptionSpec,
)
from millstream.errors import Denied, Overloaded
from millstream.model import Session, user_principal
from millstream.storage.files.memory import MemoryFiles
from tests.support.deliveries import Subscriber, make_topic, on, pause, publish, until
from tests.support.nodes import ORDERS, SESSION, running_node
from tests.support.virtual_loop import run

BILLING = SubscriptionSpec(name="billing", topics=("orders",), start=Earliest())
STRANGER = Session(principal=user_principal("stranger"))


class NotTheSecrets(Everyone):
    """A policy that keeps strangers out of one topic."""

    def __init__(self) -> None:
        self.is_strict = True

    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        is_secret = resource == "topic:secrets" and self.is_strict
        return session.principal.name != "stranger" or not is_secret


def test_those_who_ask_at_the_same_time_share_one_subscription() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            for spec in (BILLING, SubscriptionSpec(name="g", is_durable=False, pattern=on(">"))):
                members = await asyncio.gather(
                    *(Subscriber(acks=True).subscribe(node, spec) for _ in range(5))
                )
                await publish(node, *[b"%d" % at for at in range(10)])
                await pause()
                assert [len(member.got) for member in members] == [2] * 5
                for member in members:
                    member.close()

    run(story())


def test_a_member_may_leave_while_it_is_sent_something() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            leavers: list[Member] = []

            def send_and_leave(deliveries: Sequence[Delivered]) -> bool:
                for member in leavers:  # As when a connection breaks that has several members.
                    member.close()
                return len(leavers) % 2 == 0

            stays = await Subscriber(acks=True).subscribe(node, BILLING)
            subscribe = node.deliveries.subscribe
            leavers += [await subscribe(SESSION, BILLING, send_and_leave) for _ in range(3)]
            await publish(node, *[b"%d" % at for at in range(12)])
            await until(lambda: len(stays.got) == 12)

            assert sorted(stays.values) == sorted(b"%d" % at for at in range(12))  # type: ignore[type-var]
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 12
            assert len(view.members) == 1

    run(story())


def test_the_last_member_of_a_passing_subscription_may_leave_while_it_is_sent_something() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            members: list[Member] = []

            def send(deliveries: Sequence[Delivered]) -> bool:
                members[0].close()
                return False

            spec = SubscriptionSpec(pattern=on("orders"))
            members.append(await node.deliveries.subscribe(SESSION, spec, send))
            await publish(node, b"a")
            await pause()
            assert not node._engine.push.pump.live

    run(story())


def test_a_pattern_shows_nothing_that_may_not_be_read() -> None:
    async def story() -> None:
        async with running_node(policy=NotTheSecrets()) as node:
            await make_topic(node, "secrets")
            await make_topic(node)
            subscriber = Subscriber(acks=True)
            spec = SubscriptionSpec(pattern=on(">"), start=Earliest())
            subscriber.member = await node.deliveries.subscribe(STRANGER, spec, subscriber.send)
            await publish(node, b"hidden", topic="secrets")
            await publish(node, b"shown")
            await pause()

            assert subscriber.values == [b"shown"]
            named = SubscriptionSpec(topics=("secrets",))
            with pytest.raises(Denied):
                await node.deliveries.subscribe(STRANGER, named, subscriber.send)

    run(story())


def test_rights_that_are_taken_away_end_the_reading_of_that_topic_only() -> None:
    async def story() -> None:
        policy = NotTheSecrets()
        policy.is_strict = False
        async with running_node(policy=policy) as node:
            await make_topic(node, "secrets")
            subscriber, friend = Subscriber(acks=True), Subscriber(acks=True)
            spec = SubscriptionSpec(pattern=on("*"))
            subscriber.member = await node.deliveries.subscribe(STRANGER, spec, subscriber.send)
            await friend.subscribe(node, spec)
            await publish(node, b"shown", topic="secrets")
            await until(lambda: len(subscriber.got) == 1)
            policy.is_strict = True
            await publish(node, b"hidden", topic="secrets")
            await publish(node, b"plain")
            await pause()

            assert subscriber.values == [b"shown", b"plain"]
            assert sorted(friend.values, key=str) == [b"hidden", b"plain", b"shown"]

    run(story())


def test_records_that_are_deleted_are_not_waited_for() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_node(files=files) as node:
            await make_topic(node)
            await publish(node, *[b"%d" % at for at in range(10)])
            subscriber = await Subscriber().subscribe(node, BILLING)
            await until(lambda: len(subscriber.got) == 10)
            assert subscriber.ack(subscriber.got[3])
        async with running_node(files=files) as node:
            await node.partitions.awake(SESSION, [node.topics.describe(SESSION, "orders")])
            node.partitions.delete_records(SESSION, ORDERS, 8)
            again = await Subscriber(acks=True).subscribe(node, BILLING)
            await publish(node, b"new")
            await until(lambda: len(again.got) == 3)
            await pause()

            assert again.values == [b"8", b"9", b"new"]
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 11

    run(story())


def test_a_log_that_moves_on_past_a_slow_subscription_is_followed() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            flow = FlowPolicy(window=1, buffer=1)
            spec = SubscriptionSpec(pattern=on("orders"), flow=flow)
            subscriber = await Subscriber().subscribe(node, spec)
            for at in range(20):
                await publish(node, b"%d" % at)
            await pause()
            node.partitions.delete_records(SESSION, ORDERS, 15)
            for _ in range(20):
                if subscriber.got:
                    subscriber.ack(subscriber.got[-1])
                await pause(0.1)
            # What was read already is delivered; of the rest, what is left.
            assert subscriber.values[-5:] == [b"%d" % at for at in range(15, 20)]

    run(story())


def test_a_large_batch_reaches_a_small_window_piece_by_piece() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await publish(node, *[b"%d" % at for at in range(2_000)])
            flow = FlowPolicy(window=10, buffer=10)
            spec = SubscriptionSpec(topics=("orders",), start=Earliest(), flow=flow)
            subscriber = await Subscriber(acks=True).subscribe(node, spec)
            await until(lambda: len(subscriber.got) == 2_000)

            assert subscriber.values == [b"%d" % at for at in range(2_000)]

    run(story())


def test_a_retry_that_waits_does_not_hold_up_the_others() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            retry = RetryPolicy(retry_delay_ms=60_000, jitter=0)
            spec = SubscriptionSpec(topics=("orders",), start=Earliest(), retry=retry)
            subscriber = await Subscriber().subscribe(node, spec)
            await publish(node, b"sick")
            await until(lambda: len(subscriber.got) == 1)
            assert subscriber.member is not None
            assert subscriber.member.nack(ORDERS, 0)
            await publish(node, *[b"%d" % at for at in range(50)])
            await until(lambda: len(subscriber.got) == 51)
            for delivery in subscriber.got[1:]:
                assert subscriber.ack(delivery)
            await until(lambda: len(subscriber.got) == 52)
            assert subscriber.values[-1] == b"sick"

    run(story())


def test_what_is_held_in_memory_is_bounded() -> None:
    async def story() -> None:
        limits = Limits(delivery_buffered_bytes_max=50_000, delivery_unsettled_max=40)
        async with running_node(Config(limits=limits)) as node:
            await make_topic(node)
            for _ in range(100):
                await publish(node, bytes(100))
            spec = SubscriptionSpec(topics=("orders",), start=Earliest())
            subscriber = await Subscriber().subscribe(node, spec)
            await pause()
            assert len(subscriber.got) == 40

            await make_topic(node, "large")
            for _ in range(100):
                await publish(node, bytes(10_000), topic="large")
            spec = SubscriptionSpec(topics=("large",), start=Earliest())
            other = await Subscriber().subscribe(node, spec)
            await pause()
            assert len(other.got) == 5
            other.acks = True
            other.ack_all()
            await until(lambda: len(other.got) == 100)

    run(story())


def test_there_are_only_so_many_subscriptions() -> None:
    async def story() -> None:
        async with running_node(Config(limits=Limits(subscriptions_max=2))) as node:
            await make_topic(node)
            first = await Subscriber().subscribe(node, SubscriptionSpec(pattern=on("a")))
            await Subscriber().subscribe(node, SubscriptionSpec(pattern=on("b")))
            with pytest.raises(Overloaded):
                await Subscriber().subscribe(node, SubscriptionSpec(pattern=on("c")))
            first.close()
            await Subscriber().subscribe(node, SubscriptionSpec(pattern=on("c")))

    run(story())


def test_members_of_a_deleted_subscription_are_notified() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            subscriber = await Subscriber().subscribe(node, BILLING)
            assert subscriber.member is not None
            ended: list[bool] = []
            subscriber.member.on_end = lambda: ended.append(True)
            await node.deliveries.delete(SESSION, "billing")
            assert ended == [True]
            subscriber.close()

    run(story())


def test_many_partitions_are_read_side_by_side() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node, partitions=8)
            spec = SubscriptionSpec(name="all", topics=("orders",), acks=AckMode.ON_SEND)
            subscriber = await Subscriber().subscribe(node, spec)
            futures = node.publisher.publish(
                SESSION,
                [Publication("orders", b"%d" % at, partition=at % 8) for at in range(400)],
            )
            await asyncio.gather(*futures)
            await until(lambda: len(subscriber.got) == 400)

            for partition in range(8):
                mine = [
                    delivery
                    for delivery in subscriber.got
                    if delivery.target.partition == partition
                ]
                assert [delivery.record.offset for delivery in mine] == list(range(50))

    run(story())
