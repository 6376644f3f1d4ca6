"""Topics through the engine: create, grow, alter, delete, and across restarts."""

import asyncio

import pytest

from millstream.config import Config, Limits
from millstream.engine.partitions.slices import Want
from millstream.errors import (
    InvalidPartitions,
    InvalidReplication,
    InvalidSetting,
    InvalidTopicName,
    RequestError,
    TopicExists,
    UnknownTopic,
)
from millstream.model import CONTROL_LOG, Acks, TopicPartition
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import ORDERS, SESSION, batch, running_node, values_of
from tests.support.virtual_loop import run


def test_a_topic_takes_records_as_soon_as_it_is_created() -> None:
    async def story() -> None:
        async with running_node() as node:
            topic = await node.topics.create(SESSION, "orders", partitions=3)

            for partition in range(3):
                target = TopicPartition("orders", partition)
                appended = await node.partitions.append(SESSION, target, batch(b"a"), Acks.ALL)
                assert appended.base_offset == 0

            assert topic.partition_count == 3
            assert node.topics.describe(SESSION, "orders") == topic
            assert node.topics.list(SESSION) == [topic]

    run(story())


def test_topics_and_records_survive_a_restart_and_restarts_move_no_offsets() -> None:
    files = MemoryFiles()

    async def first_life() -> None:
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "orders", settings={"retention_ms": "-1"})
            await node.topics.create(SESSION, "gone")
            await node.topics.delete(SESSION, "gone")
            await node.partitions.append(SESSION, ORDERS, batch(b"a", b"b"), Acks.ALL)

    async def later_life() -> None:
        async with running_node(files=files) as node:
            health = node.partitions.health(SESSION, ORDERS)
            (part,) = await node.partitions.read(SESSION, [Want(ORDERS, 0, 2**20)])

            assert [topic.name for topic in node.topics.list(SESSION)] == ["orders"]
            assert (health.high_watermark, health.log.end_offset) == (2, 2)
            assert values_of(part) == [b"a", b"b"]

    run(first_life())
    for _ in range(3):
        run(later_life())


def test_a_topic_that_is_created_again_starts_empty() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            await node.partitions.append(SESSION, ORDERS, batch(b"old"), Acks.ALL)
            await node.topics.delete(SESSION, "orders")
            with pytest.raises(UnknownTopic):
                node.partitions.append(SESSION, ORDERS, batch(b"lost"), Acks.ALL)

            await node.topics.create(SESSION, "orders")
            appended = await node.partitions.append(SESSION, ORDERS, batch(b"new"), Acks.ALL)

            assert appended.base_offset == 0

    run(story())


def test_a_deleted_topic_leaves_no_files() -> None:
    files = MemoryFiles()

    async def story() -> None:
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "orders", partitions=4)
            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)
            await node.topics.delete(SESSION, "orders")
            await asyncio.sleep(1)  # A thread removes them.

            assert files.list("logs") == [str(CONTROL_LOG)]

    run(story())


def test_added_partitions_take_records_and_the_old_ones_keep_theirs() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)

            grown = await node.topics.add_partitions(SESSION, "orders", total=3)
            last = TopicPartition("orders", 2)
            appended = await node.partitions.append(SESSION, last, batch(b"b"), Acks.ALL)

            assert grown.partition_count == 3
            assert appended.base_offset == 0
            assert node.partitions.health(SESSION, ORDERS).high_watermark == 1

    run(story())


def test_altered_settings_hold_for_the_next_append() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")

            await node.topics.alter(SESSION, "orders", {"max_message_bytes": "10"})
            with pytest.raises(RequestError):
                node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)
            await node.topics.alter(SESSION, "orders", {"max_message_bytes": None})
            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)

            assert node.topics.describe(SESSION, "orders").overrides == {}

    run(story())


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("orders", {}, TopicExists),
        ("../../etc/passwd", {}, InvalidTopicName),
        ("fresh", {"partitions": 0}, InvalidPartitions),
        ("fresh", {"partitions": -1}, InvalidPartitions),
        ("fresh", {"partitions": 11}, InvalidPartitions),
        ("fresh", {"replicas": 2}, InvalidReplication),
        ("fresh", {"replicas": 0}, InvalidReplication),
        ("fresh", {"settings": {"colour": "red"}}, InvalidSetting),
        ("fresh", {"settings": {f"s{n}": "1" for n in range(200)}}, InvalidSetting),
    ],
)
def test_what_cannot_be_created_is_refused_and_leaves_no_trace(
    name: str, arguments: dict[str, object], error: type[RequestError]
) -> None:
    async def story() -> None:
        config = Config(limits=Limits(topic_partitions_max=10))
        async with running_node(config) as node:
            await node.topics.create(SESSION, "orders")

            with pytest.raises(error):
                await node.topics.create(SESSION, name, **arguments)  # type: ignore[arg-type]

            assert [topic.name for topic in node.topics.list(SESSION)] == ["orders"]

    run(story())


def test_partitions_of_a_node_are_bounded() -> None:
    async def story() -> None:
        config = Config(limits=Limits(node_partitions_max=5))
        async with running_node(config) as node:
            await node.topics.create(SESSION, "orders", partitions=4)

            with pytest.raises(InvalidPartitions, match="at most 5"):
                await node.topics.create(SESSION, "more", partitions=2)
            with pytest.raises(InvalidPartitions, match="at most 5"):
                await node.topics.add_partitions(SESSION, "orders", total=6)

    run(story())


def test_topics_that_are_created_at_the_same_time_keep_within_the_bound() -> None:
    async def story() -> None:
        config = Config(limits=Limits(node_partitions_max=5))
        async with running_node(config) as node:
            creations = [node.topics.create(SESSION, f"t{n}", partitions=2) for n in range(4)]

            outcomes = await asyncio.gather(*creations, return_exceptions=True)

            assert [isinstance(outcome, InvalidPartitions) for outcome in outcomes] == [
                False
            ] * 2 + [True] * 2

    run(story())


def test_topics_that_are_created_at_the_same_time_fill_the_bound() -> None:
    """Each is counted once, also between its commit and its answer."""

    async def story() -> None:
        config = Config(limits=Limits(node_partitions_max=40))
        async with running_node(config) as node:
            async with asyncio.TaskGroup() as group:
                for number in range(20):
                    group.create_task(node.topics.create(SESSION, f"t{number}", partitions=2))
                    await asyncio.sleep(0)

            assert len(node.topics.list(SESSION)) == 20

    run(story())


def test_partitions_cannot_be_taken_away() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", partitions=2)

            for total in (0, 1, 2):
                with pytest.raises(InvalidPartitions):
                    await node.topics.add_partitions(SESSION, "orders", total=total)

    run(story())
