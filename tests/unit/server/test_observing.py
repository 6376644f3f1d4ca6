"""What the metrics of a node say, on a whole node on virtual time."""

import asyncio
from typing import Any

import pytest

from millstream import metrics as declared
from millstream.engine.filters.filter import parse
from millstream.engine.groups.views import Commit
from millstream.engine.partitions.slices import Earliest, Want
from millstream.engine.push import AckMode, SubscriptionSpec
from millstream.internal_topics.deliveries import FlowPolicy, Overflow, RetryPolicy
from millstream.metrics import (
    ACKNOWLEDGED_RECORDS,
    CUT_SHORT,
    DEAD_LETTERS,
    DECLARED,
    DELAYED_RECORDS,
    DELAYED_RECORDS_TAKEN,
    DELIVERED_RECORDS,
    DROPPED_RECORDS,
    DUPLICATE_RECORDS,
    END_OFFSET,
    EXPIRED_RECORDS,
    FILTERED_RECORDS,
    GROUP_LAG,
    HIGH_WATERMARK,
    INDEX_ENTRIES,
    INDEX_GAPS,
    INDEX_STRETCH_BYTES,
    LAST_STABLE_OFFSET,
    LOW_WATERMARK,
    OUTSTANDING_RECORDS,
    PARTITION_BYTES,
    PARTITION_SEGMENTS,
    REDELIVERED_RECORDS,
    REQUESTS,
    SLOW_SUBSCRIBERS,
    SUBSCRIBERS,
    WAITING_RECORDS,
    Metric,
    Metrics,
)
from millstream.model import Acks, Isolation, TopicPartition
from millstream.server.monitoring import observing
from millstream.server.node import Node
from tests.support.deliveries import Subscriber, make_topic, pause, publish, until
from tests.support.nodes import NOW_MS, ORDERS, SESSION, batch, running_node
from tests.support.queues import batch_of, message, running_orders
from tests.support.virtual_loop import run

JOBS = SubscriptionSpec(name="workers", topics=("orders",), start=Earliest())


def figures(node: Node, metric: Metric) -> dict[tuple[str, ...], float]:
    """The samples of one metric, by their labels."""
    return {
        sample.labels: sample.value for sample in node.metrics.samples() if sample.metric is metric
    }


def of(node: Node, metric: Metric, *labels: str) -> float:
    return figures(node, metric)[labels]


# -- what there is -----------------------------------------------------------------------------


def test_every_metric_is_declared_once_under_a_name_of_its_own() -> None:
    names = [metric.name for metric in DECLARED]

    assert len(set(names)) == len(names)
    assert all(metric.help.endswith(".") for metric in DECLARED)
    collected = [var for var in vars(declared).values() if isinstance(var, Metric)]
    assert set(DECLARED) == set(collected)


def test_every_sample_has_the_labels_that_are_declared() -> None:
    async def story() -> None:
        async with running_orders(partitions=2) as node:
            await Subscriber().subscribe(node, JOBS)

            samples = list(node.metrics.samples())

            keys = [(sample.metric, sample.labels) for sample in samples]
            assert len(set(keys)) == len(keys)
            assert all(len(sample.labels) == len(sample.metric.labels) for sample in samples)

    run(story())


def test_a_total_is_the_sum_over_all_labels() -> None:
    counted = Metrics()
    counted.add(REQUESTS, 2, "read", "admitted")
    counted.add(REQUESTS, 3, "read", "denied")

    assert counted.total(REQUESTS) == 5
    assert counted.total(DEAD_LETTERS) == 0


# -- partitions --------------------------------------------------------------------------------


def test_a_partition_shows_its_watermarks_and_how_it_lies_in_files() -> None:
    async def story() -> None:
        async with running_orders(partitions=2, segment_bytes="1024") as node:
            for at in range(10):
                await node.partitions.append(
                    SESSION, ORDERS, batch(b"%d" % at + b"x" * 400), Acks.ALL
                )
            node.partitions.delete_records(SESSION, ORDERS, 3)
            health = node.partitions.health(SESSION, ORDERS)

            labels = ("orders", "0")
            assert of(node, LOW_WATERMARK, *labels) == 3
            for metric in (HIGH_WATERMARK, LAST_STABLE_OFFSET, END_OFFSET):
                assert of(node, metric, *labels) == 10
                assert of(node, metric, "orders", "1") == 0
            assert of(node, PARTITION_BYTES, *labels) == health.log.size_bytes > 0
            assert of(node, PARTITION_SEGMENTS, *labels) == health.log.segment_count > 1
            assert of(node, INDEX_ENTRIES, *labels) == health.log.index_entries > 0
            stretch = health.log.index_bytes_per_entry_max
            assert of(node, INDEX_STRETCH_BYTES, *labels) == stretch
            assert of(node, INDEX_GAPS, *labels) == health.log.index_gaps

    run(story())


def test_users_topics_come_first_where_not_all_can_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observing, "LABELLED_MAX", 3)

    async def story() -> None:
        async with running_orders(partitions=2) as node:
            assert of(node, CUT_SHORT, "partition") == 0
            await node.groups.commit_offsets(SESSION, "g", {ORDERS: Commit(0)})
            await make_topic(node, "payments", partitions=2)

            assert list(figures(node, LOW_WATERMARK)) == [
                ("orders", "0"),
                ("orders", "1"),
                ("payments", "0"),
            ]
            assert of(node, CUT_SHORT, "partition") == 1
            assert of(node, CUT_SHORT, "group") == 0

    run(story())


def test_a_view_has_no_log_of_its_own_to_show() -> None:
    async def story() -> None:
        async with running_orders() as node:
            where = {"view_of": "orders", "view_where": "value contains 'x'"}
            await node.topics.create(SESSION, "some", settings=where)

            assert ("some", "0") not in figures(node, LOW_WATERMARK)

    run(story())


# -- groups ------------------------------------------------------------------------------------


def test_the_lag_of_a_group_is_that_of_all_partitions_of_a_topic() -> None:
    async def story() -> None:
        async with running_orders(partitions=2) as node:
            other = TopicPartition("orders", 1)
            await node.partitions.append(SESSION, ORDERS, batch(b"a", b"b", b"c"), Acks.ALL)
            await node.partitions.append(SESSION, other, batch(b"a", b"b"), Acks.ALL)
            commits = {ORDERS: Commit(1), other: Commit(2)}
            await node.groups.commit_offsets(SESSION, "billing", commits)

            assert figures(node, GROUP_LAG) == {("billing", "orders"): 2}

            node.partitions.delete_records(SESSION, ORDERS, 2)
            assert of(node, GROUP_LAG, "billing", "orders") == 1

    run(story())


def test_offsets_in_an_earlier_topic_of_that_name_are_no_lag() -> None:
    async def story() -> None:
        async with running_orders() as node:
            await node.groups.commit_offsets(SESSION, "billing", {ORDERS: Commit(0)})
            await node.topics.delete(SESSION, "orders")
            assert of(node, GROUP_LAG, "billing", "orders") == 0

            await node.topics.create(SESSION, "orders")
            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)

            assert of(node, GROUP_LAG, "billing", "orders") == 0

    run(story())


def test_no_more_groups_are_told_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "LABELLED_MAX", 2)

    async def story() -> None:
        async with running_orders() as node:
            for name in ("c", "a", "b"):
                await node.groups.commit_offsets(SESSION, name, {ORDERS: Commit(0)})

            assert list(figures(node, GROUP_LAG)) == [("a", "orders"), ("b", "orders")]
            assert of(node, CUT_SHORT, "group") == 1

    run(story())


# -- queues ------------------------------------------------------------------------------------


def test_delayed_records_are_counted_as_they_come_and_as_they_wait() -> None:
    async def story() -> None:
        async with running_orders() as node:
            assert of(node, DELAYED_RECORDS) == 0
            sent = batch_of(message(b"a", delay_ms=60_000), message(b"b", delay_ms=1_000))
            await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)

            assert of(node, DELAYED_RECORDS_TAKEN) == 2
            assert of(node, DELAYED_RECORDS) == 2
            await until(lambda: of(node, HIGH_WATERMARK, "orders", "0") == 1)
            assert of(node, DELAYED_RECORDS) == 1

    run(story())


def test_duplicates_are_counted() -> None:
    async def story() -> None:
        async with running_orders() as node:
            for _ in range(3):
                sent = batch_of(message(b"a", message_id=b"1"))
                await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)

            assert of(node, DUPLICATE_RECORDS) == 2

    run(story())


async def read(node: Node, *, where: str | None = None, topic: str = "orders") -> None:
    await node.partitions.read(
        SESSION,
        [Want(TopicPartition(topic, 0), 0, 2**20)],
        isolation=Isolation.READ_COMMITTED,
        filter=None if where is None else parse(where),
    )


@pytest.mark.parametrize("settings", [{}, {"message_ttl_ms": "1000"}])
def test_records_that_expired_are_counted_for_each_reader(settings: dict[str, Any]) -> None:
    async def story() -> None:
        async with running_orders(**settings) as node:
            sent = batch_of(*[message(b"%d" % at, ttl_ms=1_000) for at in range(3)])
            await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            await read(node)
            assert of(node, EXPIRED_RECORDS) == 0
            await asyncio.sleep(2)
            fresh = batch(b"new", timestamp_ms=NOW_MS + 10_000)
            await node.partitions.append(SESSION, ORDERS, fresh, Acks.ALL)

            await read(node)
            await read(node)

            assert (of(node, EXPIRED_RECORDS), of(node, FILTERED_RECORDS)) == (6, 0)

    run(story())


def test_records_that_a_filter_or_a_view_does_not_take_are_counted() -> None:
    async def story() -> None:
        async with running_orders() as node:
            where = {"view_of": "orders", "view_where": "value contains 'bad'"}
            await node.topics.create(SESSION, "some", settings=where)
            for sent in (batch(b"bad", b"good", b"good"), batch(b"good", b"good")):
                await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)

            await read(node)
            assert of(node, FILTERED_RECORDS) == 0
            await read(node, topic="some")
            assert of(node, FILTERED_RECORDS) == 4
            await read(node, where="value ~ '^b'")
            assert (of(node, FILTERED_RECORDS), of(node, EXPIRED_RECORDS)) == (8, 0)

    run(story())


def test_what_is_both_expired_and_not_wanted_is_counted_once() -> None:
    async def story() -> None:
        async with running_orders() as node:
            kept = message(b"good")
            sent = batch_of(message(b"x good", ttl_ms=1), kept, message(b"bad"), kept)
            await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            await asyncio.sleep(1)

            await read(node, where="value ~ 'o+d'")

            assert (of(node, EXPIRED_RECORDS), of(node, FILTERED_RECORDS)) == (1, 1)

    run(story())


def test_a_subscription_shows_its_members_and_what_they_have_not_done() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            first = await Subscriber().subscribe(node, JOBS)
            second = await Subscriber().subscribe(node, JOBS)
            await publish(node, b"a", b"b", b"c")
            await until(lambda: len(first.got) + len(second.got) == 3)

            assert of(node, SUBSCRIBERS, "workers") == 2
            assert of(node, OUTSTANDING_RECORDS, "workers") == 3
            assert of(node, SLOW_SUBSCRIBERS, "workers") == 0
            assert of(node, DELIVERED_RECORDS) == 3
            first.ack_all()
            await until(lambda: of(node, ACKNOWLEDGED_RECORDS) == len(first.got))
            assert of(node, OUTSTANDING_RECORDS, "workers") == len(second.got)
            first.close()
            second.ack_all()
            await until(lambda: of(node, ACKNOWLEDGED_RECORDS) == 3)
            assert of(node, SUBSCRIBERS, "workers") == 1
            assert of(node, OUTSTANDING_RECORDS, "workers") == 0

    run(story())


def test_what_comes_again_and_what_is_given_up_is_counted() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            retry = RetryPolicy(max_retries=2, ack_timeout_ms=1_000)
            spec = SubscriptionSpec(name="w", topics=("orders",), start=Earliest(), retry=retry)
            await Subscriber().subscribe(node, spec)
            await publish(node, b"a", b"b")

            await until(lambda: of(node, OUTSTANDING_RECORDS, "w") == 2)
            await until(lambda: node.metrics.value(DEAD_LETTERS) == 2)

            assert of(node, DELIVERED_RECORDS) == 6
            assert of(node, REDELIVERED_RECORDS) == 4
            assert node.metrics.value(ACKNOWLEDGED_RECORDS) == 0

    run(story())


def test_what_is_done_when_it_is_sent_counts_as_acknowledged() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            spec = SubscriptionSpec(topics=("orders",), start=Earliest(), acks=AckMode.ON_SEND)
            subscriber = await Subscriber().subscribe(node, spec)
            await publish(node, b"a", b"b")
            await until(lambda: len(subscriber.got) == 2)

            assert of(node, ACKNOWLEDGED_RECORDS) == 2
            assert figures(node, SUBSCRIBERS) == {("",): 1}
            subscriber.close()
            await pause()
            assert of(node, ACKNOWLEDGED_RECORDS) == 2
            assert figures(node, SUBSCRIBERS) == {}

    run(story())


def test_a_member_that_takes_nothing_is_slow_and_what_is_dropped_for_it_is_counted() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            flow = FlowPolicy(buffer=2, overflow=Overflow.DROP)
            spec = SubscriptionSpec(name="w", topics=("orders",), start=Earliest(), flow=flow)
            subscriber = Subscriber()
            subscriber.has_room = False
            await subscriber.subscribe(node, spec)
            await publish(node, b"a", b"b", b"c", b"d", b"e")
            await until(lambda: node.metrics.value(DROPPED_RECORDS) == 3)

            assert of(node, WAITING_RECORDS, "w") == 2
            assert of(node, SLOW_SUBSCRIBERS, "w") == 1

    run(story())


def test_what_expires_while_it_waits_for_a_member_is_counted() -> None:
    async def story() -> None:
        async with running_orders() as node:
            subscriber = Subscriber()
            subscriber.has_room = False
            await subscriber.subscribe(node, JOBS)
            sent = batch_of(message(b"a", ttl_ms=1_000), message(b"b"))
            await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            await until(lambda: of(node, WAITING_RECORDS, "workers") == 2)
            await pause(2)

            subscriber.has_room = True
            assert subscriber.member is not None
            subscriber.member.resume()
            await until(lambda: subscriber.values == [b"b"])

            assert of(node, EXPIRED_RECORDS) == 1

    run(story())


def test_subscriptions_without_a_name_are_one_and_no_more_are_told_than_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observing, "LABELLED_MAX", 2)

    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            for name in (None, None, "c", "b"):
                await Subscriber().subscribe(node, SubscriptionSpec(name=name, topics=("orders",)))

            assert figures(node, SUBSCRIBERS) == {("",): 2, ("b",): 1}
            assert of(node, CUT_SHORT, "subscription") == 1

    run(story())
