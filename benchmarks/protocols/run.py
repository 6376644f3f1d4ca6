"""Which cells there are, and in which order they are measured.

The brokers of one durability run at the same time, one of them under load. Trials go side by side
within a cell, and the next round begins with the other side.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException

from benchmarks.kafka.cells import turn
from benchmarks.kafka.comparison import Sample, Samples
from benchmarks.kafka.job import Broken
from benchmarks.kafka.peers import (
    DURABILITIES,
    JETSTREAM,
    MILLSTREAM,
    Durability,
    NotRunning,
    Server,
    free_port,
    jetstream,
    millstream,
)
from benchmarks.kafka.trials import TrialFailed
from benchmarks.protocols import trials
from benchmarks.protocols.client import Task
from benchmarks.protocols.trials import SHARES, Cell, Side

SIZES = (16, 128)
SUBJECTS = (1, 10)
FAN_OUTS = (1, 10)
WITH_ACKS, WITHOUT_ACKS, CORE_NATS = "Millstream, ACK", "Millstream, no ACK", "core NATS"
FILTERED_BYTES = 100
ONE_CORE = frozenset({min(os.sched_getaffinity(0))})
# A run of publications under one subject and of one size is the cheapest there is.
PINNED = tuple(Cell(size=128, subjects=count, cores=ONE_CORE) for count in SUBJECTS)
ONE_BY_ONE = Cell(size=128)
AWAITED = "one by one"
DISK = "disk alone"
DISK_WRITES = 1_000
WARM_REQUESTS = 200
NO_FILTER, VIEW, FETCH = "no filter", "view, over Kafka", "FETCH, over FlyMQ"
DEFERRED = "deferred"
# What is not about storing is measured with our default.
DEFAULT_DURABILITY: Durability = "sync"

Trial = Callable[[Side, str], dict[str, float]]

PUBLISHING, WAITING, DELAYS = "publish", "one-by-one", "delays"
FAN_OUT, FILTERS = "fan-out", "filters"
PARTS = (PUBLISHING, WAITING, DELAYS, FAN_OUT, FILTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured; the defaults take seven minutes on two cores."""

    parts: tuple[str, ...] = PARTS
    rounds: int = 3
    publish_count: int = 300_000
    # It syncs each record on its own, which takes a good part of a millisecond.
    jetstream_sync_count: int = 1_000
    deliveries: int = 300_000
    core_nats_factor: int = 2  # So many times the deliveries, or it would be over at once.
    one_by_one_count: int = 4_000
    deferred_count: int = 100_000
    deferred_spread_s: float = 20.0
    filtered_count: int = 1_000_000


QUICK = Plan(
    rounds=1,
    publish_count=50_000,
    jetstream_sync_count=300,
    deliveries=20_000,
    one_by_one_count=1_000,
    deferred_count=10_000,
    deferred_spread_s=5.0,
    filtered_count=100_000,
)


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of the benchmark: what is measured, and what came of it so far."""

    plan: Plan
    nats: Path | None  # Where nats-server is.
    root: Path
    samples: Samples = field(default_factory=Samples)
    failures: list[str] = field(default_factory=list)
    _topics: int = 0

    def measure(self) -> None:
        for durability in DURABILITIES:
            with ExitStack() as stack:
                sides = self._sides(stack, durability)
                ours, parts = sides[0], self.plan.parts
                if PUBLISHING in parts:
                    self._publish(sides, durability)
                if WAITING in parts:
                    self._one_by_one(sides, durability)
                if DELAYS in parts:
                    self._defer(ours, durability)
                if durability == DEFAULT_DURABILITY:
                    if FAN_OUT in parts:
                        self._fan_out(stack, sides)
                    if FILTERS in parts:
                        self._read_filtered(ours)

    def _sides(self, stack: ExitStack, durability: Durability) -> list[Side]:
        """Ours first."""
        sides = [self._ours(stack, MILLSTREAM, durability)]
        if self.nats is not None:
            directory = self.root / f"nats-{durability}"
            try:
                server = stack.enter_context(Server(jetstream(self.nats), directory, durability))
            except NotRunning as problem:
                self._fail(f"{JETSTREAM}, {durability}: {problem}")
            else:
                port = server.port
                sides.append(Side(name=JETSTREAM, server=server, dialect="jetstream", port=port))
        cell = Cell(size=SIZES[0])
        for side in sides:  # Unreported: what is compiled or filled at first use.
            count = self._count(side, durability) // 10
            for trial in (self._published(cell, count), self._awaited(WARM_REQUESTS)):
                self._try(side, durability, "warm", 0, trial, keeps=False)
        return sides

    def _ours(
        self, stack: ExitStack, name: str, durability: Durability, settings: str = ""
    ) -> Side:
        port = free_port()
        peer = millstream(flux_port=port, settings=settings)
        directory = self.root / f"{name.replace(' ', '-')}-{durability}"
        server = stack.enter_context(Server(peer, directory, durability))
        return Side(name=name, server=server, dialect="flux", port=port)

    def _publish(self, sides: list[Side], durability: Durability) -> None:
        cells = [Cell(size=size, subjects=count) for size in SIZES for count in SUBJECTS]
        for cell in [*cells, *PINNED]:
            for number in range(self.plan.rounds):
                for side in turn(sides, number):
                    trial = self._published(cell, self._count(side, durability))
                    self._try(side, durability, f"publish {cell}", number, trial)

    def _published(self, cell: Cell, count: int) -> Trial:
        return lambda side, topic: trials.publish(side, cell, topic=topic, count=count)

    def _one_by_one(self, sides: list[Side], durability: Durability) -> None:
        for number in range(self.plan.rounds):
            for side in turn(sides, number):
                count = min(self._count(side, durability), self.plan.one_by_one_count)
                self._try(side, durability, AWAITED, number, self._awaited(count))
            if durability == "sync":
                rate = trials.disk_alone(self.root / "disk", DISK_WRITES)
                self._keep(DISK, durability, AWAITED, number, {"per_s": rate})

    def _awaited(self, count: int) -> Trial:
        return lambda side, topic: trials.one_by_one(side, ONE_BY_ONE, topic=topic, count=count)

    def _fan_out(self, stack: ExitStack, sides: list[Side]) -> None:
        durability = DEFAULT_DURABILITY
        without = self._ours(stack, WITHOUT_ACKS, durability, "[flux]\nack_timeout_ms = 0\n")
        rivals = [without]
        for side in sides:
            name, dialect = (WITH_ACKS, "flux") if side.is_ours else (CORE_NATS, "core nats")
            rivals.append(
                Side(
                    name=name,
                    server=side.server,
                    dialect=dialect,
                    port=side.port,
                    acknowledges=side.is_ours,
                )
            )
        for cell in [Cell(size=size, listeners=count) for count in FAN_OUTS for size in SIZES]:

            def trial(side: Side, topic: str, cell: Cell = cell) -> dict[str, float]:
                factor = 1 if side.is_ours else self.plan.core_nats_factor
                count = factor * self.plan.deliveries // cell.listeners
                return trials.fan_out(side, cell, topic=topic, count=count)

            for number in range(self.plan.rounds):
                for side in turn(rivals, number):
                    self._try(side, durability, f"fan out {cell}", number, trial)

    def _defer(self, side: Side, durability: Durability) -> None:
        """A machine that is busy elsewhere for half a second shows in all the late ones."""
        plan = self.plan

        def trial(side: Side, topic: str) -> dict[str, float]:
            return trials.defer(
                side,
                topic=topic,
                size=SIZES[-1],
                count=plan.deferred_count,
                spread_s=plan.deferred_spread_s,
            )

        for number in range(plan.rounds):
            self._try(side, durability, DEFERRED, number, trial)

    def _read_filtered(self, side: Side) -> None:
        """Once: there are many records, and nobody to take turns with."""
        count = self.plan.filtered_count
        try:
            with trials.filled(side, topic="filtered", size=FILTERED_BYTES, count=count) as task:
                ways: dict[str, Trial] = {NO_FILTER: partial(_on_topic, trials.read_all, task)}
                for word, share in SHARES.items():
                    for way, read in {VIEW: trials.read_view, FETCH: trials.fetch_where}.items():
                        filtered = replace(task, where=word)
                        ways[f"{way}, one of {share}"] = partial(_on_topic, read, filtered)
                for name, trial in ways.items():
                    self._try(side, DEFAULT_DURABILITY, f"read {name}", 0, trial)
        except (TrialFailed, Broken) as problem:
            self._fail(f"{side.name}, filtered reading: {problem}")

    def _try(
        self,
        side: Side,
        durability: Durability,
        setting: str,
        number: int,
        trial: Trial,
        *,
        keeps: bool = True,
    ) -> None:
        self._topics += 1
        title = f"{side.name}, {durability}, {setting}, round {number + 1}"
        try:
            values = trial(side, f"bench-{self._topics:03d}")
        except (
            *(TrialFailed, Broken, NotRunning, KafkaException),
            *(OSError, subprocess.SubprocessError),
        ) as problem:
            self._fail(f"{title}: {problem}")
            return
        _say(f"{title}: " + ", ".join(f"{name} {value:,.1f}" for name, value in values.items()))
        if keeps:
            self._keep(side.name, durability, setting, number, values)

    def _keep(
        self, name: str, durability: Durability, setting: str, number: int, values: dict[str, float]
    ) -> None:
        for figure, value in values.items():
            self.samples.add(
                Sample(
                    peer=name,
                    durability=durability,
                    setting=setting,
                    name=figure,
                    round=number,
                    value=value,
                )
            )

    def _count(self, side: Side, durability: Durability) -> int:
        is_slow = not side.is_ours and durability == "sync"
        return self.plan.jetstream_sync_count if is_slow else self.plan.publish_count

    def _fail(self, text: str) -> None:
        self.failures.append(text)
        _say(text)


def _on_topic(
    read: Callable[[Side, Task], dict[str, float]], task: Task, side: Side, _: str
) -> dict[str, float]:
    """Read the topic that is there, not one of its own."""
    return read(side, task)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
