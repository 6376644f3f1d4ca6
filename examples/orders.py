"""The main job so far, end to end: start a node, write, read, lose the power, find it all again.

Run by `make run`. Uses `data/example/`, which it empties first, and leaves a node running until Ctrl-C.
"""

import asyncio
import contextlib
import logging
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from millstream.codec.records import Record, build, records
from millstream.config import Config
from millstream.engine.reading import Want
from millstream.model import Acks, Session, TopicPartition
from millstream.server.node import Node, build_node, running
from millstream.server.outside import real_ports

DIRECTORY = Path("data/example")
ORDERS = TopicPartition("orders", 0)
SESSION = Session(principal="example")
COUNT = 20_000
IN_FLIGHT = 64


def order(number: int) -> bytes:
    return b'{"order": %d, "item": "flour", "kg": %d}' % (number, number % 50)


async def write(node: Node) -> None:
    """Single orders, 64 writers at once, each acknowledged after it is on the disk."""
    await node.topics.create(SESSION, "orders")
    numbers = iter(range(COUNT))

    async def writer() -> None:
        for number in numbers:
            record = Record(0, int(time.time() * 1000), b"order", order(number))
            await node.partitions.append(SESSION, ORDERS, build([record]), Acks.ALL)

    started = time.perf_counter()
    await asyncio.gather(*(writer() for _ in range(IN_FLIGHT)))
    seconds = time.perf_counter() - started
    print(f"wrote {COUNT:,} orders, each synced before its ack: {COUNT / seconds:,.0f} per second")


async def count_orders(node: Node) -> int:
    offset = found = 0
    while True:
        (part,) = await node.partitions.read(SESSION, [Want(ORDERS, offset, 2**20)])
        if part.records is None:
            return found
        data, at = part.records.read(), 0
        while at < len(data):
            batch = records(data, at, decompressed_bytes_max=2**20)
            found += len(batch)
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        offset = part.records.end_offset


async def first_life() -> None:
    config = Config(data_dir=str(DIRECTORY))
    async with running(build_node(config, real_ports(config))) as node:
        await write(node)
        print("killing the process with -9 ...", flush=True)
        signal.raise_signal(signal.SIGKILL)


async def second_life() -> None:
    config = Config(data_dir=str(DIRECTORY))
    started = time.perf_counter()
    async with running(build_node(config, real_ports(config))) as node:
        ready_ms = (time.perf_counter() - started) * 1000
        health = node.partitions.health(SESSION, ORDERS)
        found = await count_orders(node)
        print(f"started again in {ready_ms:.0f} ms and found {found:,} of {COUNT:,} orders")
        print(
            f"orders-0: {health.log.segment_count} segment, {health.log.size_bytes:,} bytes, "
            f"offsets {health.log.start_offset} to {health.log.end_offset}, "
            f"high watermark {health.high_watermark}"
        )
        if found != COUNT:
            sys.exit("records are missing")


def main() -> None:
    if sys.argv[1:] == ["first-life"]:
        asyncio.run(first_life())
    logging.basicConfig(level=logging.WARNING)
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    print(f"a node alone, its data in {DIRECTORY}/")
    subprocess.run([sys.executable, __file__, "first-life"], check=False)
    asyncio.run(second_life())
    if "--once" in sys.argv:
        return
    print(f"serving until Ctrl-C: millstream serve --data-dir {DIRECTORY}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        command = ["millstream", "serve", "--data-dir", str(DIRECTORY)]
        subprocess.run([Path(sys.executable).parent / command[0], *command[1:]], check=False)


if __name__ == "__main__":
    main()
