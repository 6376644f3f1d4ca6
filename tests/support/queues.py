"""Batches of records with headers, and what becomes of them on a whole node on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from millstream.codec.batch import read_header
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_all
from millstream.config import Config
from millstream.engine.partitions.slices import Want
from millstream.errors import TopicExists
from millstream.model import NO_PRODUCER, Producer, TopicPartition
from millstream.ports import Files
from millstream.server.node import Node
from tests.support.nodes import NOW_MS, ORDERS, SESSION, FixedClock, running_node


class Message(NamedTuple):
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...] = ()


def message(value: bytes, **headers: object) -> Message:
    """`delay_ms=5` is the header `ms-delay-ms` of 5."""
    named = {f"ms-{name.replace('_', '-')}": content for name, content in headers.items()}
    spelled = tuple((name, _bytes(content)) for name, content in named.items())
    return Message(value, spelled)


def batch_of(
    *messages: Message,
    codec: Codec = Codec.NONE,
    producer: Producer = NO_PRODUCER,
    base_sequence: int = -1,
    key: bytes | None = None,
    is_transactional: bool = False,
) -> bytes:
    return encode_batch(
        [
            Record(at, NOW_MS, key, message.value, message.headers)
            for at, message in enumerate(messages)
        ],
        codec=codec,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )


@asynccontextmanager
async def running_orders(
    config: Config | None = None,
    *,
    files: Files | None = None,
    clock: FixedClock | None = None,
    partitions: int = 1,
    **settings: str,
) -> AsyncIterator[Node]:
    """A node with a topic `orders`."""
    async with running_node(config, files=files, clock=clock) as node:
        with suppress(TopicExists):
            await node.topics.create(SESSION, "orders", partitions=partitions, settings=settings)
        yield node


async def found_in(node: Node, target: TopicPartition = ORDERS) -> list[Record]:
    """Every record of a partition that readers see."""
    collected: list[Record] = []
    offset = 0
    while True:
        (part,) = await node.partitions.read(SESSION, [Want(target, offset, 2**20)])
        assert part.error is None, part.error
        if part.records is None:
            return collected
        data = part.records.read()
        at = 0
        while at < len(data):
            header = read_header(data, at)
            if not header.is_control:
                some = decode_all(data, at, decompressed_bytes_max=2**24)
                collected += [record for record in some if record.offset >= offset]
            at += header.size
        offset = part.records.end_offset


async def values_in(node: Node, target: TopicPartition = ORDERS) -> list[bytes | None]:
    return [record.value for record in await found_in(node, target)]


async def until_count(node: Node, count: int, target: TopicPartition = ORDERS) -> list[Record]:
    """Wait until a partition has that many records, and a little longer: it gets no more."""
    async with asyncio.timeout(60):
        while len(await found_in(node, target)) < count:
            await asyncio.sleep(0.05)
    await asyncio.sleep(2)
    records = await found_in(node, target)
    assert len(records) == count, records
    return records


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def _bytes(content: object) -> bytes | None:
    return content if content is None or isinstance(content, bytes) else str(content).encode()
