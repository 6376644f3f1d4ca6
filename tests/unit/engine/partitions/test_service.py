"""Partitions through the engine: append with acks, read with long poll, look up, delete."""

import asyncio

import pytest

from millstream.codec.batch import read_header, seal
from millstream.codec.compression import Codec, compress
from millstream.codec.encoding import encode_batch
from millstream.codec.markers import ControlKind, encode_marker
from millstream.codec.records import Record
from millstream.config import Config, Limits
from millstream.engine.partitions.slices import (
    AtMaxTimestamp,
    AtTime,
    Earliest,
    LastRecords,
    Latest,
    OffsetAndTimestamp,
    Place,
    Want,
)
from millstream.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    NotEnoughReplicas,
    OffsetOutOfRange,
    OutOfOrderSequence,
    Overloaded,
    RequestError,
    StaleLeaderEpoch,
    UnknownLeaderEpoch,
    UnknownTopic,
)
from millstream.model import Acks, Epoch, Isolation, Position, TopicPartition
from millstream.server.node import Node
from tests.support.nodes import NOW_MS, ORDERS, SESSION, batch, running_node, values_of
from tests.support.transactions import Writer
from tests.support.virtual_loop import run


async def orders(node: Node, **settings: str) -> None:
    await node.topics.create(SESSION, "orders", settings=settings)


async def read_all(node: Node, offset: int = 0) -> list[bytes | None]:
    (part,) = await node.partitions.read(SESSION, [Want(ORDERS, offset, 2**20)])
    assert part.error is None
    return values_of(part)


def test_the_first_record_of_a_new_topic_has_offset_0() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)

            first = await node.partitions.append(SESSION, ORDERS, batch(b"a", b"b"), Acks.ALL)
            second = await node.partitions.append(SESSION, ORDERS, batch(b"c"), Acks.LEADER)

            assert (first.base_offset, first.end_offset) == (0, 2)
            assert (second.base_offset, second.end_offset) == (2, 3)

    run(story())


def test_appends_keep_their_order_in_any_order_of_awaiting() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            appends = [
                node.partitions.append(SESSION, ORDERS, batch(b"%d" % n), Acks.ALL)
                for n in range(10)
            ]

            offsets = [(await append).base_offset for append in reversed(appends)]

            assert offsets == list(reversed(range(10)))
            assert await read_all(node) == [b"%d" % n for n in range(10)]

    run(story())


def test_a_reader_sees_a_record_only_once_it_is_durable() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)

            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.LEADER)
            seen_at_once = await read_all(node)
            await asyncio.sleep(0.1)
            seen_later = await read_all(node)

            assert (seen_at_once, seen_later) == ([], [b"a"])

    run(story())


def test_a_long_poll_wakes_when_records_come_and_not_before() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            loop = asyncio.get_running_loop()

            async def write_later() -> None:
                await asyncio.sleep(3)
                await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)

            async with asyncio.TaskGroup() as group:
                group.create_task(write_later())
                started = loop.time()
                (part,) = await node.partitions.read(
                    SESSION, [Want(ORDERS, 0, 2**20)], min_bytes=1, deadline=started + 60
                )

            assert values_of(part) == [b"a"]
            assert 3 <= loop.time() - started < 3.1

    run(story())


def test_a_long_poll_ends_at_its_deadline_with_what_there_is() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            loop = asyncio.get_running_loop()
            started = loop.time()

            (part,) = await node.partitions.read(
                SESSION, [Want(ORDERS, 0, 2**20)], min_bytes=1, deadline=started + 5
            )

            assert part.records is None
            assert part.high_watermark == 0
            assert loop.time() - started == pytest.approx(5, abs=0.01)

    run(story())


def test_a_long_poll_on_a_topic_that_is_deleted_ends_with_an_error() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)

            async def delete_later() -> None:
                await asyncio.sleep(1)
                await node.topics.delete(SESSION, "orders")

            async with asyncio.TaskGroup() as group:
                group.create_task(delete_later())
                deadline = asyncio.get_running_loop().time() + 60
                (part,) = await node.partitions.read(
                    SESSION, [Want(ORDERS, 0, 2**20)], min_bytes=1, deadline=deadline
                )

            assert isinstance(part.error, UnknownTopic)

    run(story())


def test_at_least_one_batch_comes_even_over_every_limit_but_only_one() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", partitions=2)
            other = TopicPartition("orders", 1)
            for target in (ORDERS, ORDERS, other):
                await node.partitions.append(SESSION, target, batch(b"x" * 500), Acks.ALL)

            parts = await node.partitions.read(
                SESSION, [Want(ORDERS, 0, 2**20), Want(other, 0, 2**20)], bytes_max=1
            )

            assert [len(values_of(part)) for part in parts] == [1, 0]

    run(story())


def test_an_error_of_one_partition_stands_in_its_own_slice() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)

            good, beyond, gone = await node.partitions.read(
                SESSION,
                [
                    Want(ORDERS, 0, 100),
                    Want(ORDERS, 7, 100),
                    Want(TopicPartition("orders", 9), 0, 100),
                ],
            )

            assert values_of(good) == [b"a"]
            assert isinstance(beyond.error, OffsetOutOfRange)
            assert isinstance(gone.error, UnknownTopic)

    run(story())


def test_a_reader_with_another_leader_epoch_is_told_which_way_it_is_wrong() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)

            parts = await node.partitions.read(
                SESSION, [Want(ORDERS, 0, 100, leader_epoch=epoch) for epoch in (0, 1, 2)]
            )

            errors = [type(part.error) for part in parts]
            assert errors == [StaleLeaderEpoch, type(None), UnknownLeaderEpoch]

    run(story())


@pytest.mark.parametrize(
    ("data", "settings", "error"),
    [
        (b"", {}, CorruptBatch),
        (b"garbage" * 20, {}, RequestError),
        (batch(b"a")[:-1], {}, CorruptBatch),
        (batch(b"a") + b"x", {}, InvalidBatch),
        (batch(b"a") + batch(b"b"), {}, RequestError),
        (bytes([*batch(b"a")[:-1], 1]), {}, CorruptBatch),
        (batch(b"a" * 3000), {"max_message_bytes": "2000"}, BatchTooLarge),
        (batch(b"a" * 3000), {"segment_bytes": "2000"}, BatchTooLarge),
        (batch(b"a"), {"cleanup_policy": "compact"}, InvalidBatch),
        (batch(b"a", timestamp_ms=NOW_MS + 7_200_000), {}, InvalidTimestamp),
        (
            batch(b"a", timestamp_ms=NOW_MS - 1000),
            {"message_timestamp_before_max_ms": "10"},
            InvalidTimestamp,
        ),
        (
            encode_marker(
                ControlKind.COMMIT,
                producer_id=1,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=NOW_MS,
            ),
            {},
            InvalidBatch,
        ),
    ],
)
def test_a_bad_batch_is_refused_and_leaves_no_trace(
    data: bytes, settings: dict[str, str], error: type[RequestError]
) -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node, **settings)
            before = node.partitions.health(SESSION, ORDERS)

            with pytest.raises(error):
                node.partitions.append(SESSION, ORDERS, data, Acks.ALL)

            assert node.partitions.health(SESSION, ORDERS) == before

    run(story())


def forged(*, codec: Codec = Codec.NONE, payload: bytes, count: int = 2) -> bytes:
    """A batch whose header and checksum are right, over records that are not."""
    header = read_header(
        encode_batch([Record(at, NOW_MS, None, b"x") for at in range(count)], codec=codec)
    )
    return seal(header, payload)[1]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(forged(payload=b"garbage" * 4), id="garbage"),
        pytest.param(forged(payload=batch(b"a" * 20)[61:]), id="fewer than the header says"),
        pytest.param(
            forged(payload=batch(b"a", b"b", b"c")[61:], count=2), id="more than the header says"
        ),
        pytest.param(
            forged(codec=Codec.GZIP, payload=compress(Codec.GZIP, bytes(80 * 2**20))),  # type: ignore[arg-type]
            id="a decompression bomb",
        ),
    ],
)
def test_records_that_contradict_their_header_are_refused_where_the_topic_asks_for_it(
    data: bytes,
) -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node, message_validation_type="records")
            await node.partitions.append(SESSION, ORDERS, batch(b"good"), Acks.ALL)

            with pytest.raises(RequestError):
                await node.partitions.append(SESSION, ORDERS, data, Acks.ALL)

            assert await read_all(node) == [b"good"]

    run(story())


def test_a_duplicate_is_answered_with_its_first_offset_and_a_gap_is_refused() -> None:
    def numbered(sequence: int) -> bytes:
        return encode_batch(
            [Record(0, NOW_MS, None, b"%d" % sequence)],
            producer_id=5,
            producer_epoch=0,
            base_sequence=sequence,
        )

    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            append = node.partitions.append

            first = await append(SESSION, ORDERS, numbered(0), Acks.ALL)
            await append(SESSION, ORDERS, numbered(1), Acks.ALL)
            again = await append(SESSION, ORDERS, numbered(0), Acks.ALL)
            with pytest.raises(OutOfOrderSequence):
                append(SESSION, ORDERS, numbered(5), Acks.ALL)

            assert again.base_offset == first.base_offset == 0
            assert await read_all(node) == [b"0", b"1"]

    run(story())


def test_the_brokers_time_is_stamped_where_the_topic_asks_for_it() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node, message_timestamp_type="LogAppendTime")

            appended = await node.partitions.append(
                SESSION, ORDERS, batch(b"a", timestamp_ms=5), Acks.ALL
            )
            position = await node.partitions.find(SESSION, ORDERS, AtTime(NOW_MS))

            assert appended.log_append_time_ms >= NOW_MS
            assert position == OffsetAndTimestamp(0, appended.log_append_time_ms, 1)

    run(story())


def test_a_topic_with_its_own_compression_stores_in_it() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node, compression_type="zstd")
            await node.partitions.append(SESSION, ORDERS, batch(b"a", b"b"), Acks.ALL)

            (part,) = await node.partitions.read(SESSION, [Want(ORDERS, 0, 2**20)])

            assert part.records is not None
            assert part.records.read()[22] & 7 == Codec.ZSTD
            assert values_of(part) == [b"a", b"b"]

    run(story())


@pytest.mark.parametrize(
    ("codec", "low", "high"), [("gzip", "1", "9"), ("lz4", "9", "12"), ("zstd", "-5", "19")]
)
def test_a_topic_compresses_at_its_own_level(codec: str, low: str, high: str) -> None:
    async def size_at(level: str) -> int:
        async with running_node() as node:
            level_name = f"compression_{codec}_level"
            await orders(node, **{"compression_type": codec, level_name: level})
            text = b" ".join(b"%d" % (at * at % 9973) for at in range(3_000))
            await node.partitions.append(SESSION, ORDERS, batch(text), Acks.ALL)

            (part,) = await node.partitions.read(SESSION, [Want(ORDERS, 0, 2**20)])

            assert values_of(part) == [text]
            assert part.records is not None
            return len(part.records.read())

    async def story() -> None:
        assert await size_at(high) < await size_at(low)

    run(story())


def test_who_was_told_that_a_record_is_written_finds_it_at_the_end() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)

            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.LEADER)
            position = await node.partitions.find(SESSION, ORDERS, Latest())

            assert position is not None
            assert position.offset == 1

    run(story())


def test_offsets_are_found_by_place_and_by_time() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            for at, timestamp_ms in enumerate((100, 300, 200)):
                data = batch(b"%d" % at, timestamp_ms=NOW_MS - 1000 + timestamp_ms)
                await node.partitions.append(SESSION, ORDERS, data, Acks.ALL)

            async def find(place: Place) -> object:
                position = await node.partitions.find(SESSION, ORDERS, place)
                return None if position is None else (position.offset, position.timestamp_ms)

            assert await find(Earliest()) == (0, -1)
            assert await find(Latest()) == (3, -1)
            assert await find(AtTime(0)) == (0, NOW_MS - 900)
            assert await find(AtTime(NOW_MS - 850)) == (1, NOW_MS - 700)
            assert await find(AtTime(NOW_MS)) is None
            assert await find(AtMaxTimestamp()) == (1, NOW_MS - 700)
            assert await find(LastRecords(2)) == (1, -1)

    run(story())


def test_deleted_records_are_out_of_range_and_the_rest_stays() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            for n in range(5):
                await node.partitions.append(SESSION, ORDERS, batch(b"%d" % n), Acks.ALL)

            start = node.partitions.delete_records(SESSION, ORDERS, 3)
            (below,) = await node.partitions.read(SESSION, [Want(ORDERS, 2, 100)])

            assert start == 3
            assert isinstance(below.error, OffsetOutOfRange)
            assert await read_all(node, 3) == [b"3", b"4"]
            with pytest.raises(OffsetOutOfRange):
                node.partitions.delete_records(SESSION, ORDERS, 6)
            assert node.partitions.delete_records(SESSION, ORDERS) == 5

    run(story())


def test_too_few_replicas_in_step_refuse_acks_all_and_nothing_else() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node, min_insync_replicas="2")

            with pytest.raises(NotEnoughReplicas):
                node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)
            appended = await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.LEADER)

            assert appended.base_offset == 0

    run(story())


def test_waiting_appends_are_bounded() -> None:
    async def story() -> None:
        config = Config(limits=Limits(append_waiters_max=3))
        async with running_node(config) as node:
            await orders(node)

            appends = [
                node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL) for _ in range(4)
            ]
            outcomes = await asyncio.gather(*appends, return_exceptions=True)

            assert [isinstance(o, Overloaded) for o in outcomes] == [False, False, False, True]

    run(story())


def test_read_committed_stops_at_an_open_transaction() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            await node.partitions.append(SESSION, ORDERS, batch(b"before"), Acks.ALL)
            writer = Writer(node)
            await writer.init()
            await writer.write(ORDERS, b"open")
            await node.partitions.append(SESSION, ORDERS, batch(b"after"), Acks.ALL)

            (committed,) = await node.partitions.read(
                SESSION, [Want(ORDERS, 0, 2**20)], isolation=Isolation.READ_COMMITTED
            )

            assert values_of(committed) == [b"before"]
            assert committed.last_stable_offset == 1
            assert committed.high_watermark == 3
            assert await read_all(node) == [b"before", b"open", b"after"]

    run(story())


def test_epochs_end_where_the_next_one_starts() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)

            assert node.partitions.epoch_end(SESSION, ORDERS, Epoch(1)) == Position(Epoch(1), 1)
            assert node.partitions.epoch_end(SESSION, ORDERS, Epoch(2)) is None

    run(story())
