"""What becomes of batches whose records ask for something by header."""

import asyncio
from typing import Any

import pytest

from millstream.codec.compression import Codec
from millstream.codec.records import STEP_BYTES, Record
from millstream.config import Config, Limits
from millstream.engine.partitions.slices import Want
from millstream.engine.produce.message_ids import STEP_IDS
from millstream.engine.produce.split import STEP_RECORDS
from millstream.errors import BatchTooLarge, InvalidBatch, OutOfOrderSequence, Overloaded
from millstream.model import Acks, Producer, TopicPartition
from millstream.names import DELAYED_TOPIC
from millstream.settings import Switch
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import NOW_MS, ORDERS, SESSION, batch, values_of
from tests.support.queues import (
    Message,
    batch_of,
    found_in,
    message,
    running_orders,
    until_count,
    values_in,
)
from tests.support.transactions import Writer, running_transactions
from tests.support.virtual_loop import run

ME = Producer(7, 0)


def due_of(record: Record) -> int:
    return int(dict(record.headers)["ms-deliver-at"] or b"")


# -- delayed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_a_delayed_record_enters_its_topic_when_due(codec: Codec) -> None:
    async def story() -> None:
        async with running_orders() as node:
            sent = batch_of(message(b"later", delay_ms=5_000), message(b"now"), codec=codec)
            appended = await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            taken_s = asyncio.get_running_loop().time()
            assert appended.delayed == {0: "orders~0"}
            assert await values_in(node) == [b"now"]

            while len(records := await found_in(node)) < 2:
                await asyncio.sleep(0.01)

            late_ms = (asyncio.get_running_loop().time() - taken_s) * 1000 - 5_000
            assert -50 <= late_ms <= 50
            assert [record.value for record in records] == [b"now", b"later"]
            assert records[1].timestamp == due_of(records[1]) >= NOW_MS + 5_000

    run(story())


def test_records_are_delivered_by_time_not_by_arrival() -> None:
    async def story() -> None:
        async with running_orders() as node:
            for value, delay_ms in ((b"c", 3_000), (b"a", 1_000), (b"b", 2_000), (b"b2", 2_000)):
                sent = batch_of(message(value, delay_ms=delay_ms))
                await node.partitions.append(SESSION, ORDERS, sent, Acks.LEADER)

            records = await until_count(node, 4)

            assert [record.value for record in records] == [b"a", b"b", b"b2", b"c"]

    run(story())


def test_what_is_due_already_is_written_as_it_is() -> None:
    async def story() -> None:
        async with running_orders() as node:
            past = message(b"past", deliver_at=NOW_MS - 1)
            appended = await node.partitions.append(
                SESSION, ORDERS, batch_of(past, message(b"0", delay_ms=0)), Acks.ALL
            )

            assert (appended.base_offset, appended.delayed) == (0, {})
            assert (await found_in(node))[0].headers == past.headers
            assert DELAYED_TOPIC not in [topic.name for topic in node.topics.list(SESSION)]

    run(story())


def test_only_a_delayed_batch_has_no_offset_yet() -> None:
    async def story() -> None:
        async with running_orders() as node:
            sent = batch_of(message(b"x", delay_ms=1_000))
            appended = await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)

            assert appended.base_offset == -1
            assert node.partitions.health(SESSION, ORDERS).log.end_offset == 0

    run(story())


def test_later_batches_do_not_overtake_one_that_waits_for_the_books() -> None:
    async def story() -> None:
        async with running_orders() as node:
            mixed = batch_of(message(b"1", delay_ms=60_000), message(b"2"))
            writing = [
                node.partitions.append(SESSION, ORDERS, data, Acks.ALL)
                for data in (batch(b"0"), mixed, batch(b"3"), batch(b"4"))
            ]
            outcomes = await asyncio.gather(*writing)

            assert [outcome.base_offset for outcome in outcomes] == [0, 1, 3, 4]
            assert await values_in(node) == [b"0", b"2", b"3", b"4"]

    run(story())


def test_the_line_of_waiting_batches_is_bounded() -> None:
    async def story() -> None:
        config = Config(limits=Limits(intake_queued_batches_max=2))
        async with running_orders(config) as node:
            delayed = batch_of(message(b"x", delay_ms=1_000))
            waiting = [
                node.partitions.append(SESSION, ORDERS, data, Acks.ALL)
                for data in (delayed, batch(b"1"))
            ]
            with pytest.raises(Overloaded):
                node.partitions.append(SESSION, ORDERS, batch(b"2"), Acks.ALL)
            await asyncio.gather(*waiting)
            await node.partitions.append(SESSION, ORDERS, batch(b"3"), Acks.ALL)

            assert await values_in(node) == [b"1", b"3"]

    run(story())


def test_others_have_their_turn_while_a_long_batch_is_delayed() -> None:
    async def story() -> None:
        async with running_orders() as node:
            many = batch_of(*[message(b"x", delay_ms=60_000)] * 2_000)
            writing = node.partitions.append(SESSION, ORDERS, many, Acks.LEADER)
            turns = 0
            while not writing.done():
                await asyncio.sleep(0.00001)
                turns += 1

            assert turns > 2_000 / STEP_RECORDS
            assert len(writing.result().delayed) == 2_000

    run(story())


def test_there_are_no_more_delayed_records_than_allowed() -> None:
    async def story() -> None:
        config = Config(limits=Limits(delayed_records_max=3))
        async with running_orders(config) as node:
            second = batch_of(*[message(b"x", delay_ms=1_000)] * 2)
            await node.partitions.append(SESSION, ORDERS, second, Acks.ALL)
            with pytest.raises(Overloaded, match="2 records are delayed"):
                node.partitions.append(SESSION, ORDERS, second, Acks.ALL)

            await until_count(node, 2)
            await node.partitions.append(SESSION, ORDERS, second, Acks.ALL)

    run(story())


def test_delayed_records_go_to_no_more_partitions_than_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millstream.engine.delayed.shard.PLACES_MAX", 2)

    async def story() -> None:
        async with running_orders(Config(delayed_partitions=1)) as node:
            await node.topics.create(SESSION, "many", partitions=3)
            batch = batch_of(message(b"x", delay_ms=1_000))
            targets = [TopicPartition("many", partition) for partition in range(3)]
            for target in targets[:2]:
                await node.partitions.append(SESSION, target, batch, Acks.ALL)

            with pytest.raises(Overloaded, match="2 partitions had delayed records"):
                await node.partitions.append(SESSION, targets[2], batch, Acks.ALL)
            await node.partitions.append(SESSION, targets[0], batch, Acks.ALL)
            await node.partitions.append(SESSION, targets[2], batch_of(message(b"x")), Acks.ALL)

    run(story())


def test_a_record_too_large_to_be_delivered_is_refused_at_once() -> None:
    async def story() -> None:
        async with running_orders(segment_bytes="4096", max_message_bytes="100000") as node:
            large = batch_of(message(b"z" * 20_000, delay_ms=1_000), codec=Codec.ZSTD)
            with pytest.raises(BatchTooLarge):
                await node.partitions.append(SESSION, ORDERS, large, Acks.ALL)

            many = batch_of(*[message(b"z" * 500, delay_ms=1_000)] * 40, codec=Codec.ZSTD)
            await node.partitions.append(SESSION, ORDERS, many, Acks.ALL)
            await until_count(node, 40)

    run(story())


def test_a_bad_header_refuses_the_whole_batch() -> None:
    async def story() -> None:
        async with running_orders() as node:
            bad = batch_of(message(b"fine"), message(b"x", delay_ms=b"soon"))
            with pytest.raises(InvalidBatch, match="ms-delay-ms"):
                node.partitions.append(SESSION, ORDERS, bad, Acks.ALL)

            assert node.partitions.health(SESSION, ORDERS).log.end_offset == 0

    run(story())


def test_a_topic_that_stamps_records_stamps_delayed_ones_when_they_enter() -> None:
    async def story() -> None:
        settings: dict[str, Any] = {
            "message_timestamp_type": "LogAppendTime",
            "compression_type": "gzip",
        }
        async with running_orders(**settings) as node:
            sent = batch_of(message(b"x", delay_ms=1_000))
            await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            (record,) = await until_count(node, 1)

            assert due_of(record) <= record.timestamp <= due_of(record) + 100
            (part,) = await node.partitions.read(SESSION, [Want(ORDERS, 0, 2**20)])
            assert part.records is not None
            assert part.records.read()[22] & 7 == Codec.GZIP

    run(story())


def test_a_delayed_record_in_a_transaction_is_refused() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            producer = await writer.init()
            await writer.add(ORDERS)
            sent = batch_of(
                message(b"x", delay_ms=5), producer=producer, base_sequence=0, is_transactional=True
            )
            with pytest.raises(InvalidBatch, match="in a transaction cannot be delayed"):
                node.partitions.append(
                    SESSION, ORDERS, sent, Acks.ALL, transactional_id=writer.transactional_id
                )

    run(story())


def test_a_copy_of_a_record_that_was_delayed_is_taken_in_a_transaction() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            writer = Writer(node)
            producer = await writer.init()
            await writer.add(ORDERS)
            sent = batch_of(
                message(b"x", deliver_at=1),
                producer=producer,
                base_sequence=0,
                is_transactional=True,
            )

            appended = await node.partitions.append(
                SESSION, ORDERS, sent, Acks.ALL, transactional_id=writer.transactional_id
            )

            assert (appended.base_offset, appended.delayed) == (0, {})

    run(story())


def test_a_topic_may_take_records_as_they_are() -> None:
    async def story() -> None:
        async with running_orders(message_queue_headers="off") as node:
            sent = [message(b"x", delay_ms=b"soon"), message(b"y", message_id=b"a")]
            for _ in range(2):
                await node.partitions.append(SESSION, ORDERS, batch_of(*sent), Acks.ALL)

            assert await values_in(node) == [b"x", b"y", b"x", b"y"]

    run(story())


# -- idempotent producers --------------------------------------------------------------------------


def test_an_idempotent_producer_counts_on_over_records_that_left_its_batch() -> None:
    async def story() -> None:
        async with running_orders() as node:
            for base_sequence, messages in (
                (0, [message(b"later", delay_ms=1_000), message(b"a", message_id=b"1")]),
                (2, [message(b"later", delay_ms=1_000)]),
                (3, [message(b"again", message_id=b"1")]),
                (4, [message(b"b")]),
            ):
                sent = batch_of(*messages, producer=ME, base_sequence=base_sequence)
                await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            gap = batch_of(message(b"x", delay_ms=1), producer=ME, base_sequence=7)
            with pytest.raises(OutOfOrderSequence):
                await node.partitions.append(SESSION, ORDERS, gap, Acks.ALL)

            records = await until_count(node, 4)

            assert [record.value for record in records] == [b"a", b"b", b"later", b"later"]
            assert [record.offset for record in records] == [1, 4, 5, 6]

    run(story())


def test_a_batch_sent_twice_by_an_idempotent_producer_is_delayed_once() -> None:
    async def story() -> None:
        async with running_orders() as node:
            sent = batch_of(
                message(b"later", delay_ms=1_000), message(b"now"), producer=ME, base_sequence=0
            )
            first = await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            again = await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)

            assert again.base_offset == first.base_offset == 0
            assert [record.value for record in await until_count(node, 2)] == [b"now", b"later"]

    run(story())


def test_of_an_idempotent_batch_the_log_knows_nothing_before_the_books_are_committed() -> None:
    async def story() -> None:
        async with running_orders() as node:
            replica = node.hub.find(node.topics.describe(SESSION, "orders").log(0))
            await node.partitions.append(
                SESSION, ORDERS, batch_of(message(b"x", delay_ms=60_000)), Acks.ALL
            )
            books = node._engine.delayed_scheduler.find_now("orders")
            sent = batch_of(message(b"y", delay_ms=60_000), producer=ME, base_sequence=0)
            writing = node.partitions.append(SESSION, ORDERS, sent, Acks.LEADER)
            while replica.log.end_offset == 0:
                assert not writing.done()
                await asyncio.sleep(0.0001)

            assert len(books.due_heap) == 2

    run(story())


@pytest.mark.parametrize("wait_s", [0, 60])
def test_what_a_crash_left_in_the_books_only_is_not_delayed_again(wait_s: float) -> None:
    """The books are written before the log: here the power goes in between."""

    async def story() -> None:
        files = MemoryFiles()
        late = message(b"late", deliver_at=NOW_MS + 30_000)
        sent = batch_of(late, message(b"now"), producer=ME, base_sequence=0)
        async with running_orders(files=files) as node:
            await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            log = node.hub.find(node.topics.describe(SESSION, "orders").log(0)).log
            log.truncate(0)

            await asyncio.sleep(wait_s)
            again = await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)

            assert again.delayed == {0: "orders~0"}

    run(story())


# -- message ids -----------------------------------------------------------------------------------


def test_a_record_with_a_known_id_is_taken_once_and_said_to_be_a_duplicate() -> None:
    async def story() -> None:
        async with running_orders() as node:
            await node.partitions.append(SESSION, ORDERS, batch(b"0"), Acks.ALL)
            first = await node.partitions.append(
                SESSION, ORDERS, batch_of(message(b"1", message_id=b"a")), Acks.ALL
            )
            again = await node.partitions.append(
                SESSION, ORDERS, batch_of(message(b"2", message_id=b"a")), Acks.ALL
            )

            assert (first.base_offset, first.duplicates) == (1, {})
            assert (again.base_offset, again.duplicates) == (1, {0: 1})
            assert await values_in(node) == [b"0", b"1"]

    run(story())


@pytest.mark.parametrize("codec", list(Codec))
def test_the_rest_of_a_batch_is_written_and_leaves_gaps(codec: Codec) -> None:
    async def story() -> None:
        async with running_orders() as node:
            batch = batch_of(message(b"1", message_id=b"a"))
            await node.partitions.append(SESSION, ORDERS, batch, Acks.ALL)
            mixed = batch_of(
                message(b"1 again", message_id=b"a"),
                message(b"2", message_id=b"b"),
                message(b"2 again", message_id=b"b"),
                message(b"3"),
                codec=codec,
            )
            appended = await node.partitions.append(SESSION, ORDERS, mixed, Acks.ALL)

            assert (appended.base_offset, appended.duplicates) == (1, {0: 0, 2: 2})
            assert [(r.offset, r.value) for r in await found_in(node)] == [
                (0, b"1"),
                (2, b"2"),
                (4, b"3"),
            ]

    run(story())


def test_an_id_is_known_in_all_partitions_of_its_topic() -> None:
    async def story() -> None:
        async with running_orders(partitions=2) as node:
            sent = batch_of(message(b"1", message_id=b"a"))
            await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            other = TopicPartition("orders", 1)
            appended = await node.partitions.append(SESSION, other, sent, Acks.ALL)

            assert (appended.base_offset, appended.duplicates) == (-1, {0: -1})
            assert await values_in(node, other) == []

    run(story())


def test_the_window_is_bounded_by_time_and_by_count() -> None:
    async def story() -> None:
        settings: dict[str, Any] = {"message_id_window_ms": "1000", "message_id_count_max": "2"}
        async with running_orders(**settings) as node:

            async def is_new(message_id: bytes) -> bool:
                sent = batch_of(message(b"x", message_id=message_id))
                appended = await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
                return not appended.duplicates

            assert await is_new(b"a")
            assert await is_new(b"b")
            assert not await is_new(b"a")
            assert await is_new(b"c")
            assert await is_new(b"a")  # Two others came after it.
            await asyncio.sleep(0.9)
            assert not await is_new(b"a")
            await asyncio.sleep(0.2)
            assert await is_new(b"a")  # Its time was over; the duplicate did not prolong it.

    run(story())


@pytest.mark.parametrize("setting", ["message_id_window_ms", "message_id_count_max"])
def test_without_a_window_ids_do_not_count(setting: str) -> None:
    async def story() -> None:
        async with running_orders(**{setting: "0"}) as node:  # type: ignore[arg-type]
            sent = batch_of(message(b"x", message_id=b"a"))
            for _ in range(2):
                await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)

            assert await values_in(node) == [b"x", b"x"]

    run(story())


def test_ids_survive_a_restart() -> None:
    async def story() -> None:
        files = MemoryFiles()
        sent = [batch_of(message(b"x%d" % at, message_id=b"%d" % at)) for at in range(3)]
        async with running_orders(files=files) as node:
            for data in sent[:2]:
                await node.partitions.append(SESSION, ORDERS, data, Acks.ALL)
        async with running_orders(files=files) as node:
            outcomes = [
                await node.partitions.append(SESSION, ORDERS, data, Acks.ALL)
                for data in reversed(sent)
            ]

            assert [outcome.duplicates for outcome in outcomes] == [{}, {0: 1}, {0: 0}]
            assert await values_in(node) == [b"x0", b"x1", b"x2"]

    run(story())


def test_the_id_of_a_delayed_record_counts_from_its_arrival_also_after_a_restart() -> None:
    async def story() -> None:
        files = MemoryFiles()
        sent = batch_of(message(b"x", message_id=b"a", delay_ms=10_000))
        async with running_orders(files=files) as node:
            await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            again = await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            assert (again.base_offset, again.duplicates, again.delayed) == (-1, {0: -1}, {})
        async with running_orders(files=files) as node:
            again = await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            assert again.duplicates == {0: -1}
            await until_count(node, 1)
            again = await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            assert again.duplicates == {0: 0}
            await until_count(node, 1)

    run(story())


# -- large batches ---------------------------------------------------------------------------------


def many(count: int, *, codec: Codec = Codec.NONE) -> bytes:
    return batch_of(*[message(b"x", message_id=b"%d" % at) for at in range(count)], codec=codec)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_others_have_their_turn_while_a_large_batch_is_looked_into(codec: Codec) -> None:
    async def story() -> None:
        async with running_orders() as node:
            await node.partitions.append(SESSION, ORDERS, many(1), Acks.ALL)
            turns = 0
            writing = node.partitions.append(SESSION, ORDERS, many(5_000, codec=codec), Acks.ALL)
            last = node.partitions.append(SESSION, ORDERS, batch(b"last"), Acks.ALL)
            while not writing.done():
                turns += 1
                await asyncio.sleep(0.00001)

            # Looked into, compared, remembered and, without its first record, written.
            assert (
                turns > 2 * 5_000 * len(b"_ms-message-id0000x") / STEP_BYTES + 2 * 5_000 / STEP_IDS
            )
            assert (await writing).duplicates == {0: 0}
            assert (await last).base_offset == 5_001

    run(story())


def test_large_batches_with_the_same_ids_are_taken_once_wherever_they_go() -> None:
    async def story() -> None:
        async with running_orders(partitions=3) as node:
            targets = [TopicPartition("orders", partition) for partition in range(3)]
            large = many(2_000)
            outcomes = await asyncio.gather(
                *[node.partitions.append(SESSION, target, large, Acks.ALL) for target in targets],
                *[node.partitions.append(SESSION, target, many(1), Acks.ALL) for target in targets],
            )

            sizes = [len(await values_in(node, target)) for target in targets]
            assert sorted(sizes) == [0, 0, 2_000]
            assert sorted(len(outcome.duplicates) for outcome in outcomes) == [
                0,
                1,
                1,
                1,
                2_000,
                2_000,
            ]

    run(story())


def test_a_bad_header_in_a_large_batch_refuses_it_and_nothing_behind_it() -> None:
    async def story() -> None:
        async with running_orders() as node:
            messages = [message(b"x", message_id=b"%d" % at) for at in range(3_000)]
            bad = batch_of(*messages, message(b"y", ttl_ms=b"long"))
            writing = node.partitions.append(SESSION, ORDERS, bad, Acks.ALL)
            behind = node.partitions.append(SESSION, ORDERS, many(1), Acks.ALL)

            with pytest.raises(InvalidBatch, match="record 3000 has ms-ttl-ms"):
                await writing
            assert (await behind).duplicates == {}
            assert await values_in(node) == [b"x"]

    run(story())


# -- time to live ----------------------------------------------------------------------------------


def test_the_first_time_to_live_switches_the_topic_before_it_is_written() -> None:
    async def story() -> None:
        async with running_orders() as node:
            writing = node.partitions.append(
                SESSION, ORDERS, batch_of(message(b"x", ttl_ms=60_000)), Acks.ALL
            )
            replica = node.hub.find(node.topics.describe(SESSION, "orders").log(0))
            assert replica.log.end_offset == 0

            await writing

            assert replica.log.settings.message_ttl_headers is Switch.ON
            assert node.topics.describe(SESSION, "orders").overrides == {
                "message_ttl_headers": "on"
            }
            (part,) = await node.partitions.read(SESSION, [Want(ORDERS, 0, 2**20)])
            assert values_of(part) == [b"x"]

    run(story())


def test_a_delayed_record_lives_from_when_it_is_due() -> None:
    async def story() -> None:
        async with running_orders() as node:
            sent = batch_of(Message(b"x", message(b"", delay_ms=5_000, ttl_ms=3_000).headers))
            await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
            await asyncio.sleep(6)
            assert await values_in(node) == [b"x"]

            await asyncio.sleep(3)
            assert await values_in(node) == []

    run(story())
