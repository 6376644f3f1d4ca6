"""Dead letters: how records become them, and how they are sent back."""

import asyncio

import pytest

from millstream.engine.dead_letters import redriven
from millstream.engine.dead_letters.service import RedrivePlan
from millstream.engine.partitions.slices import Earliest
from millstream.engine.push import RetryPolicy, SubscriptionSpec
from millstream.errors import Overloaded, UnknownTopic
from millstream.errors.deliveries import UnknownDeadLetter
from millstream.model import TopicPartition
from millstream.server.node import Node
from millstream.storage.files.memory import MemoryFiles
from tests.support.deliveries import (
    Subscriber,
    make_topic,
    on,
    pause,
    publish,
    until,
    values_in,
)
from tests.support.nodes import ORDERS, SESSION, running_node
from tests.support.virtual_loop import run

DEAD = TopicPartition("orders.dlq", 0)
BILLING = SubscriptionSpec(
    name="billing",
    topics=("orders",),
    start=Earliest(),
    retry=RetryPolicy(ack_timeout_ms=1_000, max_retries=1),
)


async def make_dead_letters(node: Node, *values: bytes, subject: str | None = None) -> None:
    """Have records rejected by a subscriber, and wait until they are dead letters."""
    await make_topic(node)
    await publish(node, *values, subject=subject)
    subscriber = await Subscriber().subscribe(node, BILLING)
    await until(lambda: {*values} <= {*subscriber.values})
    assert subscriber.member is not None
    for delivery in subscriber.got:
        assert subscriber.member.reject(
            delivery.target, delivery.record.offset, "bad", "it says no"
        )
    await until(lambda: not subscriber.member._subscription.dispatcher.given_up)  # type: ignore[union-attr]
    subscriber.close()


def test_after_the_last_attempt_a_record_becomes_a_dead_letter() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            subscriber = await Subscriber().subscribe(node, BILLING)
            await publish(node, b"poison")
            await pause(10)

            assert [delivery.attempt for delivery in subscriber.got] == [1, 2]
            (letter,) = await node.dead_letters.list(SESSION, "orders")
            assert letter.target == DEAD
            assert letter.record.value == b"poison"
            assert letter.origin.target == ORDERS
            assert letter.origin.offset == 0
            assert letter.origin.group == "billing"
            assert letter.origin.attempts == 2
            assert letter.origin.reason == "max_retries_exceeded"
            assert letter.origin.error == "no acknowledgement in time"
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 1

    run(story())


def test_a_rejected_record_becomes_a_dead_letter_at_once() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_dead_letters(node, b"bad", subject="orders.us")
            (letter,) = await node.dead_letters.list(SESSION, "orders.dlq")

            assert letter.origin.reason == "bad"
            assert letter.origin.error == "it says no"
            assert letter.origin.attempts == 1
            assert dict(letter.record.headers)["ms-subject"] == b"DLQ.orders.us"

    run(story())


def test_dead_letters_are_heard_under_their_own_subject_only() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            undertaker = await Subscriber(acks=True).subscribe(
                node, SubscriptionSpec(pattern=on("DLQ.>"))
            )
            listener = await Subscriber(acks=True).subscribe(
                node, SubscriptionSpec(pattern=on("orders.>"))
            )
            await make_dead_letters(node, b"bad", subject="orders.us")
            await until(lambda: undertaker.values == [b"bad"])
            await pause()

            assert undertaker.got[0].subject == "DLQ.orders.us"
            assert listener.values == [b"bad"]

    run(story())


def test_each_group_has_its_own_dead_letter_of_a_record() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await publish(node, b"bad")
            for name in ("one", "two"):
                spec = SubscriptionSpec(name=name, topics=("orders",), start=Earliest())
                subscriber = await Subscriber().subscribe(node, spec)
                await until(lambda receiver=subscriber: len(receiver.got) == 1)  # type: ignore[misc]
                assert subscriber.member is not None
                assert subscriber.member.reject(ORDERS, 0)
            await pause()

            statistics = await node.dead_letters.statistics(SESSION, "orders")
            assert statistics.waiting == 2
            assert statistics.by_group == {"one": 1, "two": 1}
            assert statistics.by_reason == {"rejected": 2}

    run(story())


def test_a_dead_letter_that_fails_again_stays_where_it_is() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_dead_letters(node, b"bad")
            spec = SubscriptionSpec(name="cleaner", topics=("orders.dlq",), start=Earliest())
            subscriber = await Subscriber().subscribe(node, spec)
            await until(lambda: len(subscriber.got) == 1)
            assert subscriber.member is not None
            assert subscriber.member.reject(DEAD, 0)
            await pause()

            assert await values_in(node, "orders.dlq") == [b"bad"]
            assert {t.name for t in node.topics.list(SESSION)} & {"orders.dlq.dlq"} == set()

    run(story())


def test_without_a_dead_letter_topic_a_record_is_given_up() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            retry = RetryPolicy(max_retries=0, ack_timeout_ms=1_000, dead_letter_topic=None)
            spec = SubscriptionSpec(topics=("orders",), start=Earliest(), retry=retry)
            subscriber = await Subscriber().subscribe(node, spec)
            await publish(node, b"a")
            await pause(10)

            assert len(subscriber.got) == 1
            assert [topic.name for topic in node.topics.list(SESSION)] == ["orders"]

    run(story())


def test_while_the_dead_letter_cannot_be_written_the_record_stays() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            # Its name differs only in '.' and '_': the dead-letter topic cannot be created.
            await make_topic(node, "orders_dlq")
            subscriber = await Subscriber().subscribe(node, BILLING)
            await publish(node, b"bad")
            await until(lambda: len(subscriber.got) == 1)
            assert subscriber.member is not None
            assert subscriber.member.reject(ORDERS, 0, "bad")
            await pause(20)
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 0

            await node.topics.delete(SESSION, "orders_dlq")
            await pause(20)

            assert await values_in(node, "orders.dlq") == [b"bad"]
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 1
            assert len(subscriber.got) == 1

    run(story())


def test_a_replayed_dead_letter_is_back_in_its_topic_as_it_was() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_dead_letters(node, b"bad", subject="orders.us")
            listener = await Subscriber(acks=True).subscribe(
                node, SubscriptionSpec(pattern=on("orders.us"))
            )

            target, offset = await node.dead_letters.replay(SESSION, DEAD, 0)
            await until(lambda: listener.values == [b"bad"])

            assert (target, offset) == (ORDERS, 1)
            assert listener.got[0].record.headers == (("ms-subject", b"orders.us"),)
            assert await node.dead_letters.list(SESSION, "orders") == []
            with pytest.raises(UnknownDeadLetter):
                await node.dead_letters.replay(SESSION, DEAD, 0)
            with pytest.raises(UnknownDeadLetter):
                await node.dead_letters.replay(SESSION, DEAD, 99)

    run(story())


def test_that_a_dead_letter_was_replayed_is_remembered() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_node(files=files) as node:
            await make_dead_letters(node, b"a", b"b", b"c")
            await node.dead_letters.replay(SESSION, DEAD, 1)
        async with running_node(files=files) as node:
            letters = await node.dead_letters.list(SESSION, "orders")
            assert [letter.record.value for letter in letters] == [b"a", b"c"]
            with pytest.raises(UnknownDeadLetter):
                await node.dead_letters.replay(SESSION, DEAD, 1)

    run(story())


def test_a_redrive_sends_back_what_the_plan_wants() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_dead_letters(node, b"x1", b"y2", b"x3")
            plan = RedrivePlan(filter="value contains 'x'", is_dry_run=True)
            assert await node.dead_letters.redrive(SESSION, "orders", plan) == (2, 1)
            assert await values_in(node, "orders") == [b"x1", b"y2", b"x3"]

            plan = RedrivePlan(filter="value contains 'x'")
            assert await node.dead_letters.redrive(SESSION, "orders", plan) == (2, 1)
            assert await values_in(node, "orders") == [b"x1", b"y2", b"x3", b"x1", b"x3"]
            assert await node.dead_letters.redrive(SESSION, "orders", plan) == (0, 1)

            assert await node.dead_letters.redrive(SESSION, "orders", RedrivePlan()) == (1, 0)
            assert (await node.dead_letters.statistics(SESSION, "orders")).waiting == 0

    run(story())


def test_a_redrive_keeps_its_rate_and_its_count() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_dead_letters(node, *[b"%d" % at for at in range(30)])
            before = asyncio.get_running_loop().time()
            plan = RedrivePlan(rate=5, count_max=20)
            assert (await node.dead_letters.redrive(SESSION, "orders", plan)).sent == 20
            assert 3.5 < asyncio.get_running_loop().time() - before < 5

    run(story())


def test_a_redrive_that_was_cut_short_goes_on_where_it_was() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_dead_letters(node, *[b"%d" % at for at in range(30)])
            plan = RedrivePlan(rate=5)
            cut = asyncio.ensure_future(node.dead_letters.redrive(SESSION, "orders", plan))
            await pause(3.1)
            with pytest.raises(Overloaded):
                await node.dead_letters.redrive(SESSION, "orders", RedrivePlan())
            cut.cancel()
            await asyncio.gather(cut, return_exceptions=True)
            done = len(await values_in(node, "orders")) - 30
            assert 0 < done < 30

            redriven = await node.dead_letters.redrive(SESSION, "orders", RedrivePlan())

            assert redriven.sent == 30 - done
            values = await values_in(node, "orders")
            assert sorted(values[30:]) == sorted(values[:30])  # type: ignore[type-var]

    run(story())


@pytest.mark.parametrize("moments", range(0, 30, 3))
def test_a_redrive_that_is_left_in_the_middle_has_nothing_half_done(moments: int) -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_dead_letters(node, *[b"%d" % at for at in range(5)])
            some = RedrivePlan(count_max=2)
            cut = asyncio.ensure_future(node.dead_letters.redrive(SESSION, "orders", some))
            await pause(moments * 0.0002)
            cut.cancel()
            await asyncio.gather(cut, return_exceptions=True)

            await node.dead_letters.redrive(SESSION, "orders", RedrivePlan())

            values = await values_in(node, "orders")
            assert sorted(values[5:]) == sorted(values[:5])  # type: ignore[type-var]

    run(story())


def test_a_redrive_can_go_elsewhere() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_dead_letters(node, b"a")
            await node.topics.delete(SESSION, "orders")
            assert await node.dead_letters.redrive(SESSION, "orders", RedrivePlan()) == (0, 1)
            with pytest.raises(UnknownTopic):
                await node.dead_letters.replay(SESSION, DEAD, 0)
            await make_topic(node, "second")
            plan = RedrivePlan(to="second")
            assert await node.dead_letters.redrive(SESSION, "orders", plan) == (1, 0)
            assert await values_in(node, "second") == [b"a"]

    run(story())


def test_what_a_view_showed_goes_back_to_the_topic_behind_it() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            view = {"view_of": "orders", "view_where": "value contains 'x'"}
            await node.topics.create(SESSION, "errors", settings=view)
            await publish(node, b"a", b"x")
            spec = SubscriptionSpec(name="viewer", topics=("errors",), start=Earliest())
            subscriber = await Subscriber().subscribe(node, spec)
            await until(lambda: len(subscriber.got) == 1)
            (delivery,) = subscriber.got
            assert subscriber.member is not None
            assert subscriber.member.reject(delivery.target, delivery.record.offset)
            await pause()

            assert await node.dead_letters.redrive(SESSION, "orders", RedrivePlan()) == (1, 0)
            await until(lambda: len(subscriber.got) == 2)
            assert subscriber.values == [b"x", b"x"]
            assert await values_in(node, "orders") == [b"a", b"x", b"x"]

    run(story())


def test_a_purge_leaves_nothing() -> None:
    async def story() -> None:
        async with running_node() as node:
            assert await node.dead_letters.purge(SESSION, "orders") == 0
            assert await node.dead_letters.list(SESSION, "orders") == []
            await make_dead_letters(node, b"a", b"b")
            assert await node.dead_letters.purge(SESSION, "orders") == 2
            assert await node.dead_letters.list(SESSION, "orders") == []
            statistics = await node.dead_letters.statistics(SESSION, "orders")
            assert statistics.waiting == 0
            assert statistics.oldest_ms is None

    run(story())


def test_a_list_is_paged_by_place() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_dead_letters(node, *[b"%d" % at for at in range(10)])
            first, after = await node.dead_letters.page(SESSION, "orders", count_max=4)
            second, end = await node.dead_letters.page(SESSION, "orders", count_max=10, after=after)
            assert [letter.record.offset for letter in [*first, *second]] == list(range(10))
            assert (after, end) == ((0, 3), None)

    run(story())


def marks(node: Node) -> int:
    """How many dead letters are remembered one by one to have been sent back."""
    shards = node._engine.push.shards.all_here()
    names = {name for shard in shards for name in shard.stored._settled if name != "billing"}
    collected = [shard.stored.settled(name) for shard in shards for name in names]
    return sum(len(offsets) for each in collected for offsets in each.values())


def test_what_was_sent_back_is_remembered_in_a_few_words() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_dead_letters(node, *[b"%d" % at for at in range(5)])
            await publish(node, b"no dead letter", topic="orders.dlq")
            await make_dead_letters(node, *[b"%d" % at for at in range(5, 10)])
            even = RedrivePlan(filter="value ~ '[02468]'")
            assert (await node.dead_letters.redrive(SESSION, "orders", even)).sent == 5
            assert marks(node) == 4, "the first needs none"

            assert (await node.dead_letters.redrive(SESSION, "orders", RedrivePlan())).sent == 5
            assert await node.dead_letters.list(SESSION, "orders") == []
            await make_dead_letters(node, b"new")  # With those that were sent back.
            assert (await node.dead_letters.redrive(SESSION, "orders", RedrivePlan())).sent == 11

            assert marks(node) == 0

    run(story())


def test_a_letter_that_no_redrive_wants_costs_one_exception(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redriven, "MARKS_KEPT", 3)

    async def story() -> None:
        async with running_node() as node:
            await make_dead_letters(node, b"never", *[b"%d" % at for at in range(9)])
            digits = RedrivePlan(filter="value ~ '^[0-9]'")

            assert (await node.dead_letters.redrive(SESSION, "orders", digits)).sent == 9

            assert marks(node) == 0
            (letter,) = await node.dead_letters.list(SESSION, "orders")
            assert letter.record.value == b"never"
            assert (await node.dead_letters.redrive(SESSION, "orders", digits)).sent == 0
            assert (await node.dead_letters.redrive(SESSION, "orders", RedrivePlan())).sent == 1
            assert await node.dead_letters.list(SESSION, "orders") == []

    run(story())


def test_no_more_is_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("MARKS_KEPT", 1), ("SKIPPED_MAX", 1), ("MARKS_MAX", 3)):
        monkeypatch.setattr(redriven, name, limit)

    async def story() -> None:
        async with running_node() as node:
            await make_dead_letters(node, *[b"%d" % at for at in range(10)])
            for offset in (2, 5, 8):
                await node.dead_letters.replay(SESSION, DEAD, offset)

            with pytest.raises(Overloaded, match="send the older ones back or purge them first"):
                await node.dead_letters.replay(SESSION, DEAD, 6)

            assert (await node.dead_letters.purge(SESSION, "orders")) == 10
            assert marks(node) == 0

    run(story())


def test_of_what_was_purged_nothing_is_remembered() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_dead_letters(node, b"0", b"1", b"2", b"3")
            for offset in (1, 3):
                await node.dead_letters.replay(SESSION, DEAD, offset)
            assert marks(node) == 2

            assert await node.dead_letters.purge(SESSION, "orders") == 4

            assert marks(node) == 0
            await make_dead_letters(node, b"new")  # With those that were sent back.
            letters = await node.dead_letters.list(SESSION, "orders")
            assert [letter.record.value for letter in letters] == [b"1", b"3", b"new"]

    run(story())


def test_who_looks_while_others_purge_sees_what_is_left() -> None:
    async def story() -> None:
        async with running_node() as node:
            for at in range(4):
                await make_dead_letters(node, b"%d" % at * 200_000)
            letters = node.dead_letters._waiting(SESSION, "orders.dlq")
            first = await anext(letters)
            assert first.record.offset == 0

            await node.dead_letters.purge(SESSION, "orders")
            left = [letter.record.offset async for letter in letters]

            assert len(left) < 3

    run(story())
