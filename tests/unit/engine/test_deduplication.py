"""The window of message ids of a topic, made from the ends of its logs."""

import asyncio

from millstream.codec.compression import Codec
from millstream.engine.deduplication import NOWHERE, Copy, Window
from millstream.model import Acks, TopicPartition
from millstream.server.node import Node
from millstream.settings import TopicSettings
from millstream.storage.memory import MemoryFiles
from tests.support.nodes import ORDERS, SESSION, batch
from tests.support.queues import batch_of, message, running_orders
from tests.support.virtual_loop import run

SETTINGS = TopicSettings(message_id_window_ms=100, message_id_count_max=3)


async def duplicates(node: Node, *ids: bytes, target: TopicPartition = ORDERS) -> list[bool]:
    """Send a record with each id, one after the other; say which had been there."""
    found = []
    for message_id in ids:
        sent = batch_of(message(message_id, message_id=message_id))
        appended = await node.partitions.append(SESSION, target, sent, Acks.ALL)
        found.append(bool(appended.duplicates))
    return found


def test_a_window_forgets_by_age_and_by_count() -> None:
    window = Window()
    for time_ms, message_id in enumerate([b"a", b"b", b"c", b"d"]):
        window.add(message_id, Copy(time_ms, 0, time_ms), SETTINGS)

    assert window.find(b"a", SETTINGS, now_ms=10) is None
    assert window.find(b"b", SETTINGS, now_ms=10) == Copy(1, 0, 1)
    assert window.find(b"c", SETTINGS, now_ms=101) == Copy(2, 0, 2)
    assert window.find(b"c", SETTINGS, now_ms=102) is None
    assert len(window) == 1


def test_a_window_shrinks_with_its_settings() -> None:
    window = Window()
    for time_ms, message_id in enumerate([b"a", b"b", b"c"]):
        window.add(message_id, Copy(time_ms, 0, time_ms), SETTINGS)
    smaller = TopicSettings(message_id_window_ms=100, message_id_count_max=1)

    assert window.find(b"b", smaller, now_ms=10) is None
    assert window.find(b"c", smaller, now_ms=10) is not None


def test_only_an_id_that_was_not_delivered_can_be_taken_back() -> None:
    window = Window()
    window.add(b"a", Copy(1, 0, 5), SETTINGS)
    window.add(b"b", Copy(1, NOWHERE, NOWHERE), SETTINGS)

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
        settings = {
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
