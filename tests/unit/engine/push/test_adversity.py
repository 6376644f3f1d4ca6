"""Subscriptions on a whole node when topics, rights, logs and clocks fail."""

import asyncio
from collections.abc import Callable

import pytest

from millstream.codec.batch import read_header
from millstream.config import Config
from millstream.engine.dead_letters.service import RedrivePlan
from millstream.engine.gate import Everyone, Operation
from millstream.engine.partitions.slices import Earliest, Latest, Want
from millstream.engine.publish.publisher import Publication
from millstream.engine.push import FlowPolicy, RetryPolicy, SubscriptionSpec
from millstream.engine.push.shard import DELIVERIES_SETTINGS, cursor_entry
from millstream.errors import BatchTooLarge
from millstream.errors.deliveries import UnknownSubscription
from millstream.internal_topics.deliveries import CursorValue
from millstream.model import Session, TopicPartition, user_principal
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
ONCE = RetryPolicy(max_retries=0, ack_timeout_ms=600_000)
BILLING = SubscriptionSpec(name="billing", topics=("orders",), start=Earliest(), retry=ONCE)
STRANGER = Session(principal=user_principal("stranger"))


class Rights(Everyone):
    """Strangers may read what is not secret, and listen to patterns."""

    def __init__(self) -> None:
        self.secrets: set[str] = set()

    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        is_reading = operation is Operation.READ and resource in self.secrets
        return session.principal.name != "stranger" or not is_reading


def reject_all(subscriber: Subscriber) -> None:
    assert subscriber.member is not None
    for delivery in subscriber.got:
        assert subscriber.member.reject(delivery.target, delivery.record.offset, "bad", "why")


# -- times to live -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_topics", [False, True])
def test_what_expires_while_it_waits_is_not_delivered(is_topics: bool) -> None:
    async def story() -> None:
        async with running_node() as node:
            settings = {"message_ttl_ms": "5000"} if is_topics else {}
            await node.topics.create(SESSION, "orders", settings=settings)
            flow = FlowPolicy(window=1)
            spec = SubscriptionSpec(name="billing", topics=("orders",), flow=flow, retry=ONCE)
            subscriber = await Subscriber().subscribe(node, spec)
            headers = () if is_topics else (("ms-ttl-ms", b"5000"),)
            values = [Publication("orders", b"%d" % at, headers=headers) for at in range(3)]
            await asyncio.gather(*node.publisher.publish(SESSION, values))
            await until(lambda: len(subscriber.got) == 1)

            await pause(6)
            await publish(node, b"fresh")
            subscriber.ack_all()
            await until(lambda: len(subscriber.got) == 2)

            assert subscriber.values == [b"0", b"fresh"]
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 3

    run(story())


def test_what_expires_before_its_retry_is_not_delivered_again() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            subscriber = await Subscriber().subscribe(
                node, SubscriptionSpec(name="billing", topics=("orders",))
            )
            message = Publication("orders", b"x", headers=(("ms-ttl-ms", b"5000"),))
            await node.publisher.publish(SESSION, [message])[0]
            await until(lambda: len(subscriber.got) == 1)
            assert subscriber.member is not None
            assert subscriber.member.nack(ORDERS, 0, 4_000)
            await until(lambda: len(subscriber.got) == 2)

            assert subscriber.member.nack(ORDERS, 0, 4_000)
            await pause(60)

            assert len(subscriber.got) == 2
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 1
            assert await node.dead_letters.list(SESSION, "orders") == []

    run(story())


# -- topics that go while their dead letters are under way -------------------------------------


def held_up(node: Node) -> Callable[[], None]:
    """Let no dead letter through until the returned function is called."""
    dead_letter_writer = node._engine.push.dead_letter_writer
    append_once, gate = dead_letter_writer.append_once, asyncio.Event()

    async def append_later(*arguments: object) -> int:
        await gate.wait()
        return await append_once(*arguments)  # type: ignore[arg-type]

    dead_letter_writer.append_once = append_later  # type: ignore[method-assign,assignment]
    return gate.set


def test_a_topic_may_go_while_many_of_its_records_become_dead_letters() -> None:
    async def story() -> None:
        async with running_node(Config(delivery_partitions=1)) as node:
            await make_topic(node)
            subscriber = await Subscriber().subscribe(node, BILLING)
            await publish(node, *[b"%d" % at for at in range(250)])
            await until(lambda: len(subscriber.got) == 250)
            let_through = held_up(node)
            reject_all(subscriber)
            await pause()

            await node.topics.delete(SESSION, "orders")
            await pause()
            let_through()
            await pause()

            letters = await node.dead_letters.list(SESSION, "orders", count_max=1_000)
            assert [letter.origin.offset for letter in letters] == list(range(250))
            (shard,) = node._engine.push.shards.all_here()
            await until(lambda: shard.stored.settled("billing") == {})

    run(story())


def test_a_namesake_of_a_topic_that_went_has_dead_letters_of_its_own() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            subscriber = await Subscriber().subscribe(node, BILLING)
            await publish(node, b"old")
            await until(lambda: len(subscriber.got) == 1)
            let_through = held_up(node)
            reject_all(subscriber)
            await pause()
            await node.topics.delete(SESSION, "orders")
            await pause()
            await make_topic(node)
            subscriber.got.clear()
            await publish(node, b"new")
            await until(lambda: len(subscriber.got) == 1)
            reject_all(subscriber)
            await pause()

            let_through()
            await pause()

            assert sorted(str(value) for value in await values_in(node, "orders.dlq")) == [
                "b'new'",
                "b'old'",
            ]
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 1

    run(story())


def test_dead_letters_are_not_written_through_a_view() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await make_topic(node, "base")
            await node.topics.create(
                SESSION, "orders.dlq", settings={"view_of": "base", "view_where": "key == 'x'"}
            )
            subscriber = await Subscriber().subscribe(node, BILLING)
            await publish(node, b"bad")
            await until(lambda: len(subscriber.got) == 1)
            reject_all(subscriber)
            await pause(30)

            assert await values_in(node, "base") == []
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 0
            await node.topics.delete(SESSION, "orders.dlq")
            await pause(120)
            assert await values_in(node, "orders.dlq") == [b"bad"]

    run(story())


def test_large_dead_letters_are_written_and_sent_back_in_batches_of_a_moderate_size() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            subscriber = await Subscriber().subscribe(node, BILLING)
            for at in range(12):
                await publish(node, b"%d" % at * 200_000)
            await until(lambda: len(subscriber.got) == 12)
            reject_all(subscriber)
            await pause(10)
            done = await node.dead_letters.redrive(SESSION, "orders", RedrivePlan())

            assert done.sent == 12
            for target in (DEAD, ORDERS):
                assert max(await batch_sizes(node, target)) < 2 * 2**20

    run(story())


def test_dead_letters_that_fit_one_by_one_are_written_one_by_one() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await node.topics.create(SESSION, "orders.dlq", settings={"segment_bytes": "100000"})
            subscriber = await Subscriber().subscribe(node, BILLING)
            for at in range(6):
                await publish(node, b"%d" % at * 60_000)
            await until(lambda: len(subscriber.got) == 6)
            reject_all(subscriber)
            await pause(10)

            assert len(await node.dead_letters.list(SESSION, "orders")) == 6

    run(story())


def test_a_dead_letter_that_does_not_fit_stays_and_holds_up_no_record() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await node.topics.create(SESSION, "orders.dlq", settings={"segment_bytes": "1024"})
            subscriber = await Subscriber().subscribe(node, BILLING)
            for value in (b"x" * 2_000, b"small"):
                await publish(node, value)
                await until(lambda value=value: value in subscriber.values)  # type: ignore[misc]
                reject_all(subscriber)
                subscriber.got.clear()
                await pause(10)

            assert await values_in(node, "orders.dlq") == [b"small"]
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 0
            await node.topics.alter(SESSION, "orders.dlq", {"segment_bytes": "100000"})
            await pause(60)
            assert await values_in(node, "orders.dlq") == [b"small", b"x" * 2_000]
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 2

    run(story())


def test_what_does_not_fit_where_it_is_sent_back_to_is_refused() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await node.topics.create(SESSION, "narrow", settings={"segment_bytes": "1024"})
            subscriber = await Subscriber().subscribe(node, BILLING)
            await publish(node, b"x" * 2_000)
            await until(lambda: len(subscriber.got) == 1)
            reject_all(subscriber)
            await pause(10)

            with pytest.raises(BatchTooLarge):
                await node.dead_letters.redrive(SESSION, "orders", RedrivePlan(to="narrow"))
            done = await node.dead_letters.redrive(SESSION, "orders", RedrivePlan())

            assert done.sent == 1

    run(story())


async def batch_sizes(node: Node, target: TopicPartition) -> list[int]:
    (part,) = await node.partitions.read(SESSION, [Want(target, 0, 2**26)])
    assert part.records is not None
    data, at, sizes = part.records.read(), 0, []
    while at < len(data):
        sizes.append(read_header(data, at).size)
        at += sizes[-1]
    return sizes


# -- coming and going at the same time ---------------------------------------------------------


@pytest.mark.parametrize("turns", range(6))
def test_a_join_during_a_deletion_gets_a_subscription_that_stays(turns: int) -> None:
    files = MemoryFiles()

    async def first_life() -> None:
        async with running_node(files=files) as node:
            await make_topic(node)
            await node.deliveries.create(SESSION, BILLING)
            deleting = asyncio.ensure_future(node.deliveries.delete(SESSION, "billing"))
            for _ in range(turns):
                await asyncio.sleep(0)
            subscriber = await Subscriber(acks=True).subscribe(node, BILLING)
            await asyncio.gather(deleting, return_exceptions=True)
            if subscriber.member is not None and subscriber.member.is_closed:
                subscriber = await Subscriber(acks=True).subscribe(node, BILLING)
            await publish(node, b"a")
            await until(lambda: subscriber.values == [b"a"])
            await pause()

    async def second_life() -> None:
        async with running_node(files=files) as node:
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 1

    run(first_life())
    run(second_life())


def test_a_join_of_a_deleted_subscription_is_refused() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await node.deliveries.create(SESSION, BILLING)
            deleting = asyncio.ensure_future(node.deliveries.delete(SESSION, "billing"))
            await asyncio.sleep(0)

            with pytest.raises(UnknownSubscription):
                await node.deliveries.join(SESSION, "billing", lambda deliveries: True)
            await deleting

    run(story())


# -- rights and logs ---------------------------------------------------------------------------


def test_a_pattern_that_others_listen_to_as_well_shows_nothing_that_may_not_be_read() -> None:
    async def story() -> None:
        rights = Rights()
        rights.secrets.add("topic:secrets")
        async with running_node(policy=rights) as node:
            await make_topic(node, "secrets")
            insider = await Subscriber(acks=True).subscribe(
                node, SubscriptionSpec(pattern=on(">"), start=Latest())
            )
            await pause()
            outsider = Subscriber(acks=True)
            outsider.member = await node.deliveries.subscribe(
                STRANGER, SubscriptionSpec(pattern=on(">"), start=Latest()), outsider.send
            )
            await pause()
            await publish(node, b"hush", topic="secrets")
            await until(lambda: insider.values == [b"hush"])
            await pause()

            assert outsider.values == []

    run(story())


def test_rights_that_are_taken_away_are_missed_also_among_others() -> None:
    async def story() -> None:
        rights = Rights()
        async with running_node(policy=rights) as node:
            await make_topic(node)
            insiders = [
                await Subscriber(acks=True).subscribe(node, SubscriptionSpec(pattern=on("orders")))
                for _ in range(2)
            ]
            outsider = Subscriber(acks=True)
            outsider.member = await node.deliveries.subscribe(
                STRANGER, SubscriptionSpec(pattern=on("orders")), outsider.send
            )
            await publish(node, b"open")
            await until(lambda: outsider.values == [b"open"])

            rights.secrets.add("topic:orders")
            for at in range(10):
                await publish(node, b"%d" % at)
                await pause()

            assert len(outsider.got) <= 1 + len(insiders) + 1
            assert all(len(insider.got) == 11 for insider in insiders)

    run(story())


def test_what_is_written_to_a_log_that_has_lost_its_end_is_delivered() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            await publish(node, b"kept")
            await node.deliveries.create(SESSION, BILLING)
            shard = node._engine.push.shards.find_now("billing")
            (log_id,) = shard.stored.cursors("billing")
            shard.write([cursor_entry("billing", log_id, CursorValue(next_offset=100))])
            await shard.wait_committed("billing")

            subscriber = await Subscriber(acks=True).subscribe(node, BILLING)
            await pause()
            await publish(node, b"new")
            await until(lambda: bool(subscriber.got))
            await pause()

            assert subscriber.values == [b"new"]
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 2

    run(story())


# -- the shard ---------------------------------------------------------------------------------


def test_the_books_stay_small_and_say_the_same_however_long_they_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(DELIVERIES_SETTINGS, "segment_bytes", "20000")
    files, config = MemoryFiles(), Config(delivery_partitions=1)
    for_ever = RetryPolicy(max_retries=-1, ack_timeout_ms=10**9)
    spec = SubscriptionSpec(name="w", topics=("orders",), start=Earliest(), retry=for_ever)

    async def first_life() -> None:
        async with running_node(config, files=files) as node:
            await make_topic(node)
            subscriber = await Subscriber().subscribe(node, spec)
            await publish(node, *[b"%d" % at for at in range(500)])
            await until(lambda: len(subscriber.got) == 500)
            assert subscriber.member is not None
            for round_ in range(100):
                for offset in range(round_, 500, 100):
                    assert subscriber.member.nack(ORDERS, offset, 0)
                await pause()
            for offset in range(0, 500, 2):
                assert subscriber.member.ack(ORDERS, offset)
            assert subscriber.member.reject(ORDERS, 1)
            await pause(3_600)
            (shard,) = node._engine.push.shards.all_here()
            log = shard._replica.log
            assert log.end_offset > 100
            assert sum(segment.size for segment in log.sealed()) < 20_000

    async def second_life() -> None:
        async with running_node(config, files=files) as node:
            subscriber = await Subscriber(acks=True).subscribe(node, spec)
            await until(lambda: len(subscriber.got) == 249)
            await pause()

            assert [delivery.record.offset for delivery in subscriber.got] == list(range(3, 500, 2))
            assert {delivery.attempt for delivery in subscriber.got} == {2}
            assert await values_in(node, "orders.dlq") == [b"1"]

    run(first_life())
    run(second_life())
