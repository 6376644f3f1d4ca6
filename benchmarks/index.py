"""Finding the records of one key in a large log: time, bytes read, and what the index costs.

Run it with `python -m benchmarks.index`, which writes a log of 10 GB (`--gigabytes`) below the
directory for temporary files, or in `--directory`, and removes it. The engine alone, on the disk.
Cold means that the node was started anew and the page cache of its files was dropped.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.node_process import SESSION
from benchmarks.report import Figure, publish
from millstream.codec.batch import HEADER_BYTES, read_header, seal
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config, Limits
from millstream.engine.filters.filter import parse
from millstream.engine.partitions.slices import Want
from millstream.metrics import FILTER_READ_BYTES
from millstream.model import Acks, TopicPartition
from millstream.replication import indexing
from millstream.replication.hub import Hub
from millstream.server.node import Node, build_node, running
from millstream.server.system.real_ports import real_ports

TARGET = TopicPartition("orders", 0)
BATCH_RECORDS = 100
VALUE_BYTES = 1000
KEY_DIGITS = 12
TURNS = 9
FETCH_BYTES = 2**20


def batches(count: int) -> Iterator[bytes]:
    """Batches of which every record has a key of its own, written into copies of one batch."""
    keys = [b"%0*d" % (KEY_DIGITS, number) for number in range(BATCH_RECORDS)]
    now_ms = int(time.time() * 1000)
    records = [
        Record(at, now_ms, key, bytes([65 + at % 26]) * VALUE_BYTES, (("trace-id", key),))
        for at, key in enumerate(keys)
    ]
    template = encode_batch(records)
    header, payload = read_header(template), bytearray(template[HEADER_BYTES:])
    places = []
    for key in keys:
        first = payload.find(key)
        places.append((first, payload.find(key, first + KEY_DIGITS)))
    for number in range(count):
        for at, (key_at, trace_at) in enumerate(places):
            text = b"%0*d" % (KEY_DIGITS, number * BATCH_RECORDS + at)
            payload[key_at : key_at + KEY_DIGITS] = text
            payload[trace_at : trace_at + KEY_DIGITS] = text
        yield seal(header, bytes(payload))[1]


async def fill(node: Node, size: int) -> int:
    """Write `size` bytes; return how many records that are."""
    batch_bytes = len(next(batches(1)))
    count = size // batch_bytes
    for data in batches(count):
        await node.partitions.append(SESSION, TARGET, data, Acks.LEADER)
    while True:
        (part,) = await node.partitions.read(SESSION, [Want(TARGET, 0, 1)])
        if part.high_watermark == count * BATCH_RECORDS:
            break
        await asyncio.sleep(0.1)
    return count * BATCH_RECORDS


async def indexed(hub: Hub) -> tuple[int, int]:
    """Wait until the index is complete; its bytes and entries."""
    (replica,) = [each for each in hub.replicas.values() if hub.upkeep.indexer.has(each)]
    while True:
        figures = hub.upkeep.indexer.figures(replica)
        assert figures is not None
        if figures.missing_bytes == 0:
            return figures.size_bytes, figures.entry_count
        await asyncio.sleep(0.2)


async def find(node: Node, where: str, end_offset: int | None = None) -> tuple[int, float, float]:
    """The matches in the log; seconds, and bytes of the log that were read."""
    compiled, offset, matches = parse(where), 0, 0
    before, started = node.metrics.value(FILTER_READ_BYTES), time.perf_counter()
    while True:
        want = Want(TARGET, offset, FETCH_BYTES)
        (part,) = await node.partitions.read(SESSION, [want], filter=compiled)
        if part.error is not None:
            raise part.error
        if part.records is None:
            break
        matches += part.records.passed_bytes > 0  # type: ignore[union-attr]
        offset = part.records.end_offset
        if offset >= (end_offset or part.high_watermark):
            break
    return matches, time.perf_counter() - started, node.metrics.value(FILTER_READ_BYTES) - before


def drop_cache(directory: Path) -> None:
    config = Config(data_dir=str(directory))
    files = real_ports(config).files
    for path in directory.rglob("*"):
        if path.is_file() and path.stat().st_size:
            files.open(str(path.relative_to(directory))).forget_cached()


# The pace of building is not measured, but its cost.
indexing.BUSY_SHARE = 1.0


async def measure(directory: Path, gigabytes: float) -> list[Figure]:
    config = Config(
        data_dir=str(directory),
        durability="write",
        limits=Limits(index_bytes_per_second=2**30),
    )
    async with running(build_node(config, real_ports(config))) as node:
        await node.topics.create(SESSION, "orders")
        started = time.process_time()
        count = await fill(node, int(gigabytes * 1e9))
        write_s = time.process_time() - started
        print(f"written: {count:,} records, {write_s:.1f} s of CPU", flush=True)
        _, scan_s, scanned = await find(node, "key == 'none'", count // 10)
        started, began = time.process_time(), time.perf_counter()
        asked = {"index_key": "true", "index_headers": "trace-id"}
        await node.topics.alter(SESSION, "orders", asked)
        await asyncio.sleep(0.1)
        size, entries = await indexed(node.hub)
        build_s, wall_s = time.process_time() - started, time.perf_counter() - began
        print(f"indexed: {size:,} bytes, {build_s:.1f} s of CPU, {wall_s:.1f} s", flush=True)
        warm = [await find(node, f"key == '{count * at // 10 + 7:012d}'") for at in range(TURNS)]
        absent = [await find(node, f"key == 'none {at}'") for at in range(TURNS)]
        traces = [
            await find(node, f"header.trace-id == '{count * at // 10 + 7:012d}' and key > ''")
            for at in range(TURNS)
        ]
    cold = []
    for at in range(3):
        drop_cache(directory)
        async with running(build_node(config, real_ports(config))) as node:
            await asyncio.sleep(2)
            cold.append(await find(node, f"key == '{count * at // 3 + 7:012d}'"))
    assert {matches for matches, _, _ in (*warm, *traces, *cold)} == {1}
    settings = f"{gigabytes:g} GB, {count:,} records of 1 kB in batches of {BATCH_RECORDS}"
    rows = [
        Figure("one key, warm", _ms(warm), "ms", settings, "100 ms", _ms(warm) <= 100),
        Figure("one key, warm, slowest", max(s for _, s, _ in warm) * 1000, "ms", settings),
        Figure("one key, cold", _ms(cold), "ms", settings, "100 ms", _ms(cold) <= 100),
        Figure("one key, cold, slowest", max(s for _, s, _ in cold) * 1000, "ms", settings),
        Figure("one header value, warm", _ms(traces), "ms", settings),
        Figure("a key that is not there, warm", _ms(absent), "ms", settings),
        Figure("bytes of the log read for one key", warm[0][2], "bytes", settings),
        Figure("without an index", scan_s * 1e9 / scanned, "s/GB", settings),
        Figure("building, CPU", build_s / gigabytes, "s/GB", settings),
        Figure("size of key and header", size / count, "bytes/record", settings),
    ]
    assert entries == 2 * count
    return rows


def _ms(results: list[tuple[int, float, float]]) -> float:
    return statistics.median(seconds for _, seconds, _ in results) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--directory", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        figures = asyncio.run(measure(Path(name), options.gigabytes))
    publish("index", "python -m benchmarks.index", figures)


if __name__ == "__main__":
    main()
