"""A crowd of hostile clients, as a program of its own: `python -m tests.hostile.crowd ADDRESSES`.

Owns what the crowd does: thousands of idle connections, frames that never end, batches that unpack
to much more than they are, readers that do not read, noise, and comings and goings, at all
listeners at once. It goes on until it is killed, whatever the broker does to it, and prints a line
of counts each second.
"""

import asyncio
import gzip
import os
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.kafka_wire.apis.data import FetchRequest
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import BINARY, GZIP, Opcode, encode_request
from tests.hostile.broker import PRODUCE, produce_request, spell
from tests.support.flymq import payload_of

FETCH = 1
BOMB_TOPIC, READ_TOPIC = "bombs", "orders"
BOMB_BYTES = 48 * 2**20  # Unpacked; a few kilobytes on the wire.
PAUSE_S = 0.05

Address = tuple[str, int]
Attack = Callable[["Crowd"], Awaitable[None]]


class Crowd:
    def __init__(self, kafka: Address, flux: Address, classic: Address, *, idle: int) -> None:
        self.listeners = (kafka, flux, classic)
        self.kafka, self.flux, self.classic = kafka, flux, classic
        self.idle = idle
        self.random = Random(7)
        self.counts: Counter[str] = Counter()
        self.bombs = [_bomb(codec) for codec in Codec if codec is not Codec.NONE]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self.idle):
                group.create_task(self._again(idle))
            for attack, count in ATTACKS.items():
                for _ in range(count):
                    group.create_task(self._again(attack))
            while True:
                await asyncio.sleep(1)
                print(dict(self.counts), flush=True)

    async def _again(self, attack: Attack) -> None:
        """Attack for ever; whatever the broker does about it is its right."""
        while True:
            await asyncio.sleep(self.random.uniform(0, 1))
            with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await attack(self)
            self.counts[attack.__name__] += 1

    async def connect(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(5):
            return await asyncio.open_connection(*address)


async def idle(crowd: Crowd) -> None:
    """Connect and say nothing for a long time."""
    reader, writer = await crowd.connect(crowd.random.choice(crowd.listeners))
    try:
        async with asyncio.timeout(crowd.random.uniform(5, 60)):
            await reader.read(1)
    finally:
        writer.transport.abort()


async def endless_frame(crowd: Crowd) -> None:
    """Announce many bytes and send them slowly."""
    _, writer = await crowd.connect(crowd.kafka)
    try:
        writer.write(struct.pack(">i", 90 * 2**20))
        for _ in range(200):
            writer.write(bytes(64 * 1024))
            await writer.drain()
            await asyncio.sleep(PAUSE_S)
    finally:
        writer.transport.abort()


async def kafka_bomb(crowd: Crowd) -> None:
    """Batches that unpack to much more than they are, in each codec, with and without acks."""
    reader, writer = await crowd.connect(crowd.kafka)
    try:
        for bomb in crowd.bombs:
            acks = crowd.random.choice((-1, 0, 1))
            writer.write(spell(PRODUCE, 9, produce_request(bomb, acks=acks, topic=BOMB_TOPIC)))
            await asyncio.sleep(PAUSE_S)
        async with asyncio.timeout(2):
            await reader.read(2**16)
    finally:
        writer.transport.abort()


async def flymq_bomb(crowd: Crowd) -> None:
    reader, writer = await crowd.connect(crowd.kafka)
    payload = payload_of(bodies.Produce(BOMB_TOPIC, b"", bytes(BOMB_BYTES // 4), -1))
    try:
        packed = await asyncio.to_thread(gzip.compress, payload)
        for _ in range(5):
            writer.write(encode_request(Opcode.PRODUCE, packed, flags=BINARY | GZIP))
            await asyncio.sleep(PAUSE_S)
        async with asyncio.timeout(2):
            await reader.read(2**16)
    finally:
        writer.transport.abort()


async def slow_reader(crowd: Crowd) -> None:
    """Ask for everything, again and again, and read nothing of it."""
    reader, writer = await crowd.connect(crowd.kafka)
    part = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=8 * 2**20)
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        topics=[FetchRequest.Topic(topic=READ_TOPIC, partitions=[part])],
        forgotten_topics_data=[],
    )
    reader._transport.pause_reading()  # type: ignore[attr-defined]  # asyncio has no other way.
    try:
        for _ in range(20):
            writer.write(spell(FETCH, 11, request))
            await asyncio.sleep(0.5)
    finally:
        writer.transport.abort()


async def deaf_subscriber(crowd: Crowd) -> None:
    """Subscribe, and read nothing of what is pushed."""
    reader, writer = await crowd.connect(crowd.flux)
    reader._transport.pause_reading()  # type: ignore[attr-defined]  # asyncio has no other way.
    try:
        writer.write(b"SUB orders 1\r\nSUB bombs 2\r\n")
        await asyncio.sleep(crowd.random.uniform(1, 10))
    finally:
        writer.transport.abort()


async def noise(crowd: Crowd) -> None:
    """Bytes of no protocol, or commands cut in the middle."""
    reader, writer = await crowd.connect(crowd.random.choice(crowd.listeners))
    try:
        writer.write(
            crowd.random.choice(
                (
                    os.urandom(crowd.random.randrange(1, 5_000)),
                    b"PUB bombs 999999\r\nabc",
                    b"SUB > 1\r\n" * 50,
                    b"\0\0\0\x10" + os.urandom(16),
                    b"\xaf" + os.urandom(200),
                )
            )
        )
        async with asyncio.timeout(1):
            await reader.read(2**16)
    finally:
        writer.transport.abort()


ATTACKS: dict[Attack, int] = {
    endless_frame: 8,
    kafka_bomb: 2,
    flymq_bomb: 1,
    slow_reader: 10,
    deaf_subscriber: 10,
    noise: 10,
}


def _bomb(codec: Codec) -> bytes:
    value = bytes(BOMB_BYTES if codec in (Codec.ZSTD, Codec.GZIP) else BOMB_BYTES // 8)
    return encode_batch([Record(0, 1_700_000_000_000, None, value)], codec=codec)


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    kafka, flux, classic, count = sys.argv[1:]
    asyncio.run(Crowd(_address(kafka), _address(flux), _address(classic), idle=int(count)).run())
