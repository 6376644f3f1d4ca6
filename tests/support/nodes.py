"""A whole node on virtual time with files in memory, for tests of what users of the engine see."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_all
from millstream.config import Config
from millstream.engine.gate import Policy
from millstream.engine.partitions.slices import Slice
from millstream.model import Session, TopicPartition, user_principal
from millstream.ports import Files, Ports
from millstream.server.node import Node, build_node, running
from millstream.server.system.protoc import Protoc
from millstream.server.system.real_ports import NoCalls, NoLinks
from millstream.server.system.secrets import SystemSecrets
from millstream.storage.files.memory import MemoryFiles
from tests.support.sealed import config_if_sealing

T = TypeVar("T")

SESSION = Session(principal=user_principal("test"))
ORDERS = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000


class FixedClock:
    """Says what it is told, and moves with the loop's time."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.start_ms = now_ms

    def now_ms(self) -> int:
        return self.start_ms + int(asyncio.get_running_loop().time() * 1000)


class InlineThreads:
    """Work is done at once, but its outcome is known only later, as with real threads."""

    async def run(self, work: Callable[[], T]) -> T:
        result = work()
        await asyncio.sleep(0.001)
        return result


def fake_ports(files: Files | None = None, clock: FixedClock | None = None) -> Ports:
    return Ports(
        clock=clock or FixedClock(),
        entropy=Random(1),
        files=files or MemoryFiles(),
        threads=InlineThreads(),
        sync_threads=InlineThreads(),
        links=NoLinks(),
        calls=NoCalls(),
        secrets=SystemSecrets(),
        schema_compiler=Protoc(),
    )


@asynccontextmanager
async def running_node(
    config: Config | None = None,
    *,
    files: Files | None = None,
    clock: FixedClock | None = None,
    policy: Policy | None = None,
) -> AsyncIterator[Node]:
    ports = fake_ports(files, clock)
    async with running(
        build_node(config_if_sealing(config or Config()), ports, policy=policy)
    ) as node:
        yield node


def batch(*values: bytes | None, key: bytes | None = None, timestamp_ms: int = NOW_MS) -> bytes:
    return encode_batch([Record(at, timestamp_ms, key, value) for at, value in enumerate(values)])


def values_of(part: Slice) -> list[bytes | None]:
    """The values of all records in a slice."""
    return [record.value for record in records_of(part)]


def records_of(part: Slice) -> list[Record]:
    if part.records is None:
        return []
    data = part.records.read()
    records: list[Record] = []
    at = 0
    while at < len(data):
        records += decode_all(data, at, decompressed_bytes_max=2**20)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return records
