"""Storage alone: how close the log comes to the disk under it. `make bench` runs this.

Ratios are taken in one run, in turns, on the same disk and the same bytes, because machines are
noisy: each turn measures both sides, and the median ratio of all turns is reported.
"""

import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.node_process import SESSION, batch_of
from benchmarks.report import Figure, publish
from millstream.codec.batch import PREFIX_BYTES, read_header, stamp
from millstream.config import Config
from millstream.metrics import SYNC_ROUNDS
from millstream.model import Acks, Boundary, Epoch, ReplicaId, TopicPartition
from millstream.server.node import build_node, running
from millstream.server.system.real_ports import real_ports
from millstream.settings import TopicSettings
from millstream.storage.files.disk import DiskFiles
from millstream.storage.log.cache import LogCache
from millstream.storage.log.log import Log
from millstream.storage.log.recovery import open_log

BATCH_BYTES = 64 * 1024
TURN_BYTES = 64 * 2**20  # Small enough that the kernel does not start to throttle writers.
TURNS = 15
WAITERS = 64
APPENDS = 20_000
LOOKUPS = 50_000
REOPEN_BYTES = 2 * 2**30 - 64 * 2**20  # So that the active segment is nearly full: the worst case.
PARTITIONS = 1_000
RATIO_GOAL = 0.7
RSS_GOAL = 150e6


def open_bench_log(root: Path) -> Log:
    files = DiskFiles(root)
    return open_log(
        files,
        "bench",
        settings=TopicSettings(),
        cache=LogCache(index_bytes_max=32 * 2**20, open_files_max=1000),
        start_offset=0,
        boundaries=[Boundary(Epoch(1), 0, frozenset({ReplicaId(1)}))],
        producer_ids_max=1000,
        decompressed_bytes_max=64 * 2**20,
    )


def timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def write_plain(path: Path, data: bytes, count: int) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    for _ in range(count):
        os.write(descriptor, data)
    os.close(descriptor)


def read_plain(path: Path, read_bytes: int) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    at = 0
    while data := os.pread(descriptor, read_bytes, at):
        at += len(data)
    os.close(descriptor)


def append(log: Log, data: bytes, count: int) -> None:
    """As a leader does: stamp and write; the checksum was verified on admission."""
    header, body = read_header(data), memoryview(data)[PREFIX_BYTES:]
    for _ in range(count):
        stamped, prefix = stamp(header, base_offset=log.end_offset, epoch=1)
        log.append((prefix, body), (stamped,), now_ms=1_700_000_000_000)


def read(log: Log, read_bytes: int) -> None:
    at, end = 0, log.end_offset
    data = b""  # Kept for a turn, as by `read_plain`: the allocator must not make the difference.
    while (part := log.read(at, bytes_max=read_bytes, end_offset=end)) is not None:
        data = part.read()
        at = part.end_offset
    assert data


class Comparison:
    """Two ways to do the same, measured in turns."""

    def __init__(self, name: str, base: str) -> None:
        self.name = name
        self.base = base
        self._seconds: list[tuple[float, float]] = []

    def turn(self, ours: Callable[[], None], theirs: Callable[[], None]) -> None:
        # Whoever goes second finds dirty pages: take turns at that too.
        if len(self._seconds) % 2:
            our_s, their_s = timed(ours), timed(theirs)
        else:
            their_s, our_s = timed(theirs), timed(ours)
        self._seconds.append((our_s, their_s))

    def figures(self, size: int, settings: str) -> list[Figure]:
        ours = statistics.median(size / our_s / 1e6 for our_s, _ in self._seconds)
        theirs = statistics.median(size / their_s / 1e6 for _, their_s in self._seconds)
        ratio = statistics.median(their_s / our_s for our_s, their_s in self._seconds)
        goal = f">= {RATIO_GOAL}"
        return [
            Figure(f"sequential {self.name}", ours, "MB/s", settings),
            Figure(f"plain {self.base}", theirs, "MB/s", settings),
            Figure(f"{self.name} / {self.base}", ratio, "", settings, goal, ratio >= RATIO_GOAL),
        ]


def append_and_read(root: Path) -> list[Figure]:
    """Append and read sequentially, against os.write and os.pread of the same bytes."""
    data = batch_of(BATCH_BYTES)
    count = TURN_BYTES // len(data)
    appends = Comparison("append", "os.write")
    reads = {
        len(data): Comparison("read, a batch at a time", "os.pread"),
        16 * len(data): Comparison("read, 16 batches at a time", "os.pread"),
    }
    for turn in range(TURNS):
        plain, directory = root / f"plain{turn}", root / f"log{turn}"
        log = open_bench_log(directory)
        appends.turn(partial(append, log, data, count), partial(write_plain, plain, data, count))
        for read_bytes, comparison in reads.items():
            comparison.turn(partial(read, log, read_bytes), partial(read_plain, plain, read_bytes))
        log.abandon()
        shutil.rmtree(directory)
        plain.unlink()
    settings = f"{len(data):,} B batches, page cache, no fsync, {TURNS} turns"
    size = count * len(data)
    figures = appends.figures(size, settings)
    for comparison in reads.values():
        figures += comparison.figures(size, settings)
    return figures


async def group_commit(root: Path) -> list[Figure]:
    """Appends per second with acks=all and a sync for each, by 64 writers who wait."""
    config = Config(data_dir=str(root / "commit"))
    async with running(build_node(config, real_ports(config))) as node:
        await node.topics.create(SESSION, "bench")
        target, data = TopicPartition("bench", 0), batch_of(1024)
        latencies: list[float] = []

        async def writer() -> None:
            for _ in range(APPENDS // WAITERS):
                started = time.perf_counter()
                await node.partitions.append(SESSION, target, data, Acks.ALL)
                latencies.append(time.perf_counter() - started)

        rounds = node.metrics.value(SYNC_ROUNDS)
        started = time.perf_counter()
        await asyncio.gather(*(writer() for _ in range(WAITERS)))
        seconds = time.perf_counter() - started
        rounds = node.metrics.value(SYNC_ROUNDS) - rounds
    settings = f"acks=all, fdatasync before ack, {WAITERS} waiters, {len(data)} B batches"
    latencies.sort()
    return [
        Figure("appends with group commit", len(latencies) / seconds, "1/s", settings),
        Figure("syncs", rounds / seconds, "1/s", settings),
        Figure("append p50", latencies[len(latencies) // 2] * 1000, "ms", settings),
        Figure("append p99", latencies[int(len(latencies) * 0.99)] * 1000, "ms", settings),
    ]


def lookups(root: Path) -> list[Figure]:
    """Random offsets to positions, over small batches so that the index matters."""
    data = batch_of(1024)
    log = open_bench_log(root / "lookups")
    append(log, data, 200_000)
    offsets = [random.randrange(log.end_offset) for _ in range(LOOKUPS)]

    def look_up() -> None:
        for offset in offsets:
            assert log.read(offset, bytes_max=1, end_offset=log.end_offset) is not None

    seconds = timed(look_up)
    log.abandon()
    settings = f"{log.end_offset:,} batches of {len(data)} B, index entry every 4 KiB"
    return [Figure("random offset lookups", LOOKUPS / seconds, "1/s", settings)]


def node(action: str, root: Path, *arguments: object) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.node_process", action, str(root)]
    command += [str(argument) for argument in arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode == -9:
        return {}
    assert result.returncode == 0, result.stderr
    content: dict[str, float] = json.loads(result.stdout)
    return content


def restarts(root: Path) -> list[Figure]:
    figures = []
    for how in ("clean", "kill"):
        directory = root / how
        node("fill", directory, REOPEN_BYTES, how)
        ready_s = node("open", directory)["ready_s"]
        name = {"clean": "a clean stop", "kill": "kill -9"}[how]
        settings = (
            "1.94 GiB, 0.94 of it in the active segment, build_node to ready, warm page cache"
        )
        figures.append(Figure(f"reopen after {name}", ready_s, "s", settings))
        shutil.rmtree(directory)
    return figures


def many_partitions(root: Path) -> list[Figure]:
    directory = root / "many"
    writing = node("partitions", directory, PARTITIONS)["rss_bytes"]
    reopened = node("open", directory)
    settings = f"{PARTITIONS} partitions, one batch each"
    return [
        Figure(
            "RSS of the process while writing",
            writing / 1e6,
            "MB",
            settings,
            f"< {RSS_GOAL / 1e6:.0f}",
            writing < RSS_GOAL,
        ),
        Figure(
            "RSS of the process after a restart",
            reopened["rss_bytes"] / 1e6,
            "MB",
            settings,
            f"< {RSS_GOAL / 1e6:.0f}",
            reopened["rss_bytes"] < RSS_GOAL,
        ),
        Figure("time until ready", reopened["ready_s"], "s", settings + ", after a clean stop"),
    ]


def main() -> None:
    # On the disk that the checkout is on; /tmp may be memory.
    root = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
    try:
        figures = append_and_read(root)
        figures += asyncio.run(group_commit(root))
        figures += lookups(root)
        figures += restarts(root)
        figures += many_partitions(root)
    finally:
        shutil.rmtree(root)
    publish("storage", "make bench", figures)


if __name__ == "__main__":
    main()
