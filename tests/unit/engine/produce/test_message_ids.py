"""The window of message ids of a topic, made from the ends of its logs."""

import asyncio
from typing import Any

import pytest

from millstream.codec.batch import HEADER_BYTES, read_header, seal
from millstream.codec.compression import Codec
from millstream.engine.produce.message_ids import NOWHERE, STEP_IDS, Copy, Place, Window
from millstream.model import Acks, TopicPartition
from millstream.server.node import Node
from millstream.settings import TopicSettings
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import ORDERS, SESSION, batch
from tests.support.queues import batch_of, message, running_orders
from tests.support.virtual_loop import run

HERE = Place(0, 0)
SETTINGS = TopicSettings(message_id_window_ms=100, message_id_count_max=3)


async def duplicates(node: Node, *ids: bytes, target: TopicPartition = ORDERS) -> list[bool]:
    """Send a record with each id, one after the other; say which had been there."""
    collected = []
    for message_id in ids:
        sent = batch_of(message(message_id, message_id=message_id))
        appended = await node.partitions.append(SESSION, target, sent, Acks.ALL)
        collected.append(bool(appended.duplicates))
    return collected


def test_a_window_forgets_by_age_and_by_count() -> None:
    window = Window()
    for time_ms, message_id in enumerate([b"a", b"b", b"c", b"d"]):
        window.add(message_id, Copy(time_ms, HERE, time_ms), SETTINGS)

    assert window.find(b"a", SETTINGS, now_ms=10) is None
    assert window.find(b"b", SETTINGS, now_ms=10) == Copy(1, HERE, 1)
    assert window.find(b"c", SETTINGS, now_ms=101) == Copy(2, HERE, 2)
    assert window.find(b"c", SETTINGS, now_ms=102) is None
    assert len(window) == 1


def test_a_window_shrinks_with_its_settings() -> None:
    window = Window()
    for time_ms, message_id in enumerate([b"a", b"b", b"c"]):
        window.add(message_id, Copy(time_ms, HERE, time_ms), SETTINGS)
    smaller = TopicSettings(message_id_window_ms=100, message_id_count_max=1)

    assert window.find(b"b", smaller, now_ms=10) is None
    assert window.find(b"c", smaller, now_ms=10) is not None


def test_only_an_id_that_was_not_delivered_can_be_taken_back() -> None:
    window = Window()
    window.add(b"a", Copy(1, HERE, 5), SETTINGS)
    window.add(b"b", Copy(1, Place(NOWHERE, NOWHERE)), SETTINGS)

    for message_id in (b"a", b"b", b"c"):
        window.forget(message_id)

    assert window.find(b"a", SETTINGS, now_ms=2) is not None
    assert window.find(b"b", SETTINGS, now_ms=2) is None


def test_after_a_restart_ids_of_all_partitions_and_codecs_are_known() -> None:
    async def story() -> None:
        files = MemoryFiles()
        places = [TopicPartition("orders", partition) for partition in range(3)]
        async with running_orders(files=files, partitions=3) as node:
            for place in places:
                for codec in Codec:
                    message_id = b"%d-%s" % (place.partition, codec.name.encode())
                    plain = batch(b"p" * 100_000)
                    await node.partitions.append(SESSION, place, plain, Acks.ALL)
                    sent = batch_of(message(b"x", message_id=message_id), codec=codec)
                    await node.partitions.append(SESSION, place, sent, Acks.ALL)
        async with running_orders(files=files, partitions=3) as node:
            ids = [b"%d-%s" % (at, codec.name.encode()) for at in range(3) for codec in Codec]

            assert await duplicates(node, *ids, b"new") == [True] * len(ids) + [False]

    run(story())


def test_after_a_restart_old_ids_are_forgotten() -> None:
    async def story() -> None:
        files = MemoryFiles()
        settings: dict[str, Any] = {
            "message_id_window_ms": "10000",
            "message_timestamp_type": "LogAppendTime",
        }
        async with running_orders(files=files, **settings) as node:
            await duplicates(node, b"old")
            await asyncio.sleep(8)
            await duplicates(node, b"young")
        async with running_orders(files=files, **settings) as node:
            await asyncio.sleep(4)
            assert await duplicates(node, b"old", b"young") == [False, True]

    run(story())


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_others_have_their_turn_while_a_window_loads(codec: Codec) -> None:
    async def story() -> None:
        files = MemoryFiles()
        count = 10_000
        async with running_orders(files=files) as node:
            many = [message(b"x", message_id=b"%d" % at) for at in range(count)]
            await node.partitions.append(SESSION, ORDERS, batch_of(*many, codec=codec), Acks.ALL)
        async with running_orders(files=files) as node:
            await node.partitions.awake(SESSION, [node.topics.describe(SESSION, ORDERS.topic)])
            again = batch_of(message(b"x", message_id=b"%d" % (count - 1)))
            writing = node.partitions.append(SESSION, ORDERS, again, Acks.ALL)
            turns = 0
            while not writing.done():
                turns += 1
                await asyncio.sleep(0)

            assert turns > count / STEP_IDS
            assert (await writing).duplicates == {0: count - 1}

    run(story())


def test_a_window_loads_while_its_topic_is_written_to_all_the_time() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_orders(files=files, partitions=2) as node:
            await duplicates(node, b"a", target=TopicPartition("orders", 1))
        async with running_orders(files=files, partitions=2) as node:
            is_known = asyncio.ensure_future(
                duplicates(node, b"a", target=TopicPartition("orders", 1))
            )
            for _ in range(10_000):  # The loop has no turn without a batch.
                if is_known.done():
                    break
                node.partitions.append(SESSION, ORDERS, batch(b"p" * 1_000), Acks.LEADER)
                await asyncio.sleep(0)

            assert await is_known == [True]

    run(story())


def test_what_cannot_be_decoded_has_no_ids_and_hides_no_others() -> None:
    async def story() -> None:
        async with running_orders(message_queue_headers="off") as node:
            made = batch_of(message(b"x" * 100, message_id=b"a"), message(b"y"))
            spoiled = made[HEADER_BYTES:].replace(b"x" * 100, b"x" * 99)
            _, nonsense = seal(read_header(made), spoiled)
            for data in (nonsense, batch_of(message(b"z", message_id=b"b"))):
                await node.partitions.append(SESSION, ORDERS, data, Acks.ALL)
            await node.topics.alter(SESSION, "orders", {"message_queue_headers": "on"})

            assert await duplicates(node, b"a", b"b") == [False, True]

    run(story())


def test_ids_that_arrive_while_the_window_loads_wait_for_it() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_orders(files=files, partitions=2) as node:
            for _ in range(20):
                await node.partitions.append(SESSION, ORDERS, batch(b"p" * 500_000), Acks.ALL)
            await duplicates(node, b"a")
        async with running_orders(files=files, partitions=2) as node:
            outcomes = await asyncio.gather(
                *[
                    duplicates(node, b"a", b"b", target=TopicPartition("orders", partition))
                    for partition in (0, 1)
                ]
            )

            assert sorted(outcomes) == [[True, False], [True, True]]

    run(story())


def test_the_window_of_a_deleted_topic_is_dropped() -> None:
    async def scenario() -> None:
        async with running_orders() as node:
            assert await duplicates(node, b"a", b"a") == [False, True]
            windows = node._engine.pipeline._windows

            await node.topics.delete(SESSION, ORDERS.topic)

            assert windows._windows == {}

    run(scenario())
