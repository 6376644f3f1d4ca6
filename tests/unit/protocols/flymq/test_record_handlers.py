"""Records through the FlyMQ listener: what is produced, what is read, and what is searched for."""

import asyncio
from typing import Literal

import pytest

from millstream.codec.encoding import encode_batch
from millstream.codec.murmur2 import murmur2
from millstream.codec.records import Record
from millstream.config import Config, Limits
from millstream.model import Acks, TopicPartition
from millstream.protocols.flymq.context import SCANS_KEPT_MAX
from millstream.protocols.flymq.handlers import records
from millstream.protocols.flymq.handlers.records import COUNT_DEFAULT
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import Body, Opcode
from tests.support.flymq import Refused, asking, reply_in
from tests.support.nodes import NOW_MS, SESSION
from tests.support.virtual_loop import run
from tests.unit.protocols.flymq.asking import (
    Connection,
    FlymqListener,
    open_listener,
    with_listener,
)


async def append(listener: FlymqListener, topic: str, *values: bytes) -> None:
    """As a Kafka client does: many records in a batch."""
    batch = encode_batch([Record(at, NOW_MS, None, value) for at, value in enumerate(values)])
    await listener.node.partitions.append(SESSION, TopicPartition(topic, 0), batch, Acks.ALL)


async def holding(listener: FlymqListener, topic: str, *batches: tuple[bytes, ...]) -> Connection:
    """A client of a topic that holds these."""
    client = listener.connect()
    await client.create(topic)
    for values in batches:
        await append(listener, topic, *values)
    return client


async def consume(client: Connection, offset: int) -> bodies.Consumed:
    return await client.ask(Opcode.CONSUME, bodies.Consume("orders", 0, offset), bodies.Consumed)


async def produce_delayed(
    client: Connection, value: bytes, delay_ms: int
) -> bodies.DelayedMetadata:
    request = bodies.ProduceDelayed("orders", value, delay_ms)
    return await client.ask(Opcode.PRODUCE_DELAYED, request, bodies.DelayedMetadata)


async def cancel(client: Connection, name: str) -> bodies.Message:
    return await client.ask(Opcode.CANCEL_DELAYED, bodies.CancelDelayed(name), bodies.Message)


async def produce_with_ttl(client: Connection, value: bytes, ttl_ms: int) -> bodies.RecordMetadata:
    request = bodies.ProduceWithTtl("orders", value, ttl_ms)
    return await client.ask(Opcode.PRODUCE_WITH_TTL, request, bodies.RecordMetadata)


# -- producing -----------------------------------------------------------------------------------


@with_listener()
async def test_a_produce_is_told_where_its_record_went(listener: FlymqListener) -> None:
    client = listener.connect()

    first = await client.produce("orders", b"v0")
    second = await client.produce("orders", b"", key=b"key")

    assert first._replace(timestamp_ms=0) == ("orders", 0, 0, 0, -1, 2)
    assert second._replace(timestamp_ms=0) == ("orders", 0, 1, 0, 3, 0)
    assert first.timestamp_ms >= NOW_MS
    assert await client.fetch("orders") == (2, 2, ((0, b"", b"v0"), (1, b"key", b"")))


@with_listener()
async def test_the_partition_of_a_produce_is_honoured(listener: FlymqListener) -> None:
    client = listener.connect()
    await client.create("orders", 3)

    assert (await client.produce("orders", b"x", partition=2)).partition == 2
    with pytest.raises(Refused, match="partition 3 not found in topic orders"):
        await client.produce("orders", b"x", partition=3)


@with_listener()
async def test_a_key_goes_where_kafka_puts_it_and_records_without_take_turns(
    listener: FlymqListener,
) -> None:
    client = listener.connect()
    await client.create("orders", 3)

    keyed = {(await client.produce("orders", b"x", key=b"ann")).partition for _ in "abc"}
    others = [(await client.produce("orders", b"x")).partition for _ in "abc"]

    assert keyed == {(murmur2(b"ann") & 0x7FFFFFFF) % 3}
    assert sorted(others) == [0, 1, 2]


@with_listener(Config(auto_create_topics=False))
async def test_a_topic_is_not_made_by_a_produce_where_that_is_switched_off(
    listener: FlymqListener,
) -> None:
    with pytest.raises(Refused, match="topic not found: orders"):
        await listener.connect().produce("orders", b"x")


@with_listener()
async def test_a_record_that_is_too_large_is_refused_and_the_next_one_taken(
    listener: FlymqListener,
) -> None:
    client = listener.connect()
    with pytest.raises(Refused, match="at most"):
        await client.produce("orders", bytes(2**21))

    assert (await client.produce("orders", b"x")).offset == 0


# -- reading -------------------------------------------------------------------------------------


@with_listener()
async def test_a_fetch_says_where_to_go_on_and_brings_ten_unless_told(
    listener: FlymqListener,
) -> None:
    client = await holding(listener, "orders", tuple(b"%d" % number for number in range(25)))

    first = await client.fetch("orders", count=0)
    last = await client.fetch("orders", 20, count=100)

    assert (first.record_count, first.next_offset) == (COUNT_DEFAULT, 10)
    assert [record.value for record in last.records] == [b"20", b"21", b"22", b"23", b"24"]
    assert last.next_offset == 25


@pytest.mark.parametrize("durability", ["sync", "write"])
@pytest.mark.parametrize("where", ["", "v"])
def test_a_fetch_sent_along_with_a_produce_finds_its_record(
    durability: Literal["sync", "write"], where: str
) -> None:
    async def main() -> None:
        async with open_listener(Config(durability=durability)) as listener:
            client = await holding(listener, "orders")
            frames = asking(Opcode.PRODUCE, bodies.Produce("orders", b"", b"v0", -1))
            frames += asking(Opcode.FETCH, bodies.Fetch("orders", 0, 0, 10, where))

            produced, fetched = await client.ask_all(frames)

            assert produced[2] == Opcode.PRODUCE
            assert reply_in(fetched, Opcode.FETCH) == (1, 1, ((0, b"", b"v0"),))

    run(main())


@pytest.mark.parametrize("offset", [3, 4, 1_000])
@with_listener()
async def test_at_the_end_and_behind_it_there_is_nothing_yet(
    listener: FlymqListener, offset: int
) -> None:
    client = await holding(listener, "orders", (b"a", b"b", b"c"))

    assert await client.fetch("orders", offset) == (0, offset, ())


@with_listener()
async def test_before_the_start_of_the_log_is_its_start_but_no_record(
    listener: FlymqListener,
) -> None:
    client = await holding(listener, "orders", (b"a",), (b"b",), (b"c",))
    listener.node.partitions.delete_records(SESSION, TopicPartition("orders", 0), 2)

    assert await client.fetch("orders", 0) == (1, 3, ((2, b"", b"c"),))
    with pytest.raises(Refused, match="no record at offset 0, the next is at 2"):
        await consume(client, 0)


@pytest.mark.parametrize(
    ("sizes", "offset", "expected"),
    [
        pytest.param((400,) * 5, 0, (2, 2), id="what fits"),
        pytest.param((400,) * 5, 4, (1, 5), id="the rest"),
        pytest.param((5_000, 1), 0, (1, 1), id="one that does not fit comes alone"),
    ],
)
@with_listener()
async def test_a_reply_stays_small_enough_for_a_frame(
    listener: FlymqListener,
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[int, ...],
    offset: int,
    expected: tuple[int, int],
) -> None:
    monkeypatch.setattr(records, "REPLY_BYTES_MAX", 1_000)
    client = await holding(listener, "orders", tuple(map(bytes, sizes)))

    fetched = await client.fetch("orders", offset)

    assert (fetched.record_count, fetched.next_offset) == expected


@with_listener()
async def test_a_record_is_consumed_by_its_offset(listener: FlymqListener) -> None:
    client = listener.connect()
    await client.produce("orders", b"a")
    await client.produce("orders", b"b", key=b"k")

    for opcode in (Opcode.CONSUME, Opcode.CONSUME_ZERO_COPY):
        request = bodies.Consume("orders", 0, 1)
        assert await client.ask(opcode, request, bodies.Consumed) == (b"k", b"b")
    with pytest.raises(Refused, match="EOF: orders-0 ends at offset 2"):
        await consume(client, 2)


@pytest.mark.parametrize("opcode", [Opcode.FETCH, Opcode.FETCH_BINARY])
@pytest.mark.parametrize(
    ("topic", "partition", "words"),
    [
        ("nothing", 0, "^topic not found: nothing$"),
        ("orders", 1, "^partition 1 not found in topic orders$"),
        ("orders", -1, "^partition -1 not found in topic orders$"),
    ],
)
@with_listener()
async def test_what_does_not_exist_cannot_be_read(
    listener: FlymqListener, opcode: Opcode, topic: str, partition: int, words: str
) -> None:
    client = await holding(listener, "orders")

    with pytest.raises(Refused, match=words):
        await client.ask(opcode, bodies.Fetch(topic, partition, 0, 10), bodies.Fetched)


# -- searching -----------------------------------------------------------------------------------


@with_listener()
async def test_a_filter_is_searched_for_until_it_matches(listener: FlymqListener) -> None:
    quiet = [(b"quiet",) * 1_000] * 5
    client = await holding(listener, "logs", *quiet, (b"an ERROR", b"quiet", b"another error"))

    fetched = await client.fetch("logs", where="error")

    assert fetched == (2, 5_003, ((5_000, b"", b"an ERROR"), (5_002, b"", b"another error")))


@with_listener()
async def test_a_filter_that_matches_nothing_says_how_far_it_looked(
    listener: FlymqListener,
) -> None:
    client = await holding(listener, "logs", (b"quiet",))

    assert await client.fetch("logs", where="error") == (0, 1, ())


@with_listener()
async def test_a_search_that_was_cut_goes_on_where_it_was(
    listener: FlymqListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that got nothing asks again from the same offset."""
    monkeypatch.setattr(records, "SEARCH_S_MAX", -1.0)  # One step at a time.
    client = await holding(listener, "logs", *[(bytes(300_000),)] * 3, (b"an error",))

    collected = [await client.fetch("logs", 0, where="error") for _ in range(10)]

    assert ((3, b"", b"an error"),) in [reply.records for reply in collected]


@with_listener()
async def test_what_a_connection_remembers_of_searches_is_bounded(listener: FlymqListener) -> None:
    client = await holding(listener, "logs", (b"quiet",))
    for number in range(200):
        await client.fetch("logs", where=f"nothing {number}")

    assert len(client.gateway._conversation._reached) == SCANS_KEPT_MAX


@with_listener()
async def test_a_search_in_a_topic_made_anew_begins_at_its_start(listener: FlymqListener) -> None:
    client = await holding(listener, "logs", (b"quiet",) * 3)
    await client.fetch("logs", where="error")
    await client.ask(Opcode.DELETE_TOPIC, bodies.TopicOnly("logs"), bodies.Done)

    await client.produce("logs", b"an error")

    assert (await client.fetch("logs", where="error")).record_count == 1


# -- delays and time to live ---------------------------------------------------------------------


@with_listener()
async def test_a_delayed_record_appears_when_it_is_due(listener: FlymqListener) -> None:
    client = await holding(listener, "orders")

    answer = await produce_delayed(client, b"later", 5_000)

    assert answer._replace(timestamp_ms=0, id="") == ("orders", 0, 0, 0, -1, 5, "")
    assert answer.id
    await asyncio.sleep(4)
    assert await client.values("orders") == []
    await asyncio.sleep(2)
    assert await client.values("orders") == [b"later"]


@with_listener()
async def test_a_delayed_record_is_cancelled_by_its_id(listener: FlymqListener) -> None:
    client = await holding(listener, "orders")
    answer = await produce_delayed(client, b"never", 5_000)

    assert (await cancel(client, answer.id)).success
    await asyncio.sleep(10)
    assert await client.values("orders") == []
    with pytest.raises(Refused):
        await cancel(client, answer.id)


@with_listener()
async def test_without_a_delay_a_record_is_there_at_once(listener: FlymqListener) -> None:
    client = listener.connect()

    answer = await produce_delayed(client, b"now", 0)

    assert answer.id == ""
    assert await client.values("orders") == [b"now"]


@with_listener()
async def test_a_record_is_gone_when_its_time_to_live_is_over(listener: FlymqListener) -> None:
    client = await holding(listener, "orders")

    answer = await produce_with_ttl(client, b"brief", 5_000)
    for value, ttl_ms in ((b"lasting", 0), (b"almost for ever", 10**18 - 1)):
        await produce_with_ttl(client, value, ttl_ms)

    assert (answer.partition, answer.offset) == (0, 0)
    assert await client.values("orders") == [b"brief", b"lasting", b"almost for ever"]
    await asyncio.sleep(6)
    assert await client.values("orders") == [b"lasting", b"almost for ever"]


# -- numbers that have a place on the wire only --------------------------------------------------

_ABOVE_OFFSETS = 2**63
_ABOVE_ALL = 2**64 - 1


@pytest.mark.parametrize(
    ("opcode", "request_", "words"),
    [
        (
            Opcode.FETCH,
            bodies.Fetch("orders", 0, _ABOVE_OFFSETS, 10),
            "^offset 9223372036854775808, at most 9223372036854775807$",
        ),
        (
            Opcode.CONSUME,
            bodies.Consume("orders", 0, _ABOVE_ALL),
            "^offset 18446744073709551615, at most 9223372036854775807$",
        ),
        (
            Opcode.PRODUCE_DELAYED,
            bodies.ProduceDelayed("orders", b"x", 1_001),
            "^delay 1001 ms exceeds maximum allowed delay 1000 ms$",
        ),
        (
            Opcode.PRODUCE_DELAYED,
            bodies.ProduceDelayed("orders", b"x", _ABOVE_ALL),
            "^delay 18446744073709551615 ms exceeds maximum allowed delay 1000 ms$",
        ),
        (
            Opcode.PRODUCE_WITH_TTL,
            bodies.ProduceWithTtl("orders", b"x", _ABOVE_ALL),
            "ms-ttl-ms = 18446744073709551615, at most 999999999999999999 is allowed",
        ),
    ],
)
@with_listener(Config(limits=Limits(delay_ms_max=1_000)))
async def test_a_number_beyond_its_bound_is_refused_with_it(
    listener: FlymqListener, opcode: Opcode, request_: Body, words: str
) -> None:
    client = await holding(listener, "orders", (b"a",))

    with pytest.raises(Refused, match=words):
        await client.ask(opcode, request_, bodies.Done)
