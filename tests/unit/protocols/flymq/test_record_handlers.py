"""Records through the FlyMQ door: what is produced, what is read, and what is searched for."""

import asyncio
from typing import Literal

import pytest

from millstream.codec.records import Record, build
from millstream.config import Config, Limits
from millstream.engine.partitioning import murmur2
from millstream.model import Acks, TopicPartition
from millstream.protocols.flymq import bodies, records
from millstream.protocols.flymq.context import SCANS_KEPT_MAX
from millstream.protocols.flymq.records import COUNT_DEFAULT
from millstream.protocols.flymq.wire import Opcode
from tests.support.flymq import Refused, asking, reply_in
from tests.support.nodes import NOW_MS, SESSION
from tests.support.virtual_loop import run
from tests.unit.protocols.flymq.asking import Connection, Door, open_door


async def append(door: Door, topic: str, *values: bytes, partition: int = 0) -> None:
    """As a Kafka client does: many records in a batch."""
    batch = build([Record(at, NOW_MS, None, value) for at, value in enumerate(values)])
    target = TopicPartition(topic, partition)
    await door.node.partitions.append(SESSION, target, batch, Acks.ALL)


# -- producing -----------------------------------------------------------------------------------


def test_a_produce_is_told_where_its_record_went() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()

            first = await client.produce("orders", b"v0")
            second = await client.produce("orders", b"", key=b"key")

            assert first._replace(timestamp_ms=0) == ("orders", 0, 0, 0, -1, 2)
            assert second._replace(timestamp_ms=0) == ("orders", 0, 1, 0, 3, 0)
            assert first.timestamp_ms >= NOW_MS
            fetched = await client.fetch("orders")
            assert fetched == (2, 2, ((0, b"", b"v0"), (1, b"key", b"")))

    run(main())


def test_the_partition_of_a_produce_is_honoured() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            await client.create("orders", 3)

            assert (await client.produce("orders", b"x", partition=2)).partition == 2
            with pytest.raises(Refused, match="orders-3"):
                await client.produce("orders", b"x", partition=3)

    run(main())


def test_a_key_goes_where_kafka_puts_it_and_records_without_take_turns() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            await client.create("orders", 3)

            keyed = {(await client.produce("orders", b"x", key=b"ann")).partition for _ in "abc"}
            others = [(await client.produce("orders", b"x")).partition for _ in "abc"]

            assert keyed == {(murmur2(b"ann") & 0x7FFFFFFF) % 3}
            assert sorted(others) == [0, 1, 2]

    run(main())


def test_a_topic_is_not_made_by_a_produce_where_that_is_switched_off() -> None:
    async def main() -> None:
        async with open_door(Config(auto_create_topics=False)) as door:
            with pytest.raises(Refused, match="there is no topic or partition orders"):
                await door.connect().produce("orders", b"x")

    run(main())


def test_a_record_that_is_too_large_is_refused_and_the_next_one_taken() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            with pytest.raises(Refused, match="at most"):
                await client.produce("orders", bytes(2**21))

            assert (await client.produce("orders", b"x")).offset == 0

    run(main())


# -- reading -------------------------------------------------------------------------------------


def test_a_fetch_says_where_to_go_on_and_brings_ten_unless_told() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            await client.create("orders")
            await append(door, "orders", *(b"%d" % number for number in range(25)))

            first = await client.fetch("orders", count=0)
            last = await client.fetch("orders", 20, count=100)

            assert (first.record_count, first.next_offset) == (COUNT_DEFAULT, 10)
            assert [one.value for one in last.records] == [b"20", b"21", b"22", b"23", b"24"]
            assert last.next_offset == 25

    run(main())


@pytest.mark.parametrize("durability", ["sync", "write"])
@pytest.mark.parametrize("where", ["", "v"])
def test_a_fetch_sent_along_with_a_produce_finds_its_record(
    durability: Literal["sync", "write"], where: str
) -> None:
    async def main() -> None:
        async with open_door(Config(durability=durability)) as door:
            client = door.connect()
            await client.create("orders")
            frames = asking(Opcode.PRODUCE, bodies.Produce("orders", b"", b"v0", -1))
            frames += asking(Opcode.FETCH, bodies.Fetch("orders", 0, 0, 10, where))

            produced, fetched = await client.ask_all(frames)

            assert produced[2] == Opcode.PRODUCE
            assert reply_in(fetched, Opcode.FETCH) == (1, 1, ((0, b"", b"v0"),))

    run(main())


@pytest.mark.parametrize("offset", [3, 4, 1_000])
def test_at_the_end_and_behind_it_there_is_nothing_yet(offset: int) -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            for value in (b"a", b"b", b"c"):
                await client.produce("orders", value)

            assert await client.fetch("orders", offset) == (0, offset, ())

    run(main())


def test_before_the_start_of_the_log_is_its_start() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            for value in (b"a", b"b", b"c"):
                await client.produce("orders", value)
            door.node.partitions.delete_records(SESSION, TopicPartition("orders", 0), 2)

            assert await client.fetch("orders", 0) == (1, 3, ((2, b"", b"c"),))

    run(main())


def test_a_reply_stays_small_enough_for_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(records, "REPLY_BYTES_MAX", 1_000)
        async with open_door() as door:
            client = door.connect()
            await client.create("orders")
            await append(door, "orders", *(bytes(400) for _ in range(5)))

            first = await client.fetch("orders")
            assert (first.record_count, first.next_offset) == (2, 2)
            assert (await client.fetch("orders", 4)).record_count == 1

    run(main())


def test_a_record_larger_than_a_reply_should_be_comes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        monkeypatch.setattr(records, "REPLY_BYTES_MAX", 1_000)
        async with open_door() as door:
            client = door.connect()
            await client.create("orders")
            await append(door, "orders", bytes(5_000), b"x")

            assert (await client.fetch("orders")).record_count == 1

    run(main())


def test_a_record_is_consumed_by_its_offset() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            await client.produce("orders", b"a")
            await client.produce("orders", b"b", key=b"k")

            for opcode in (Opcode.CONSUME, Opcode.CONSUME_ZERO_COPY):
                request = bodies.Consume("orders", 0, 1)
                assert await client.ask(opcode, request, bodies.Consumed) == (b"k", b"b")
            with pytest.raises(Refused, match="EOF: orders-0 ends at offset 2"):
                await client.ask(Opcode.CONSUME, bodies.Consume("orders", 0, 2), bodies.Consumed)

    run(main())


def test_where_no_record_lies_the_next_one_is_named() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            for value in (b"a", b"b", b"c"):
                await client.produce("orders", value)
            door.node.partitions.delete_records(SESSION, TopicPartition("orders", 0), 2)

            with pytest.raises(Refused, match="no record at offset 0, the next is at 2"):
                await client.ask(Opcode.CONSUME, bodies.Consume("orders", 0, 0), bodies.Consumed)

    run(main())


@pytest.mark.parametrize("opcode", [Opcode.FETCH, Opcode.FETCH_BINARY])
def test_what_does_not_exist_cannot_be_read(opcode: Opcode) -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            await client.create("orders")

            for topic, partition in (("nothing", 0), ("orders", 1), ("orders", -1)):
                with pytest.raises(Refused, match="there is no topic or partition"):
                    await client.ask(opcode, bodies.Fetch(topic, partition, 0, 10), bodies.Fetched)

    run(main())


def test_an_offset_that_no_log_can_have_is_refused() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            await client.produce("orders", b"a")

            with pytest.raises(Refused, match="offset 9223372036854775808, at most"):
                await client.fetch("orders", 2**63)

    run(main())


# -- searching -----------------------------------------------------------------------------------


def test_a_filter_is_searched_for_until_it_matches() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            await client.create("logs")
            for _ in range(5):
                await append(door, "logs", *[b"quiet"] * 1_000)
            await append(door, "logs", b"an ERROR", b"quiet", b"another error")

            found = await client.fetch("logs", where="error")

            assert found == (
                2,
                5_003,
                ((5_000, b"", b"an ERROR"), (5_002, b"", b"another error")),
            )

    run(main())


def test_a_filter_that_matches_nothing_says_how_far_it_looked() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            await client.produce("logs", b"quiet")

            assert await client.fetch("logs", where="error") == (0, 1, ())

    run(main())


def test_a_search_that_was_cut_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that got nothing asks again from the same offset."""

    async def main() -> None:
        monkeypatch.setattr(records, "SEARCH_S_MAX", -1.0)  # One step at a time.
        async with open_door() as door:
            client = door.connect()
            await client.create("logs")
            for _ in range(3):
                await append(door, "logs", bytes(300_000))
            await append(door, "logs", b"an error")

            found = await asked_until_found(client)

            assert found.records == ((3, b"", b"an error"),)

    async def asked_until_found(client: Connection) -> bodies.Fetched:
        for _ in range(10):
            found = await client.fetch("logs", 0, where="error")
            if found.record_count:
                return found
        raise AssertionError("it stalls")

    run(main())


def test_what_a_connection_remembers_of_searches_is_bounded() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            await client.produce("logs", b"quiet")
            for number in range(200):
                await client.fetch("logs", where=f"nothing {number}")

            assert len(client.gateway._conversation._reached) == SCANS_KEPT_MAX

    run(main())


def test_a_search_in_a_topic_made_anew_begins_at_its_start() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            for _ in range(3):
                await client.produce("logs", b"quiet")
            await client.fetch("logs", where="error")
            await client.ask(Opcode.DELETE_TOPIC, bodies.TopicOnly("logs"), bodies.Done)

            await client.produce("logs", b"an error")

            assert (await client.fetch("logs", where="error")).record_count == 1

    run(main())


# -- delays and time to live ---------------------------------------------------------------------


def test_a_delayed_record_appears_when_it_is_due() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            await client.create("orders")

            told = await client.ask(
                Opcode.PRODUCE_DELAYED,
                bodies.ProduceDelayed("orders", b"later", 5_000),
                bodies.DelayedMetadata,
            )
            assert (told.topic, told.offset, told.key_bytes, told.value_bytes) == (
                "orders",
                0,
                -1,
                5,
            )
            assert told.id
            await asyncio.sleep(4)
            assert await client.values("orders") == []
            await asyncio.sleep(2)
            assert await client.values("orders") == [b"later"]

    run(main())


def test_a_delayed_record_is_cancelled_by_its_id() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            await client.create("orders")
            told = await client.ask(
                Opcode.PRODUCE_DELAYED,
                bodies.ProduceDelayed("orders", b"never", 5_000),
                bodies.DelayedMetadata,
            )

            cancelled = await client.ask(
                Opcode.CANCEL_DELAYED, bodies.CancelDelayed(told.id), bodies.Message
            )
            assert cancelled.success
            await asyncio.sleep(10)
            assert await client.values("orders") == []
            with pytest.raises(Refused):
                await client.ask(
                    Opcode.CANCEL_DELAYED, bodies.CancelDelayed(told.id), bodies.Message
                )

    run(main())


def test_a_delay_beyond_the_limit_is_refused() -> None:
    async def main() -> None:
        config = Config(limits=Limits(deferred_ms_max=1_000))
        async with open_door(config) as door:
            client = door.connect()
            await client.create("orders")

            with pytest.raises(Refused, match="at most 1000"):
                await client.ask(
                    Opcode.PRODUCE_DELAYED,
                    bodies.ProduceDelayed("orders", b"x", 1_001),
                    bodies.DelayedMetadata,
                )

    run(main())


def test_without_a_delay_a_record_is_there_at_once() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            request = bodies.ProduceDelayed("orders", b"now", 0)

            told = await client.ask(Opcode.PRODUCE_DELAYED, request, bodies.DelayedMetadata)

            assert told.id == ""
            assert await client.values("orders") == [b"now"]

    run(main())


def test_a_record_is_gone_when_its_time_to_live_is_over() -> None:
    async def main() -> None:
        async with open_door() as door:
            client = door.connect()
            await client.create("orders")
            request = bodies.ProduceWithTtl("orders", b"brief", 5_000)

            told = await client.ask(Opcode.PRODUCE_WITH_TTL, request, bodies.RecordMetadata)
            await client.produce("orders", b"lasting")

            assert (told.partition, told.offset) == (0, 0)
            assert await client.values("orders") == [b"brief", b"lasting"]
            await asyncio.sleep(6)
            assert await client.values("orders") == [b"lasting"]

    run(main())
