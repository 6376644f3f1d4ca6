"""One measurement of one broker over one protocol, proven before it counts.

A trial makes its topic or stream, starts the client, lets it work, and then asks the broker what it
holds. What could not be proven raises `TrialFailed` or `Broken`; it never returns a figure.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.kafka.peers import HOST, Peer, Server
from benchmarks.kafka.trials import Client, TrialFailed, settle
from benchmarks.protocols.client import Task
from benchmarks.protocols.kafka import Topics
from benchmarks.protocols.nats import Streams
from benchmarks.protocols.wire import HALF, RARE

CLIENT = (sys.executable, "-m", "benchmarks.protocols.client")
# JetStream refuses more than 10,000 that it has not stored yet; the same for all.
WINDOW = 8_000
SAMPLES = 5
DISK_WRITE_BYTES = 256  # About what a record of 128 B takes in a log.
# Which share of the records has a word: one of so many.
SHARES = {RARE.decode(): 100, HALF.decode(): 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One column: a broker, how it is spoken to, and where."""

    name: str
    server: Server
    dialect: str
    port: int
    acknowledges: bool = False

    @property
    def is_ours(self) -> bool:
        return self.dialect == "flux"

    def task(self, topic: str, *, size: int, count: int) -> Task:
        return Task(
            host=HOST,
            port=self.port,
            dialect=self.dialect,
            topic=topic,
            size=size,
            count=count,
            acknowledges=self.acknowledges,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Records of `size` bytes under `subjects`, or to `listeners`; `cores` are the broker's."""

    size: int
    subjects: int = 1
    listeners: int = 0
    cores: frozenset[int] = frozenset()

    def __str__(self) -> str:
        if self.listeners:
            return f"{self.size} B, 1:{self.listeners}"
        where = ", broker on one core" if self.cores else ""
        return f"{self.size} B, {self.subjects} subject(s){where}"


def publish(side: Side, cell: Cell, *, topic: str, count: int) -> dict[str, float]:
    """Pipelined, acknowledged, stored."""
    task = replace(
        side.task(topic, size=cell.size, count=count),
        subjects=cell.subjects,
        window=WINDOW,
    )
    with stored(side, task), pinned(side.server, cell.cores) as others:
        return measured(side, "publish", replace(task, cores=others), count)


def fan_out(side: Side, cell: Cell, *, topic: str, count: int) -> dict[str, float]:
    """Figures are of deliveries; what Millstream delivers is stored as well."""
    task = side.task(topic, size=cell.size, count=count)
    task = replace(task, listeners=cell.listeners)
    deliveries = cell.listeners * count
    if side.is_ours:
        with stored(side, replace(task, window=WINDOW)) as task:
            return measured(side, "fan_out", task, deliveries)
    return measured(side, "fan_out", task, deliveries)


def one_by_one(side: Side, cell: Cell, *, topic: str, count: int) -> dict[str, float]:
    """A client that waits for every answer: over FlyMQ, and over JetStream."""
    task = side.task(topic, size=cell.size, count=count)
    with stored(side, task):
        if side.is_ours:
            task = replace(task, port=side.server.port)
            return measured(side, "produce_flymq", task, count)
        return measured(side, "one_by_one", task, count)


def disk_alone(path: Path, count: int) -> float:
    """How many small writes a second are synced, one after the other, at this moment."""
    settle()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        started = time.perf_counter()
        for _ in range(count):
            os.write(descriptor, bytes(DISK_WRITE_BYTES))
            os.fdatasync(descriptor)
        return count / (time.perf_counter() - started)
    finally:
        os.close(descriptor)


def defer(side: Side, *, topic: str, size: int, count: int, spread_s: float) -> dict[str, float]:
    task = side.task(topic, size=size, count=count)
    task = replace(task, window=WINDOW, spread_s=spread_s, acknowledges=True)
    with stored(side, task, is_in_order=False):
        figures = run(side, "defer", task)
    per_s = count / figures.pop("seconds")
    return {f"deferred_{name}": value for name, value in figures.items()} | {
        "deferred_per_s": per_s
    }


@contextmanager
def filled(side: Side, *, topic: str, size: int, count: int) -> Iterator[Task]:
    """A topic with so many records, some of which have a word that others have not."""
    task = replace(side.task(topic, size=size, count=count), window=WINDOW)
    with stored(side, task):
        run(side, "publish", task)
        settle()
        yield replace(task, port=side.server.port)


def read_all(side: Side, task: Task) -> dict[str, float]:
    """Without a filter, to compare with."""
    values = measured(side, "read_topic", task, task.count)
    return _matching(values, task.count)


def read_view(side: Side, task: Task) -> dict[str, float]:
    """Through a view, over Kafka."""
    view = f"{task.topic}-{task.where}"
    with Topics(side.server.address) as topics:
        where = f"value contains '{task.where}'"
        topics.create(view, {"view.of": task.topic, "view.where": where})
        values = measured(side, "read_topic", replace(task, topic=view), task.count)
        topics.delete(view)
    return _matching(values, task.count // SHARES[task.where])


def fetch_where(side: Side, task: Task) -> dict[str, float]:
    """With FETCH and a filter, over FlyMQ."""
    values = measured(side, "fetch_flymq", task, task.count)
    return _matching(values, task.count // SHARES[task.where])


def measured(side: Side, action: str, task: Task, count: int) -> dict[str, float]:
    """`count` is what rates and costs are taken of."""
    settle()
    before = side.server.cpu_seconds()
    figures = run(side, action, task)
    cpu = side.server.cpu_seconds() - before
    values = {
        "per_s": count / figures.pop("seconds"),
        "cpu_us": cpu / count * 1e6,
        "client_busy": figures.pop("busy"),
    }
    return values | figures


def run(side: Side, action: str, task: Task) -> dict[str, float]:
    client = Client(speaking(side.server.peer), action, task)
    try:
        client.go()
        figures = client.result()
    finally:
        client.kill()
    return {name: value for name, value in figures.items() if not isinstance(value, list)}


def speaking(peer: Peer) -> Peer:
    """The same peer with our client."""
    return replace(peer, client=CLIENT)


@contextmanager
def stored(side: Side, task: Task, *, is_in_order: bool = True) -> Iterator[Task]:
    """A topic or stream that must hold what was acknowledged when the work in it is done."""
    samples = range(0, task.count, max(1, task.count // SAMPLES)) if is_in_order else range(0)
    server = side.server
    with Topics(server.address) if side.is_ours else Streams(HOST, server.port) as store:
        store.create(task.topic)
        yield task
        store.check(task.topic, size=task.size, count=task.count, samples=samples)
        store.delete(task.topic)


@contextmanager
def pinned(server: Server, cores: frozenset[int]) -> Iterator[tuple[int, ...]]:
    """The broker on these cores; what is left is the client's."""
    if not cores:
        yield ()
        return
    every = os.sched_getaffinity(0)
    server.pin(set(cores))
    try:
        yield tuple(every - cores) or tuple(every)
    finally:
        server.pin(every)


def _matching(values: dict[str, float], count: int) -> dict[str, float]:
    matching = values.pop("found")
    if matching != count:
        raise TrialFailed(f"{matching:,.0f} records were read, {count:,} were there to be found")
    return values
