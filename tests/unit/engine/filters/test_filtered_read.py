"""Reads through filters: what passes, how a reader moves on, and how much work one read is."""

import asyncio
from typing import Any

import pytest

from millstream.codec.batch import read_header, seal
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config, Limits
from millstream.engine.filters import filtered_read
from millstream.engine.filters.filter import Filter, parse
from millstream.engine.partitions.slices import FilteredBatches, Slice, Want
from millstream.errors import OffsetOutOfRange, UnknownTopic
from millstream.model import Acks, Isolation, TopicPartition
from millstream.server.node import Node
from millstream.storage.log.segment import FileRange
from tests.support.filtered_slices import headers_of, next_offset, shown
from tests.support.nodes import NOW_MS, ORDERS, SESSION, FixedClock, batch, running_node
from tests.support.transactions import Writer
from tests.support.virtual_loop import run

BAD = parse("value contains 'bad'")
LARGE = 2**20


async def append(node: Node, *values: bytes, **options: Any) -> None:
    made = encode_batch(
        [Record(at, NOW_MS, None, value) for at, value in enumerate(values)], **options
    )
    await node.partitions.append(SESSION, ORDERS, made, Acks.ALL)


async def read(node: Node, offset: int = 0, **options: object) -> Slice:
    options = {"filter": BAD} | options
    (part,) = await node.partitions.read(SESSION, [Want(ORDERS, offset, LARGE)], **options)  # type: ignore[arg-type]
    return part


def test_a_reader_with_a_filter_gets_what_it_asked_for_and_offsets_stay() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            await append(node, b"good", b"bad", b"good")
            await append(node, b"good")
            await append(node, b"bad", b"bad")

            part = await read(node)

            assert shown(part) == [(1, b"bad"), (4, b"bad"), (5, b"bad")]
            assert isinstance(part.records, FilteredBatches)
            assert (part.high_watermark, part.log_start_offset) == (6, 0)

    run(story())


def test_a_plain_read_of_a_plain_topic_is_a_range_of_its_file() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            await append(node, b"good")

            assert isinstance((await read(node, filter=None)).records, FileRange)

    run(story())


def test_a_stretch_without_a_match_moves_the_reader_to_its_end() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            await append(node, b"bad")
            for _ in range(5):
                await append(node, b"good", b"good")

            first = await read(node)
            behind = await read(node, next_offset(first, 0))

            assert shown(first) == [(0, b"bad")]
            assert next_offset(first, 0) == 11
            assert behind.records is None

    run(story())


def test_a_batch_ends_with_its_last_match_and_a_skip_marker_stands_for_the_rest() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            await append(node, b"good", b"bad", b"good", b"good")

            matches, skip_marker = headers_of(await read(node))

            assert (matches.base_offset, matches.last_offset, matches.count) == (0, 1, 1)
            assert (skip_marker.is_control, skip_marker.base_offset, skip_marker.last_offset) == (
                True,
                3,
                3,
            )

    run(story())


def test_the_skip_marker_is_a_control_batch_without_a_producer_in_the_epoch_of_the_log() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            await append(node, b"good", b"good")

            part = await read(node)
            (skip_marker,) = headers_of(part)

            assert skip_marker.is_control
            assert (skip_marker.base_offset, skip_marker.count, skip_marker.producer_id) == (
                1,
                1,
                -1,
            )
            assert skip_marker.epoch == node.partitions.health(SESSION, ORDERS).leader_epoch
            assert part.gained_bytes == 0

    run(story())


def test_who_waits_is_not_woken_by_what_it_does_not_want() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            loop = asyncio.get_running_loop()
            began = loop.time()
            waiting = asyncio.ensure_future(read(node, min_bytes=1, deadline=began + 5))
            for _ in range(3):
                await asyncio.sleep(0.5)
                await append(node, b"good")
                assert not waiting.done()

            part = await waiting

            assert loop.time() >= began + 5
            assert (shown(part), next_offset(part, 0)) == ([], 3)

    run(story())


def test_who_waits_is_answered_with_the_first_match() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            loop = asyncio.get_running_loop()
            waiting = asyncio.ensure_future(read(node, min_bytes=1, deadline=loop.time() + 60))
            await asyncio.sleep(1)
            await append(node, b"good")
            await append(node, b"bad")

            part = await waiting

            assert shown(part) == [(1, b"bad")]
            assert loop.time() < 10

    run(story())


@pytest.mark.parametrize("filter_", [None, BAD], ids=["plain", "filtered"])
def test_who_finds_too_many_waiting_is_answered_at_once(filter_: Filter | None) -> None:
    async def story() -> None:
        async with running_node(Config(limits=Limits(read_waiters_max=1))) as node:
            await node.topics.create(SESSION, "orders")
            loop = asyncio.get_running_loop()
            patient = asyncio.ensure_future(read(node, min_bytes=1, deadline=loop.time() + 60))
            await asyncio.sleep(1)
            begun = loop.time()

            part = await read(node, filter=filter_, min_bytes=1, deadline=begun + 60)

            assert part.records is None
            assert loop.time() < begun + 1
            await append(node, b"bad")
            assert shown(await patient) == [(0, b"bad")]

    run(story())


def test_a_time_to_live_that_is_over_at_once_is_not_shown_to_who_waits() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            deadline = asyncio.get_running_loop().time() + 60
            waiting = asyncio.ensure_future(read(node, filter=None, min_bytes=1, deadline=deadline))
            await asyncio.sleep(1)
            now_ms = node.partitions._clock.now_ms()
            dead = Record(0, now_ms - 5, None, b"dead", (("ms-ttl-ms", b"1"),))
            await node.partitions.append(SESSION, ORDERS, encode_batch([dead]), Acks.ALL)
            await append(node, b"alive")

            assert shown(await waiting) == [(1, b"alive")]

    run(story())


def test_one_read_looks_at_a_bounded_stretch_and_answers_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filtered_read, "SCAN_BYTES_MAX", 1000)
    monkeypatch.setattr(filtered_read, "SCAN_BYTES_MIN", 1000)
    monkeypatch.setattr(filtered_read, "CHUNK_BYTES", 500)

    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            for _ in range(50):
                await append(node, b"good" * 10)
            await append(node, b"bad")
            loop = asyncio.get_running_loop()
            offset, reads, records = 0, 0, []  # type: ignore[var-annotated]
            while not records:
                part = await read(node, offset, min_bytes=1, deadline=loop.time() + 100)
                records = shown(part)
                assert next_offset(part, offset) > offset
                offset, reads = next_offset(part, offset), reads + 1

            assert records == [(50, b"bad")]
            assert reads > 3
            assert loop.time() < 50

    run(story())


def test_one_read_looks_for_a_bounded_time_and_answers_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filtered_read, "SCAN_S_MAX", 0)
    monkeypatch.setattr(filtered_read, "SCAN_S_MIN", 0)

    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            for _ in range(3):
                await append(node, b"good", b"good")
            offsets = [0]
            while offsets[-1] < 6:
                part = await read(node, offsets[-1], min_bytes=1, deadline=100)
                offsets.append(next_offset(part, offsets[-1]))

            assert offsets == [0, 2, 4, 6]

    run(story())


def test_many_partitions_share_what_one_read_may_look_at() -> None:
    single, many = filtered_read.share_of(1), filtered_read.share_of(1_000)

    assert single == (filtered_read.SCAN_BYTES_MAX, filtered_read.SCAN_S_MAX)
    assert many == (filtered_read.SCAN_BYTES_MIN, filtered_read.SCAN_S_MIN)


def test_a_topic_and_views_of_it_are_read_at_once() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            for name, word in (("bads", "bad"), ("uglies", "ugly")):
                view = {"view_of": "orders", "view_where": f"value contains '{word}'"}
                await node.topics.create(SESSION, name, settings=view)
            await append(node, b"good", b"bad")
            wants = [Want(TopicPartition(t, 0), 0, LARGE) for t in ("uglies", "orders", "bads")]

            parts = await node.partitions.read(SESSION, wants, min_bytes=1, deadline=100)

            assert [[at for at, _ in shown(part)] for part in parts] == [[], [0, 1], [1]]
            assert [next_offset(part, 0) for part in parts] == [2, 2, 2]
            assert isinstance(parts[1].records, FileRange)
            assert asyncio.get_running_loop().time() < 50

    run(story())


def test_packed_batches_count_with_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filtered_read, "SCAN_BYTES_MAX", 50_000)
    monkeypatch.setattr(filtered_read, "SCAN_BYTES_MIN", 50_000)

    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            for _ in range(4):
                await append(node, b"good" * 10_000, codec=Codec.ZSTD)

            part = await read(node)

            assert next_offset(part, 0) == 2

    run(story())


def test_the_answer_is_as_large_as_was_asked_for_and_goes_on_from_there() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            for number in range(20):
                await append(node, b"bad %d" % number + b"." * 100)
            offset, offsets = 0, []
            while offset < 20:
                want = Want(ORDERS, offset, 500)
                (part,) = await node.partitions.read(SESSION, [want], filter=BAD)
                assert part.size <= 500
                offsets += shown(part)
                offset = next_offset(part, offset)

            assert [at for at, _ in offsets] == list(range(20))

    run(story())


def test_a_batch_larger_than_asked_for_is_read_all_the_same() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            await append(node, b"bad" * 1000)

            (part,) = await node.partitions.read(SESSION, [Want(ORDERS, 0, 10)], filter=BAD)

            assert [at for at, _ in shown(part)] == [0]

    run(story())


def test_a_small_answer_that_nothing_can_be_added_to_does_not_spin() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            await append(node, b"bad")
            await append(node, b"bad")
            loop = asyncio.get_running_loop()

            (part,) = await node.partitions.read(
                SESSION, [Want(ORDERS, 0, 10)], min_bytes=5000, deadline=3, filter=BAD
            )

            assert [at for at, _ in shown(part)] == [0]
            assert loop.time() >= 3

    run(story())


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_sifted_and_stay_compressed(codec: Codec) -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            await append(node, b"good" * 50, b"bad" * 50, codec=codec)

            part = await read(node)

            assert [at for at, _ in shown(part)] == [1]
            assert headers_of(part)[0].codec is codec

    run(story())


def test_transactions_keep_their_markers_and_the_list_of_those_that_were_rolled_back() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            rolled_back, kept = Writer(node, transactional_id="a"), Writer(node)
            for writer in (rolled_back, kept):
                await writer.init()
                await writer.write(ORDERS, b"bad", b"good")
            await rolled_back.end(commits=False)
            await kept.end(commits=True)
            await append(node, b"bad")

            part = await read(node, isolation=Isolation.READ_COMMITTED)
            plain = await read(node, isolation=Isolation.READ_COMMITTED, filter=None)

            assert part.aborted == tuple(plain.aborted) != ()
            markers = [header for header in headers_of(plain) if header.is_control]
            assert [header for header in headers_of(part) if header.is_control] == markers != []
            assert shown(part) == [(at, value) for at, value in shown(plain) if value == b"bad"]

    run(story())


def test_a_batch_that_cannot_be_decoded_matches_no_filter_and_has_no_time_to_live() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", settings={"message_ttl_headers": "on"})
            made = encode_batch([Record(0, NOW_MS, None, b"x" * 20)])
            broken = seal(read_header(made), b"\x7f bad ms-ttl-ms nonsense")[1]
            await node.partitions.append(SESSION, ORDERS, broken, Acks.ALL)

            filtered = await read(node)
            plain = await read(node, filter=None)

            assert [header.is_control for header in headers_of(filtered)] == [True]
            assert plain.records is not None
            assert plain.records.read()[61:] == broken[61:]

    run(story())


def test_errors_stand_in_the_slice_as_with_plain_reads() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            wants = [Want(ORDERS, 7, 10), Want(TopicPartition("nowhere", 0), 0, 10)]

            beyond, nowhere = await node.partitions.read(SESSION, wants, filter=BAD)

            assert isinstance(beyond.error, OffsetOutOfRange)
            assert isinstance(nowhere.error, UnknownTopic)

    run(story())


# -- time to live --------------------------------------------------------------------------------


def with_ttl(*lives: tuple[bytes, int | None], timestamp_ms: int = NOW_MS) -> bytes:
    return encode_batch(
        [
            Record(
                at,
                timestamp_ms,
                None,
                value,
                () if ttl_ms is None else (("ms-ttl-ms", b"%d" % ttl_ms),),
            )
            for at, (value, ttl_ms) in enumerate(lives)
        ]
    )


def test_a_record_past_its_own_time_to_live_is_not_shown() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", settings={"message_ttl_headers": "on"})
            made = with_ttl((b"short", 1_000), (b"long", 100_000), (b"ever", None))
            await node.partitions.append(SESSION, ORDERS, made, Acks.ALL)

            at_once = await read(node, filter=None)
            await asyncio.sleep(2)
            later = await read(node, filter=None)

            assert [value for _, value in shown(at_once)] == [b"short", b"long", b"ever"]
            assert [value for _, value in shown(later)] == [b"long", b"ever"]

    run(story())


def test_a_topics_time_to_live_holds_for_all_its_records_and_the_shorter_counts() -> None:
    async def story() -> None:
        settings = {"message_ttl_ms": "5000", "message_ttl_headers": "on"}
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", settings=settings)
            made = with_ttl((b"short", 1_000), (b"long", 100_000), (b"plain", None))
            await node.partitions.append(SESSION, ORDERS, made, Acks.ALL)

            await asyncio.sleep(2)
            soon = await read(node, filter=None)
            await asyncio.sleep(4)
            late = await read(node, filter=None)

            assert [value for _, value in shown(soon)] == [b"long", b"plain"]
            assert shown(late) == []
            assert next_offset(late, 0) == 3

    run(story())


def test_a_time_to_live_can_be_given_to_a_topic_that_has_records() -> None:
    async def story() -> None:
        clock = FixedClock()
        async with running_node(clock=clock) as node:
            await node.topics.create(SESSION, "orders")
            await node.partitions.append(
                SESSION, ORDERS, batch(b"old", timestamp_ms=NOW_MS - 10_000), Acks.ALL
            )
            await node.partitions.append(SESSION, ORDERS, batch(b"new"), Acks.ALL)

            await node.topics.alter(SESSION, "orders", {"message_ttl_ms": "5000"})

            assert [value for _, value in shown(await read(node, filter=None))] == [b"new"]

    run(story())


def test_a_record_without_a_time_lives_on() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", settings={"message_ttl_ms": "0"})
            await node.partitions.append(
                SESSION, ORDERS, batch(b"timeless", timestamp_ms=-1), Acks.ALL
            )

            assert [value for _, value in shown(await read(node, filter=None))] == [b"timeless"]

    run(story())


def test_views_do_not_show_what_their_base_does_not() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", settings={"message_ttl_ms": "1000"})
            await node.topics.create(
                SESSION, "errors", settings={"view_of": "orders", "view_where": "value ~ 'bad'"}
            )
            await append(node, b"bad")
            await asyncio.sleep(2)

            want = Want(TopicPartition("errors", 0), 0, LARGE)
            (part,) = await node.partitions.read(SESSION, [want])

            assert shown(part) == []
            assert next_offset(part, 0) == 1

    run(story())


def test_what_is_past_its_time_is_reclaimed_in_topics_that_are_not_compacted() -> None:
    async def story() -> None:
        async with running_node() as node:
            small = {"segment_bytes": "1024", "message_ttl_headers": "on"}
            await node.topics.create(SESSION, "orders", settings=small)
            for _ in range(20):
                made = with_ttl((b"short" * 40, 1_000), (b"ever", None))
                await node.partitions.append(SESSION, ORDERS, made, Acks.ALL)
            before = node.partitions.health(SESSION, ORDERS).log

            await asyncio.sleep(3600)

            after = node.partitions.health(SESSION, ORDERS).log
            part = await read(node, filter=None)
            assert after.size_bytes < before.size_bytes / 2
            assert (after.start_offset, after.end_offset) == (0, before.end_offset)
            assert [at for at, _ in shown(part)] == list(range(1, 40, 2))

    run(story())


def test_segments_past_the_time_of_their_topic_are_removed() -> None:
    async def story() -> None:
        async with running_node() as node:
            settings = {"message_ttl_ms": "60000", "retention_ms": "-1", "segment_bytes": "1024"}
            await node.topics.create(SESSION, "orders", settings=settings)
            for _ in range(20):
                await append(node, b"v" * 200)

            await asyncio.sleep(3600)

            health = node.partitions.health(SESSION, ORDERS).log
            assert (health.start_offset, health.end_offset) == (20, 20)

    run(story())


def test_a_compacted_topic_forgets_a_key_when_the_time_of_its_newest_value_is_over() -> None:
    async def story() -> None:
        async with running_node() as node:
            compacted = {
                "cleanup_policy": "compact",
                "segment_bytes": "1024",
                "message_ttl_headers": "on",
                "min_cleanable_dirty_ratio": "0",
                "delete_retention_ms": "60000",
            }
            await node.topics.create(SESSION, "orders", settings=compacted)

            async def put(key: bytes, *, ttl_ms: int | None = None) -> None:
                headers = () if ttl_ms is None else (("ms-ttl-ms", b"%d" % ttl_ms),)
                made = encode_batch([Record(0, NOW_MS, key, b"v" * 300, headers)])
                await node.partitions.append(SESSION, ORDERS, made, Acks.ALL)

            await put(b"a")
            await put(b"b")
            await put(b"a", ttl_ms=1_000)
            for _ in range(8):
                await put(b"filler")

            await asyncio.sleep(3600)

            left = await read(node, filter=None)
            assert 0 not in [at for at, _ in shown(left)]
            health = node.partitions.health(SESSION, ORDERS).log
            assert health.size_bytes < 4 * 400
            assert shown(left)[0][0] == 1

    run(story())
