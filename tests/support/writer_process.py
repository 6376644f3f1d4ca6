"""A node in a real process that writes until it is killed, and tells what was acknowledged.

    python -m tests.support.writer_process DIRECTORY

Prints `ready N` with the end of the log, then `OFFSET VALUE` for each record, after its ack.
"""

import asyncio
import itertools
import sys
import time
from contextlib import suppress

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config
from millstream.errors import TopicExists
from millstream.model import Acks, Session, TopicPartition, user_principal
from millstream.server.node import Node, build_node, running
from millstream.server.system.real_ports import real_ports
from millstream.settings import TopicSettings

SESSION = Session(principal=user_principal("writer"))
TARGET = TopicPartition("orders", 0)
WRITERS = 8


async def write(node: Node, numbers: "itertools.count[int]") -> None:
    for number in numbers:
        values = [b"%d.%d" % (number, at) for at in range(1 + number % 3)]
        now_ms = int(time.time() * 1000)
        data = encode_batch([Record(at, now_ms, None, value) for at, value in enumerate(values)])
        appended = await node.partitions.append(SESSION, TARGET, data, Acks.ALL)
        for at, value in enumerate(values):
            print(appended.base_offset + at, value.decode())
        sys.stdout.flush()


async def main() -> None:
    config = Config(
        data_dir=sys.argv[1],
        topic_defaults=TopicSettings(segment_bytes=16_384, index_interval_bytes=512),
    )
    async with running(build_node(config, real_ports(config))) as node:
        with suppress(TopicExists):
            await node.topics.create(SESSION, "orders")
        end = node.partitions.health(SESSION, TARGET).log.end_offset
        print("ready", end, flush=True)
        numbers = itertools.count(end)
        await asyncio.gather(*(write(node, numbers) for _ in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main())
