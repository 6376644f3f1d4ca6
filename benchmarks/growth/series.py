"""The series: which sizes each has, and how one point of it is measured.

A point is one fresh broker with a load of one size. All figures of a point come from that broker;
the peers take turns, so a busy minute of the machine meets both.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.growth import load
from benchmarks.kafka.peers import Durability, NotRunning, Peer, Server
from benchmarks.kafka.trials import TrialFailed, idle_connections, settle

IDLE_SECONDS = 10.0
# After a load, before idle time is measured: what the load caused is done by then.
QUIET_SECONDS = 3.0
DURABILITY: Durability = "write"
GROUP_TOPIC_PARTITIONS = 200

Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One kind of growth. `is_ours_alone` where Kafka has no such thing."""

    name: str
    unit: str
    sizes: tuple[int, ...]
    measure: Callable[[Server, int], Figures]
    is_ours_alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What was measured at one size; `problem` says why there is nothing."""

    series: str
    peer: str
    size: int
    figures: Figures
    problem: str = ""


def partitions(server: Server, size: int) -> Figures:
    figures = {"create_s": load.create_topics(server, size)}
    load.fill_topics(server, size)
    figures |= resting(server)
    topic = load.last_topic(size)
    started = time.perf_counter()
    server.stop()
    figures["stop_s"] = time.perf_counter() - started
    settle()
    figures["start_clean_s"] = _first_ack(server, topic)
    server.kill()
    settle()
    figures["start_killed_s"] = _first_ack(server, topic)
    return figures


def connections(server: Server, size: int) -> Figures:
    load.raise_descriptor_limit(size)
    with idle_connections(server, size):
        return resting(server)


def members(server: Server, size: int) -> Figures:
    load.create_topic(server, "members", GROUP_TOPIC_PARTITIONS)
    with load.group(server, "members", size) as joined_s:
        return {"join_s": joined_s} | resting(server)


def megabytes(server: Server, size: int) -> Figures:
    load.create_topic(server, "filled", 1)
    load.fill(server, "filled", size * 1_000_000)
    figures = resting(server)
    for name, end in (("start_clean_s", server.stop), ("start_killed_s", server.kill)):
        end()
        settle()
        figures[name] = _first_ack(server, "filled")
    return figures


def delayed(server: Server, size: int) -> Figures:
    load.create_topic(server, "later", 1)
    started = time.perf_counter()
    load.delay(server, "later", size)
    figures = {"accept_s": time.perf_counter() - started} | resting(server)
    server.stop()
    settle()
    figures["start_clean_s"] = _first_ack(server, "later")
    return figures


def transactions(server: Server, size: int) -> Figures:
    load.create_topic(server, "committed", 1)
    started = time.perf_counter()
    load.transact(server, "committed", size)
    seconds = time.perf_counter() - started
    return {"transaction_ms": 1000 * seconds / size} | resting(server)


SERIES = (
    Series(
        name="partitions",
        unit="partitions",
        sizes=(10, 1_000, 3_000, 10_000, 20_000),
        measure=partitions,
    ),
    Series(
        name="connections",
        unit="idle connections",
        sizes=(10, 1_000, 5_000),
        measure=connections,
    ),
    Series(name="members", unit="members of a group", sizes=(10, 60, 200), measure=members),
    Series(name="log", unit="MB in one partition", sizes=(100, 1_000, 10_000), measure=megabytes),
    Series(
        name="delayed",
        unit="delayed records",
        sizes=(1_000, 10_000, 100_000, 1_000_000),
        measure=delayed,
        is_ours_alone=True,
    ),
    Series(
        name="transactions",
        unit="transactions of one record",
        sizes=(10, 100, 1_000),
        measure=transactions,
    ),
)


def resting(server: Server) -> Figures:
    """CPU and memory of the broker while nothing happens, then a small produce beside the load."""
    time.sleep(QUIET_SECONDS)
    before, started = server.cpu_seconds(), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    busy = (server.cpu_seconds() - before) / (time.perf_counter() - started)
    figures = {"idle_cpu_percent": 100 * busy, "rss_mb": server.rss_bytes() / 1e6}
    return figures | load.probe(server)


def measured(series: Series, peer: Peer, size: int, root: Path) -> Point:
    """One point; a broker that cannot carry the load leaves a point with a problem."""
    with _fresh(root) as directory:
        try:
            with Server(peer, directory, DURABILITY) as server:
                figures = series.measure(server, size)
        except (NotRunning, TrialFailed, load.LoadFailed, OSError) as problem:
            return Point(
                series=series.name, peer=peer.name, size=size, figures={}, problem=str(problem)
            )
    return Point(series=series.name, peer=peer.name, size=size, figures=figures)


@contextlib.contextmanager
def _fresh(root: Path) -> Iterator[Path]:
    directory = root / "broker"
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _first_ack(server: Server, topic: str) -> float:
    """Start the process again; seconds until a record of `topic` is acknowledged."""
    started_ns = server.start()
    server.wait_until_listening()
    load.produce_first(server, topic)
    return (time.monotonic_ns() - started_ns) / 1e9
