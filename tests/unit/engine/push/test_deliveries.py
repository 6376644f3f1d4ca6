"""Subscriptions on a whole node: who gets what, how often, and what is remembered."""

import asyncio
from itertools import pairwise

import pytest

from millstream.engine.partitions.slices import AtTime, Earliest, LastRecords, Latest
from millstream.engine.publish.publisher import Publication
from millstream.engine.push import (
    AckMode,
    AtOffset,
    FlowPolicy,
    Overflow,
    RetryPolicy,
    SubscriptionSpec,
)
from millstream.engine.push.feed import Feed
from millstream.errors.deliveries import (
    InvalidSubscription,
    SubscriptionExists,
    UnknownSubscription,
)
from millstream.model import TopicPartition
from millstream.storage.files.memory import MemoryFiles
from tests.support.deliveries import Subscriber, make_topic, on, pause, publish, until
from tests.support.nodes import NOW_MS, ORDERS, SESSION, running_node
from tests.support.transactions import Writer, running_transactions
from tests.support.virtual_loop import run

FAST = RetryPolicy(ack_timeout_ms=1_000, max_retries=2)
BILLING = SubscriptionSpec(name="billing", topics=("orders",), start=Earliest(), retry=FAST)


def test_a_subscriber_gets_what_comes_after_it() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await publish(node, b"before")
            subscriber = await Subscriber().subscribe(node, SubscriptionSpec(pattern=on("orders")))

            await publish(node, b"after")
            await until(lambda: bool(subscriber.got))

            assert subscriber.values == [b"after"]
            (delivery,) = subscriber.got
            assert delivery.target == ORDERS
            assert delivery.record.offset == 1
            assert delivery.subject == "orders"
            assert delivery.attempt == 1

    run(story())


def test_every_subscription_gets_every_record_that_matches() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            patterns = ["orders.>", "orders.*", "orders.us.*", ">", "*.eu", "orders", "payments.>"]
            subscribers = {
                text: await Subscriber(acks=True).subscribe(
                    node, SubscriptionSpec(pattern=on(text))
                )
                for text in patterns
            }
            for subject in ("orders.us", "orders.eu", "orders.us.new"):
                await publish(node, subject.encode(), subject=subject)
            await publish(node, b"orders")
            await pause()

            got = {text: subscriber.values for text, subscriber in subscribers.items()}
            assert got == {
                "orders.>": [b"orders.us", b"orders.eu", b"orders.us.new"],
                "orders.*": [b"orders.us", b"orders.eu"],
                "orders.us.*": [b"orders.us.new"],
                ">": [b"orders.us", b"orders.eu", b"orders.us.new", b"orders"],
                "*.eu": [b"orders.eu"],
                "orders": [b"orders"],
                "payments.>": [],
            }

    run(story())


def test_topics_and_partitions_that_come_later_join() -> None:
    async def story() -> None:
        async with running_node() as node:
            subscriber = await Subscriber(acks=True).subscribe(
                node, SubscriptionSpec(pattern=on("*"))
            )
            await publish(node, b"first", topic="fresh")
            await until(lambda: len(subscriber.got) == 1)
            await node.topics.add_partitions(SESSION, "fresh", total=2)

            await node.publisher.publish(SESSION, [Publication("fresh", b"x", partition=1)])[0]
            await until(lambda: len(subscriber.got) == 2)

            assert subscriber.values == [b"first", b"x"]
            assert subscriber.got[1].target == TopicPartition("fresh", 1)

    run(story())


def test_a_topic_that_was_deleted_and_made_again_is_a_new_one() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            subscriber = await Subscriber().subscribe(node, BILLING)
            await publish(node, b"old")
            await until(lambda: len(subscriber.got) == 1)
            await node.topics.delete(SESSION, "orders")
            await pause()
            await make_topic(node)
            await publish(node, b"new")
            await until(lambda: len(subscriber.got) == 2)

            assert subscriber.values == [b"old", b"new"]
            assert subscriber.ack(subscriber.got[1])
            await pause(10)
            assert len(subscriber.got) == 2

    run(story())


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (Earliest(), [b"0", b"1", b"2", b"3", b"4"]),
        (Latest(), []),
        (LastRecords(2), [b"3", b"4"]),
        (AtOffset(3), [b"3", b"4"]),
        (AtOffset(5), []),
        (AtTime(NOW_MS), [b"0", b"1", b"2", b"3", b"4"]),
        (AtTime(NOW_MS + 10**9), []),
    ],
)
def test_a_subscription_begins_where_it_says(start: object, expected: list[bytes]) -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await publish(node, *[b"%d" % at for at in range(5)])
            spec = SubscriptionSpec(topics=("orders",), start=start)  # type: ignore[arg-type]
            subscriber = await Subscriber(acks=True).subscribe(node, spec)
            await publish(node, b"new")
            await pause()

            assert subscriber.values == [*expected, b"new"]

    run(story())


def test_a_start_ahead_of_the_end_of_a_log_is_waited_for() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await publish(node, b"0", b"1")
            spec = SubscriptionSpec(name="ahead", topics=("orders",), start=AtOffset(4))
            await node.deliveries.create(SESSION, spec)
            await publish(node, b"2")
            subscriber = await Subscriber(acks=True).subscribe(node, spec)

            await publish(node, b"3", b"4", b"5")
            await pause()

            assert subscriber.values == [b"4", b"5"]

    run(story())


def test_members_of_one_subscription_share_its_records_in_turn() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            spec = SubscriptionSpec(name="workers", is_durable=False, pattern=on("orders"))
            members = [await Subscriber(acks=True).subscribe(node, spec) for _ in range(3)]
            await publish(node, *[b"%d" % at for at in range(30)])
            await pause()

            assert [len(member.got) for member in members] == [10, 10, 10]
            together = sorted(value for member in members for value in member.values)  # type: ignore[type-var]
            assert together == sorted(b"%d" % at for at in range(30))

    run(story())


def test_what_a_member_had_goes_to_the_others_at_once_when_it_vanishes() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            first = await Subscriber().subscribe(node, BILLING)
            await publish(node, b"a", b"b")
            await until(lambda: len(first.got) == 2)
            second = await Subscriber(acks=True).subscribe(node, BILLING)
            before = asyncio.get_running_loop().time()

            first.close()
            await until(lambda: len(second.got) == 2)

            assert asyncio.get_running_loop().time() - before < 0.1
            assert second.values == [b"a", b"b"]
            assert [delivery.attempt for delivery in second.got] == [2, 1], (
                "only the first may be the reason"
            )
            assert not first.ack(first.got[0])

    run(story())


def test_an_unanswered_record_comes_again_after_the_ack_timeout() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            subscriber = await Subscriber().subscribe(node, BILLING)
            await publish(node, b"a", b"b")
            await until(lambda: len(subscriber.got) == 2)
            assert subscriber.ack(subscriber.got[0])

            await until(lambda: len(subscriber.got) == 3)

            assert subscriber.values == [b"a", b"b", b"b"]
            assert subscriber.got[2].attempt == 2
            assert subscriber.ack(subscriber.got[2])
            await pause(10)
            assert len(subscriber.got) == 3

    run(story())


def test_retries_wait_longer_each_time() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            retry = RetryPolicy(max_retries=3, retry_delay_ms=1_000, multiplier=3, jitter=0)
            spec = SubscriptionSpec(topics=("orders",), start=Earliest(), retry=retry)
            times = []

            def send(deliveries: object) -> bool:
                times.append(asyncio.get_running_loop().time())
                return True

            await publish(node, b"a")
            member = await node.deliveries.subscribe(SESSION, spec, send)
            for count in range(1, 4):
                await until(lambda count=count: len(times) == count)  # type: ignore[misc]
                assert member.nack(ORDERS, 0)
            await until(lambda: len(times) == 4)

            waits = [late - early for early, late in pairwise(times)]
            assert [round(wait) for wait in waits] == [1, 3, 9]

    run(story())


def test_a_nack_may_say_itself_when_the_record_comes_again() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            subscriber = await Subscriber().subscribe(node, BILLING)
            await publish(node, b"a")
            await until(lambda: len(subscriber.got) == 1)
            assert subscriber.member is not None
            assert subscriber.member.nack(ORDERS, 0, delay_ms=5_000)
            await pause(4)
            assert len(subscriber.got) == 1
            await until(lambda: len(subscriber.got) == 2)

    run(story())


def test_a_durable_subscription_goes_on_where_it_was_after_a_restart() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_node(files=files) as node:
            await make_topic(node)
            await publish(node, *[b"%d" % at for at in range(6)])
            subscriber = await Subscriber().subscribe(node, BILLING)
            await until(lambda: len(subscriber.got) == 6)
            for at in (0, 1, 3):
                assert subscriber.ack(subscriber.got[at])
        async with running_node(files=files) as node:
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 2
            again = await Subscriber(acks=True).subscribe(node, BILLING)
            await publish(node, b"new")
            await until(lambda: len(again.got) == 4)

            assert again.values == [b"2", b"4", b"5", b"new"]
            assert [delivery.attempt for delivery in again.got] == [1] * 4, (
                "none of them has failed"
            )

    run(story())


def test_how_often_a_record_has_failed_is_remembered_over_a_restart() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_node(files=files) as node:
            await make_topic(node)
            subscriber = await Subscriber().subscribe(node, BILLING)
            await publish(node, b"a", b"b", b"c")
            await until(lambda: len(subscriber.got) == 3)
            assert subscriber.member is not None
            assert subscriber.member.nack(ORDERS, 1)
            await until(lambda: len(subscriber.got) == 4)
            assert subscriber.member.nack(ORDERS, 1, 60_000)
        async with running_node(files=files) as node:
            again = await Subscriber(acks=True).subscribe(node, BILLING)
            await until(lambda: len(again.got) == 3)

            assert again.values == [b"a", b"b", b"c"]
            assert [delivery.attempt for delivery in again.got] == [1, 3, 1]

    run(story())


def test_records_published_without_a_subscriber_are_delivered_later() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await node.deliveries.create(SESSION, BILLING)
            await publish(node, b"a")
            first = Subscriber(acks=True)
            first.member = await node.deliveries.join(SESSION, "billing", first.send)
            await until(lambda: first.values == [b"a"])
            first.close()
            await publish(node, b"b")
            await pause()
            second = await Subscriber(acks=True).subscribe(node, BILLING)
            await until(lambda: second.values == [b"b"])

    run(story())


def test_a_subscription_that_begins_at_the_end_keeps_its_beginning() -> None:
    async def story() -> None:
        files = MemoryFiles()
        latest = SubscriptionSpec(name="tail", topics=("orders",), start=Latest())
        async with running_node(files=files) as node:
            await make_topic(node)
            await publish(node, b"before")
            await node.deliveries.create(SESSION, latest)
            await publish(node, b"after")
        async with running_node(files=files) as node:
            subscriber = await Subscriber(acks=True).subscribe(node, latest)
            await until(lambda: subscriber.values == [b"after"])

    run(story())


def test_a_subscription_that_is_not_durable_ends_with_its_last_member() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            spec = SubscriptionSpec(name="workers", is_durable=False, pattern=on("orders"))
            first = await Subscriber().subscribe(node, spec)
            await publish(node, b"a")
            await until(lambda: len(first.got) == 1)
            first.close()
            second = await Subscriber().subscribe(node, spec)
            await publish(node, b"b")
            await until(lambda: len(second.got) == 1)

            assert second.values == [b"b"]
            assert await node.deliveries.list(SESSION) == []

    run(story())


def test_subscriptions_are_created_listed_and_deleted() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await node.deliveries.create(SESSION, BILLING)
            with pytest.raises(SubscriptionExists):
                await node.deliveries.create(SESSION, BILLING)
            (view,) = await node.deliveries.list(SESSION)
            assert view.spec == BILLING
            subscriber = await Subscriber().subscribe(node, BILLING)

            await node.deliveries.delete(SESSION, "billing")
            await publish(node, b"a")
            await pause()

            assert subscriber.got == []
            assert await node.deliveries.list(SESSION) == []
            for ask in (
                node.deliveries.describe(SESSION, "billing"),
                node.deliveries.delete(SESSION, "billing"),
                node.deliveries.join(SESSION, "billing", subscriber.send),
            ):
                with pytest.raises(UnknownSubscription):
                    await ask

    run(story())


@pytest.mark.parametrize(
    "spec",
    [
        SubscriptionSpec(name="x"),
        SubscriptionSpec(name="", topics=("orders",)),
        SubscriptionSpec(name="__mine", topics=("orders",)),
        SubscriptionSpec(topics=("orders",), flow=FlowPolicy(window=0)),
        SubscriptionSpec(topics=("orders",), flow=FlowPolicy(rate=5e-324)),
        SubscriptionSpec(topics=("orders",), flow=FlowPolicy(rate=float("nan"))),
        SubscriptionSpec(topics=("orders",), flow=FlowPolicy(rate=float("inf"))),
        SubscriptionSpec(topics=("orders",), flow=FlowPolicy(burst=0)),
        SubscriptionSpec(topics=("orders",), retry=RetryPolicy(jitter=2)),
        SubscriptionSpec(topics=("orders",), retry=RetryPolicy(multiplier=1e300)),
        SubscriptionSpec(topics=("orders",), retry=RetryPolicy(multiplier=float("nan"))),
    ],
)
def test_a_subscription_that_makes_no_sense_is_refused(spec: SubscriptionSpec) -> None:
    async def story() -> None:
        async with running_node() as node:
            with pytest.raises(InvalidSubscription):
                await node.deliveries.subscribe(SESSION, spec, Subscriber().send)

    run(story())


def test_acks_on_send_need_no_answer() -> None:
    async def story() -> None:
        files = MemoryFiles()
        spec = SubscriptionSpec(
            name="classic", topics=("orders",), start=Earliest(), acks=AckMode.ON_SEND
        )
        async with running_node(files=files) as node:
            await make_topic(node)
            await publish(node, *[b"%d" % at for at in range(5000)])
            subscriber = await Subscriber().subscribe(node, spec)
            await until(lambda: len(subscriber.got) == 5000)
            await pause(60)
            assert len(subscriber.got) == 5000
        async with running_node(files=files) as node:
            again = await Subscriber().subscribe(node, spec)
            await publish(node, b"new")
            await until(lambda: again.values == [b"new"])

    run(story())


def test_a_member_holds_no_more_than_its_window() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await publish(node, *[b"%d" % at for at in range(50)])
            flow = FlowPolicy(window=7, buffer=10)
            spec = SubscriptionSpec(topics=("orders",), start=Earliest(), flow=flow)
            subscriber = await Subscriber().subscribe(node, spec)
            await pause()
            assert len(subscriber.got) == 7

            for at in range(50):
                await until(lambda at=at: len(subscriber.got) > at)  # type: ignore[misc]
                assert subscriber.ack(subscriber.got[at])
            assert subscriber.values == [b"%d" % at for at in range(50)]

    run(story())


def test_a_connection_without_room_gets_nothing_until_it_says_so() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            subscriber = Subscriber(acks=True)
            subscriber.has_room = False
            await subscriber.subscribe(node, BILLING)
            await publish(node, b"a", b"b")
            await pause(10)
            assert subscriber.got == []
            subscriber.has_room = True
            assert subscriber.member is not None
            subscriber.member.resume()
            await until(lambda: len(subscriber.got) == 2)
            assert [delivery.attempt for delivery in subscriber.got] == [1, 1]

    run(story())


def test_a_slow_subscription_holds_up_no_other() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            flow = FlowPolicy(window=2, buffer=3)
            slow = await Subscriber().subscribe(
                node, SubscriptionSpec(pattern=on("orders"), flow=flow)
            )
            fast = await Subscriber(acks=True).subscribe(
                node, SubscriptionSpec(pattern=on("orders"))
            )
            for at in range(100):
                await publish(node, b"%d" % at)
            await until(lambda: len(fast.got) == 100)
            assert len(slow.got) == 2
            assert slow.member is not None
            assert slow.member.statistics().is_slow

            for at in range(100):
                await until(lambda at=at: len(slow.got) > at)  # type: ignore[misc]
                assert slow.ack(slow.got[at])
            assert slow.values == fast.values

    run(story())


@pytest.mark.parametrize(
    ("overflow", "kept"),
    [(Overflow.DROP, [0, 1, 2, 3, 4]), (Overflow.SHED, [0, 1, 17, 18, 19])],
)
def test_what_does_not_fit_is_left_out_as_the_policy_says(
    overflow: Overflow, kept: list[int]
) -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            flow = FlowPolicy(window=2, buffer=3, overflow=overflow)
            subscriber = await Subscriber().subscribe(
                node, SubscriptionSpec(pattern=on("orders"), flow=flow)
            )
            for at in range(20):
                await publish(node, b"%d" % at)
            await pause()
            for at in range(5):
                await until(lambda at=at: len(subscriber.got) > at)  # type: ignore[misc]
                assert subscriber.ack(subscriber.got[at])
            await pause()

            assert subscriber.values == [b"%d" % at for at in kept]
            assert subscriber.member is not None
            assert subscriber.member.statistics().dropped == 15

    run(story())


def test_a_rate_is_kept() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await publish(node, *[b"%d" % at for at in range(100)])
            flow = FlowPolicy(rate=10, burst=5)
            spec = SubscriptionSpec(topics=("orders",), start=Earliest(), flow=flow)
            subscriber = await Subscriber(acks=True).subscribe(node, spec)
            await pause(2)
            assert 24 <= len(subscriber.got) <= 26
            assert subscriber.member is not None
            with pytest.raises(InvalidSubscription, match="buffer = 0"):
                subscriber.member.set_flow(FlowPolicy(buffer=0))
            subscriber.member.set_flow(FlowPolicy())
            await until(lambda: len(subscriber.got) == 100)

    run(story())


def test_in_pull_mode_only_what_was_asked_for_is_sent() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await publish(node, *[b"%d" % at for at in range(10)])
            flow = FlowPolicy(is_pull=True)
            spec = SubscriptionSpec(topics=("orders",), start=Earliest(), flow=flow)
            subscriber = await Subscriber(acks=True).subscribe(node, spec)
            await pause()
            assert subscriber.got == []
            assert subscriber.member is not None
            subscriber.member.want(4)
            await pause()
            assert len(subscriber.got) == 4

    run(story())


def test_a_filter_lets_through_what_it_wants() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            spec = SubscriptionSpec(
                topics=("orders",), start=Earliest(), filter="value contains 'x'"
            )
            await publish(node, b"ax", b"b", b"x")
            subscriber = await Subscriber(acks=True).subscribe(node, spec)
            await publish(node, b"c", b"xx")
            await until(lambda: subscriber.values == [b"ax", b"x", b"xx"])

    run(story())


def test_a_late_acknowledgement_still_counts_until_somebody_else_has_it() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            retry = RetryPolicy(ack_timeout_ms=1_000, retry_delay_ms=10_000, jitter=0)
            spec = SubscriptionSpec(topics=("orders",), start=Earliest(), retry=retry)
            await publish(node, b"a")
            subscriber = await Subscriber().subscribe(node, spec)
            await pause(5)
            assert subscriber.ack(subscriber.got[0])
            await pause(60)
            assert len(subscriber.got) == 1

    run(story())


def test_partitions_are_not_read_without_subscribers() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            subscriber = await Subscriber(acks=True).subscribe(node, BILLING)
            await publish(node, b"a")
            await until(lambda: len(subscriber.got) == 1)
            pump = node._engine.push.pump
            assert all(isinstance(feed.feed, Feed) for feed in pump._feeds.values())
            subscriber.close()
            await pause()
            assert pump._feeds == {}

    run(story())


def test_aborted_transactions_are_not_delivered() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            subscriber = await Subscriber(acks=True).subscribe(
                node, SubscriptionSpec(pattern=on("orders"))
            )
            writer = Writer(node)
            await writer.init()
            for value, commits in ((b"gone", False), (b"kept", True)):
                await writer.add(ORDERS)
                await writer.write(ORDERS, value)
                await publish(node, b"plain")
                await pause()
                await writer.end(commits=commits)
            await until(lambda: len(subscriber.got) == 3)

            assert subscriber.values == [b"plain", b"kept", b"plain"]

    run(story())
