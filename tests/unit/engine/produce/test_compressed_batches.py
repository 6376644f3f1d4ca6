"""Compressed batches that become very large: searched, refused, skipped, and never in the way."""

import asyncio
import os
from typing import Any

import pytest

from millstream.codec.batch import read_header, seal
from millstream.codec.compression import RATIO_FREE_BYTES, Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config, Limits
from millstream.engine.filters.filter import parse
from millstream.engine.partitions.slices import Earliest, Want
from millstream.engine.produce.pipeline import TURN_BYTES_MAX, UNWATCHED_BYTES_MAX
from millstream.engine.push import SubscriptionSpec
from millstream.errors import InvalidBatch, Overloaded, UnpackedTooLarge
from millstream.internal_topics.deliveries import RetryPolicy
from millstream.metrics import (
    DUPLICATE_RECORDS,
    UNPACKED_BATCHES,
    UNPACKING_BYTES,
    UNREADABLE_BATCHES,
)
from millstream.model import Acks, Producer, TopicPartition
from millstream.server.node import Node
from tests.support.deliveries import Subscriber, until
from tests.support.nodes import NOW_MS, ORDERS, SESSION, batch, values_of
from tests.support.queues import Message, batch_of, found_in, message, running_orders, values_in
from tests.support.virtual_loop import run

MIB = 2**20
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
ME = Producer(7, 0)
BIG = Message(bytes(2 * MIB))
SMALL_LIMIT = Config(limits=Limits(batch_decompressed_bytes_max=3 * MIB))


def bomb(codec: Codec) -> bytes:
    """More than `SMALL_LIMIT` allows."""
    return encode_batch([Record(0, NOW_MS, b"key", bytes(4 * MIB))], codec=codec)


def spoiled(codec: Codec) -> bytes:
    """Bytes that the codec did not write, under a right checksum."""
    return seal(read_header(bomb(codec)), b"\xff no such codec")[1]


async def append(node: Node, data: bytes, *, acks: Acks = Acks.ALL) -> int:
    return (await node.partitions.append(SESSION, ORDERS, data, acks)).base_offset


# -- produce ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", COMPRESSED)
def test_headers_of_a_large_batch_count_as_those_of_a_small_one(codec: Codec) -> None:
    async def story() -> None:
        async with running_orders() as node:
            sent = batch_of(
                BIG,
                message(b"later", delay_ms=5_000),
                message(b"once", message_id=b"a"),
                message(b"twice", message_id=b"a"),
                codec=codec,
            )
            appended = await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)

            assert appended.delayed == {1: "orders~0"}
            assert await values_in(node) == [BIG.value, b"once"]
            assert node.metrics.value(UNPACKED_BATCHES, "produce") == 2  # To search, and to split.
            assert node.metrics.value(UNPACKING_BYTES, "produce") == 0
            assert node.metrics.total(DUPLICATE_RECORDS) == 1
            while len(await found_in(node)) < 3:
                await asyncio.sleep(0.1)

    run(story())


def test_no_batch_overtakes_one_that_is_being_unpacked() -> None:
    async def story() -> None:
        async with running_orders() as node:
            writings = [
                node.partitions.append(SESSION, ORDERS, data, Acks.ALL)
                for data in (
                    batch_of(Message(b"1" * MIB), Message(b"-" * MIB), codec=Codec.GZIP),
                    batch(b"2"),
                    batch_of(Message(b"3"), codec=Codec.LZ4),
                    batch_of(Message(b"4" * MIB), Message(b"-" * MIB), codec=Codec.ZSTD),
                    batch(b"5"),
                )
            ]

            offsets = [(await writing).base_offset for writing in writings]

            assert offsets == [0, 2, 3, 4, 6]
            seen = [(value or b"")[:1] for value in await values_in(node)]
            assert seen == [b"1", b"-", b"2", b"3", b"4", b"-", b"5"]

    run(story())


def test_a_large_batch_that_is_sent_again_is_there_once() -> None:
    async def story() -> None:
        async with running_orders() as node:
            first = batch_of(BIG, codec=Codec.GZIP, producer=ME, base_sequence=0)
            second = batch_of(BIG, codec=Codec.GZIP, producer=ME, base_sequence=1)
            writings = [
                node.partitions.append(SESSION, ORDERS, data, Acks.ALL)
                for data in (first, second, first)
            ]

            assert [(await writing).base_offset for writing in writings] == [0, 1, 0]
            assert len(await values_in(node)) == 2

    run(story())


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_cannot_be_searched_is_refused_and_warned_of(
    codec: Codec, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with running_orders(SMALL_LIMIT) as node:
            with pytest.raises(UnpackedTooLarge, match="batch_decompressed_bytes_max"):
                await append(node, bomb(codec))
            with pytest.raises(InvalidBatch, match="cannot be unpacked"):
                await append(node, spoiled(codec))

            assert await append(node, batch(b"good")) == 0
            assert node.metrics.value(UNREADABLE_BATCHES, "refused") == 2
            assert "outcome=refused target=orders-0" in caplog.text

    run(story())


def test_a_few_bytes_may_become_16_mib_and_many_as_much_as_the_limit() -> None:
    async def story() -> None:
        async with running_orders() as node:
            few = encode_batch([Record(0, NOW_MS, None, bytes(RATIO_FREE_BYTES))], codec=Codec.ZSTD)
            noise = os.urandom(64 * 1024)
            many = encode_batch(
                [Record(0, NOW_MS, None, noise), Record(1, NOW_MS, None, bytes(32 * MIB))],
                codec=Codec.ZSTD,
            )
            with pytest.raises(UnpackedTooLarge, match=f"{RATIO_FREE_BYTES}"):
                await append(node, few)
            assert await append(node, many) == 0

    run(story())


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_topic_without_queue_headers_takes_batches_without_unpacking_them(codec: Codec) -> None:
    async def story() -> None:
        async with running_orders(SMALL_LIMIT, message_queue_headers="off") as node:
            assert await append(node, bomb(codec)) == 0
            assert await append(node, spoiled(codec)) == 1
            assert node.metrics.value(UNPACKED_BATCHES, "produce") == 0

    run(story())


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup_policy": "compact"},
        {"message_validation_type": "records"},
        {"compression_type": "gzip"},
        {"compression_type": "uncompressed"},
    ],
    ids=str,
)
def test_topics_that_read_every_record_do_so_on_a_thread_where_it_takes_long(
    settings: dict[str, Any],
) -> None:
    async def story() -> None:
        config = Config(limits=Limits(batch_decompressed_bytes_max=3 * MIB))
        async with running_orders(config, max_message_bytes="4000000", **settings) as node:
            large = encode_batch(
                [Record(at, NOW_MS, b"%d" % at, bytes(500)) for at in range(5_000)],
                codec=Codec.LZ4,
            )
            writings = [
                node.partitions.append(SESSION, ORDERS, data, Acks.ALL)
                for data in (large, batch(b"small", key=b"k"))
            ]

            assert [(await writing).base_offset for writing in writings] == [0, 5_000]
            assert node.metrics.value(UNPACKED_BATCHES, "produce") >= 1
            with pytest.raises(UnpackedTooLarge):
                await append(node, bomb(Codec.ZSTD))

    run(story())


def test_a_request_with_many_batches_unpacks_few_of_them_on_the_loop() -> None:
    async def story() -> None:
        count = 2 * TURN_BYTES_MAX // MIB
        async with running_orders(partitions=count) as node:
            data = batch_of(Message(bytes(MIB - 1_000)), codec=Codec.ZSTD)
            writings = [
                node.partitions.append(SESSION, TopicPartition("orders", at), data, Acks.ALL)
                for at in range(count)
            ]

            assert [(await writing).base_offset for writing in writings] == [0] * count
            on_threads = node.metrics.value(UNPACKED_BATCHES, "produce")
            assert on_threads == count - (TURN_BYTES_MAX + UNWATCHED_BYTES_MAX) // MIB - 2

    run(story())


def test_batches_that_wait_are_bounded_in_bytes() -> None:
    async def story() -> None:
        config = Config(limits=Limits(intake_queued_bytes_max=10_000))
        async with running_orders(config, partitions=3) as node:
            data = batch_of(BIG, codec=Codec.GZIP)  # 2 KB.
            targets = [TopicPartition("orders", at % 3) for at in range(20)]
            taken, refused = [], 0
            for target in targets:
                try:
                    taken.append(node.partitions.append(SESSION, target, data, Acks.ALL))
                except Overloaded:
                    refused += 1

            assert len(taken) == 10_000 // len(data)
            assert len(taken) + refused == 20
            for writing in taken:
                await writing
            assert await append(node, data) >= 0

    run(story())


# -- push ------------------------------------------------------------------------------------------

EARLIEST = SubscriptionSpec(topics=("orders",), start=Earliest())


@pytest.mark.parametrize("codec", COMPRESSED)
def test_push_skips_what_it_cannot_read_and_keeps_it_as_a_dead_letter(
    codec: Codec, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with running_orders(SMALL_LIMIT, message_queue_headers="off") as node:
            live = await Subscriber(acks=True).subscribe(node, EARLIEST)
            await append(node, batch(b"before"))
            await until(lambda: live.values == [b"before"])
            for data in (bomb(codec), spoiled(codec), batch(b"behind")):
                await append(node, data)

            async with asyncio.timeout(1):
                await until(lambda: live.values == [b"before", b"behind"])
                late = await Subscriber(acks=True).subscribe(node, EARLIEST)
                await until(lambda: late.values == [b"before", b"behind"])
            while len(letters := await found_in(node, TopicPartition("orders.dlq", 0))) < 4:
                await asyncio.sleep(0.1)

            first = next(
                letter for letter in letters if len(letter.value or b"") == len(bomb(codec))
            )
            raw = bytearray(first.value or b"")
            raw[:8], raw[12:16] = bomb(codec)[:8], bomb(codec)[12:16]  # Stamped by the log.
            assert bytes(raw) == bomb(codec)
            headers = dict(first.headers)
            assert headers["ms-dlq-reason"] == b"unreadable_batch"
            assert headers["ms-dlq-offset"] == headers["ms-dlq-batch"] == b"1"
            assert b"unpack" in (headers["ms-dlq-error"] or b"")
            assert node.metrics.value(UNREADABLE_BATCHES, "push") >= 4
            assert "outcome=push target=orders-0 offset=1" in caplog.text

    run(story())


def test_without_dead_letters_what_cannot_be_read_is_skipped_for_good() -> None:
    async def story() -> None:
        async with running_orders(SMALL_LIMIT, message_queue_headers="off") as node:
            retry = RetryPolicy(dead_letter_topic=None)
            spec = SubscriptionSpec(name="s", topics=("orders",), start=Earliest(), retry=retry)
            await append(node, bomb(Codec.GZIP))
            await append(node, batch(b"behind"))
            subscriber = await Subscriber(acks=True).subscribe(node, spec)

            await until(lambda: subscriber.values == [b"behind"])
            while (await node.deliveries.describe(SESSION, "s")).cursors[ORDERS].floor < 2:
                await asyncio.sleep(0.1)

            assert [topic.name for topic in node.topics.list(SESSION)].count("orders.dlq") == 0

    run(story())


def test_one_partitions_bombs_hold_up_no_other_subscription() -> None:
    async def story() -> None:
        async with running_orders(SMALL_LIMIT, partitions=2, message_queue_headers="off") as node:
            for _ in range(50):
                await append(node, bomb(Codec.ZSTD))
            await append(node, batch(b"behind"))
            other = TopicPartition("orders", 1)
            await node.partitions.append(SESSION, other, batch(b"other"), Acks.ALL)

            subscriber = await Subscriber(acks=True).subscribe(node, EARLIEST)

            await until(lambda: subscriber.values == [b"other", b"behind"])
            assert node.metrics.value(UNREADABLE_BATCHES, "push") == 50

    run(story())


def test_records_of_a_large_batch_are_pushed_in_parts() -> None:
    async def story() -> None:
        async with running_orders() as node:
            many = [Message(b"%d" % at) for at in range(25_000)]
            await append(node, batch_of(*many, codec=Codec.ZSTD))
            subscriber = await Subscriber(acks=True).subscribe(node, EARLIEST)

            await until(lambda: len(subscriber.got) == 25_000)

            assert subscriber.values == [record.value for record in many]
            assert node.metrics.value(UNPACKED_BATCHES, "read") >= 3

    run(story())


# -- filters and lookups ---------------------------------------------------------------------------


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_large_batch_is_filtered_on_a_thread(codec: Codec) -> None:
    async def story() -> None:
        async with running_orders() as node:
            await append(node, batch_of(BIG, Message(b"wanted"), codec=codec))

            filter_ = parse("value == 'wanted'")
            (part,) = await node.partitions.read(SESSION, [Want(ORDERS, 0, MIB)], filter=filter_)

            assert values_of(part) == [b"wanted"]
            assert node.metrics.value(UNPACKED_BATCHES, "read") == 1

    run(story())


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_filter_steps_over_what_it_cannot_read_and_says_so(
    codec: Codec, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with running_orders(SMALL_LIMIT, message_queue_headers="off") as node:
            for data in (bomb(codec), spoiled(codec), batch(b"wanted")):
                await append(node, data)

            filter_ = parse("value == 'wanted'")
            (part,) = await node.partitions.read(SESSION, [Want(ORDERS, 0, MIB)], filter=filter_)

            assert values_of(part) == [b"wanted"]
            assert node.metrics.value(UNREADABLE_BATCHES, "filter") == 2
            assert "outcome=filter target=orders-0 offset=0" in caplog.text

    run(story())


def test_a_window_of_ids_is_made_from_large_batches_too() -> None:
    async def story() -> None:
        async with running_orders(message_queue_headers="off") as node:
            large = batch_of(BIG, message(b"once", message_id=b"a"), codec=Codec.GZIP)
            await append(node, large)
            await append(node, bomb(Codec.ZSTD))
            await node.topics.alter(SESSION, "orders", {"message_queue_headers": "on"})

            again = batch_of(message(b"twice", message_id=b"a"))
            appended = await node.partitions.append(SESSION, ORDERS, again, Acks.ALL)

            assert appended.duplicates == {0: 1}
            assert node.metrics.value(UNPACKED_BATCHES, "read") == 2

    run(story())
