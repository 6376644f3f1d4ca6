"""Small compressed batches that become very large: refused or skipped, fast, in little memory."""

import asyncio
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from millstream.codec.batch import read_header, seal
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config
from millstream.engine.partitions.slices import Earliest
from millstream.engine.push import AckMode, Delivered, SubscriptionSpec
from millstream.errors import RequestError
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import Acks, Session, TopicPartition
from millstream.server.node import build_node, running
from millstream.server.system.real_ports import real_ports
from tests.hostile.broker import (
    PRODUCE,
    Broker,
    Client,
    batch,
    produce_request,
    serving,
    spell,
)
from tests.hostile.test_flux import Talker
from tests.support.loop_turns import run_timed, timed_loop

MIB = 2**20
NOW_MS = 1_700_000_000_000
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TURN_S_MAX = 0.020  # Of the loop's thread, in CPU time.


def bomb(codec: Codec, size: int = 65 * MIB) -> bytes:
    """A few bytes that become more than the 64 MiB that are allowed; snappy has no such ratio."""
    if codec is Codec.SNAPPY:
        size = min(size, 2 * MIB)
    return encode_batch([Record(0, NOW_MS, None, bytes(size))], codec=codec)


def spoiled(codec: Codec) -> bytes:
    good = encode_batch([Record(0, NOW_MS, None, b"x")], codec=codec)
    return seal(read_header(good), b"\xff no such codec")[1]


def lying_zstd() -> bytes:
    """A frame that says it holds an exabyte."""
    good = encode_batch([Record(0, NOW_MS, None, b"x")], codec=Codec.ZSTD)
    frame = bytes.fromhex("28b52ffd") + bytes([0xE0]) + struct.pack("<Q", 2**60) + b"\x01\x00\x00"
    return seal(read_header(good), frame)[1]


def lying_snappy() -> bytes:
    good = encode_batch([Record(0, NOW_MS, None, b"x")], codec=Codec.SNAPPY)
    return seal(read_header(good), b"\xff\xff\xff\xff\x0f" + b"x" * 50)[1]


REFUSED: dict[str, tuple[Callable[[], bytes], ErrorCode]] = {
    "gzip": (lambda: bomb(Codec.GZIP), ErrorCode.MESSAGE_TOO_LARGE),
    "lz4": (lambda: bomb(Codec.LZ4), ErrorCode.MESSAGE_TOO_LARGE),
    "zstd": (lambda: bomb(Codec.ZSTD), ErrorCode.MESSAGE_TOO_LARGE),
    "zstd by its ratio": (lambda: bomb(Codec.ZSTD, 20 * MIB), ErrorCode.MESSAGE_TOO_LARGE),
    "a zstd frame that lies": (lying_zstd, ErrorCode.INVALID_RECORD),
    "a snappy block that lies": (lying_snappy, ErrorCode.MESSAGE_TOO_LARGE),
    **{
        f"no {codec.name}": (
            (lambda chosen: lambda: spoiled(chosen))(codec),
            ErrorCode.INVALID_RECORD,
        )
        for codec in COMPRESSED
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_searched_is_refused_with_a_reason(broker: Broker, name: str) -> None:
    make, code = REFUSED[name]
    with Client(broker) as client:
        before = client.end_offset()

        refused = client.produce(make())

        assert ErrorCode(refused.error_code) is code
        assert "unpack" in (refused.error_message or "")
        assert client.end_offset() == before


def test_many_bombs_at_once_take_little_memory_and_hold_up_no_client(broker: Broker) -> None:
    before = broker.resident_bytes()
    bombs = [bomb(codec) for codec in COMPRESSED]
    with Client(broker) as attacker, Client(broker) as other:
        for at in range(40):
            attacker.send(spell(PRODUCE, 9, produce_request(bombs[at % 4]), number=at))
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            other.end_offset()
            slowest = max(slowest, time.monotonic() - began)
        answers = [attacker.frame() for _ in range(40)]

    assert len(answers) == 40
    assert slowest < 1
    # Two of 64 MiB, packed and copied once, and what the allocator keeps.
    assert broker.resident_bytes("VmHWM") - before < 400 * MIB


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_flux_subscriber_gets_the_record_behind_a_bomb_within_a_second(
    codec: Codec, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log_path = tmp_path_factory.mktemp("broker") / "log"
    settings: dict[str, Any] = {
        "MILLSTREAM_TOPIC_DEFAULTS__MESSAGE_QUEUE_HEADERS": "off",
        "MILLSTREAM_LIMITS__BATCH_DECOMPRESSED_BYTES_MAX": str(8 * MIB),
    }
    unreadable = [spoiled(codec), bomb(codec)]
    with serving(log_path, **settings) as broker, Client(broker) as client:
        for data in unreadable:
            assert client.produce(data).error_code == 0
        with Talker(broker) as talker:
            talker.ask(b"SUB orders workers 1")
            assert client.produce(batch(b"first")).error_code == 0
            talker.hear(b"first")

            for data in [*unreadable, batch(b"behind")]:
                assert client.produce(data).error_code == 0
            began = time.monotonic()
            talker.hear(b"behind")
            assert time.monotonic() - began < 1
        broker.assert_unharmed()


@pytest.mark.slow  # Times turns of the loop for seconds: no other process should be busy.
@pytest.mark.parametrize("queue_headers", ["on", "off"])
def test_no_turn_of_the_loop_is_long_while_bombs_arrive_and_are_pushed(queue_headers: str) -> None:
    partitions = 30
    bombs = [bomb(codec, size) for codec in COMPRESSED for size in (MIB, 15 * MIB, 65 * MIB)]

    async def story() -> None:
        config, session = Config(storage="memory", port=0), Session()
        pushed: list[Delivered] = []
        async with running(build_node(config, real_ports(config))) as node:
            await node.topics.create(
                session,
                "orders",
                partitions=partitions,
                settings={"message_queue_headers": queue_headers},
            )
            spec = SubscriptionSpec(topics=("orders",), start=Earliest(), acks=AckMode.ON_SEND)
            await node.deliveries.subscribe(session, spec, lambda got: not pushed.extend(got))  # type: ignore[func-returns-value]
            await asyncio.sleep(0.1)
            async with timed_loop().turns_at_most(TURN_S_MAX):
                writings = []
                for at in range(2 * partitions):
                    target = TopicPartition("orders", at % partitions)
                    data = bombs[at % len(bombs)]
                    writings.append(node.partitions.append(session, target, data, Acks.ALL))
                for target in range(partitions):  # type: ignore[assignment]
                    place = TopicPartition("orders", target)  # type: ignore[arg-type]
                    writings.append(node.partitions.append(session, place, batch(b"x"), Acks.ALL))
                outcomes = await asyncio.gather(*writings, return_exceptions=True)
                problems = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
                assert all(isinstance(problem, RequestError) for problem in problems)
                assert bool(problems) == (queue_headers == "on")
                async with asyncio.timeout(60):
                    while sum(delivered.record.value == b"x" for delivered in pushed) < partitions:
                        await asyncio.sleep(0.01)

    run_timed(story())
