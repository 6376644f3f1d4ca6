"""Reading through filters and past times to live: how many records a second one core looks at.

Run it with `python -m benchmarks.filters`. The engine alone, with the log in memory and one reader
that asks from where it was answered last. Time is the processor time of this process, so that what
else the machine does matters little.
"""

import asyncio
import statistics
import time
from typing import NamedTuple

from benchmarks.node_process import SESSION
from benchmarks.report import Figure, publish
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config
from millstream.engine.filters.filter import parse
from millstream.engine.partitions.slices import Want
from millstream.model import Acks, TopicPartition
from millstream.server.node import Node, build_node, running
from millstream.server.system.real_ports import real_ports

RECORDS = 200_000
BATCH_RECORDS = 500
RARE, SOME = 100_000, 100  # One record in so many has the word in it.
TURNS = 3
FETCH_BYTES = 2**20


class Case(NamedTuple):
    name: str
    topic: str
    where: str | None


CASES = [
    Case("no filter", "plain", None),
    Case("text that is in one of 100,000 records", "plain", "value contains 'RARE'"),
    Case("text that is in one of 100 records", "plain", "value contains 'SOME'"),
    Case("regular expression", "plain", r"value ~ 'SOM\w \d+'"),
    Case("key", "plain", "key > 'k9'"),
    Case("header as a number", "plain", "header.n > 990"),
    Case("JSON path", "plain", "$.user.n == 17"),
    Case("two comparisons", "plain", "$.user.n == 17 and header.n > 500"),
    Case("text in one of 100, zstd", "zstd", "value contains 'SOME'"),
    Case("time to live by header, none has one", "headers", None),
    Case("time to live of the topic", "mortal", None),
]
SETTINGS = {
    "plain": {},
    "zstd": {},
    "headers": {"message_ttl_headers": "on"},
    "mortal": {"message_ttl_ms": "3600000"},
}


def record(number: int, offset: int) -> Record:
    word = "RARE" if number % RARE == 0 else "SOME" if number % SOME == 0 else "none"
    value = f'{{"user": {{"n": {number % 1000}}}, "text": "{word} {number:012d} of many records"}}'
    headers = (("n", b"%d" % (number % 1000)),)
    return Record(offset, int(time.time() * 1000), b"k%d" % (number % 100), value.encode(), headers)


async def fill(node: Node) -> int:
    """Write the same records to every topic; return how large one is."""
    for topic, settings in SETTINGS.items():
        await node.topics.create(SESSION, topic, settings=settings)
    size = 0
    for first in range(0, RECORDS, BATCH_RECORDS):
        records = [record(first + at, at) for at in range(BATCH_RECORDS)]
        plain, packed = encode_batch(records), encode_batch(records, codec=Codec.ZSTD)
        size += len(plain)
        for topic in SETTINGS:
            data = packed if topic == "zstd" else plain
            await node.partitions.append(SESSION, TopicPartition(topic, 0), data, Acks.ALL)
    return size


async def read(node: Node, case: Case) -> float:
    """Seconds of the processor to go through the whole topic."""
    filter_ = None if case.where is None else parse(case.where)
    target, offset = TopicPartition(case.topic, 0), 0
    started = time.process_time()
    while offset < RECORDS:
        want = Want(target, offset, FETCH_BYTES)
        (part,) = await node.partitions.read(SESSION, [want], filter=filter_)
        assert part.records is not None
        offset = part.records.end_offset
        part.records.read()
    return time.process_time() - started


async def measure() -> list[Figure]:
    config = Config(storage="memory")
    figures = []
    async with running(build_node(config, real_ports(config))) as node:
        size = await fill(node)
        settings = f"{RECORDS:,} records of {size // RECORDS} B in batches of {BATCH_RECORDS}"
        for case in CASES:
            seconds = statistics.median([await read(node, case) for _ in range(TURNS)])
            figures.append(Figure(case.name, RECORDS / seconds, "records/s", settings))
    return figures


if __name__ == "__main__":
    publish("filters", "python -m benchmarks.filters", asyncio.run(measure()))
