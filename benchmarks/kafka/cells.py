"""Which cells there are and in which order they are measured.

The brokers of one durability setting run at the same time, one of them under load: trials go
broker by broker within a cell, and the next round begins with the other one, so that neither
always finds the machine as the other left it.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.kafka import trials
from benchmarks.kafka.comparison import Sample, Samples
from benchmarks.kafka.compiled import compiled_throughput
from benchmarks.kafka.peers import Durability, NotRunning, Peer, Server
from benchmarks.kafka.trials import Cell, TrialFailed

SIZES = (100, 1024)
PARTITIONS = (1, 6)
# With sync, acks=1 is left out: Kafka then syncs for it too and Millstream does not, so the two
# would not promise the same.
ACKS: dict[Durability, tuple[str, ...]] = {"write": ("1", "all"), "sync": ("all",)}
LATENCY_RATE = 10_000
PARTS = ("start", "throughput", "compiled", "latency", "perf-test", "connections")
START_DURABILITY: Durability = "sync"  # Millstream's default.

Item = TypeVar("Item")
Trial = Callable[[Server, str], dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured; the defaults take about a quarter of an hour on two cores."""

    parts: tuple[str, ...] = PARTS
    rounds: int = 3
    counts: dict[int, int] = field(default_factory=lambda: {100: 600_000, 1024: 180_000})
    # A compiled client is faster by far, and needs a longer run to be measured as well.
    compiled_counts: dict[int, int] = field(default_factory=lambda: {100: 3_000_000, 1024: 500_000})
    # nats-py and a cold JVM are slower by far; their rates need no longer run than the others'.
    jetstream_divisor: int = 40
    perf_test_divisor: int = 3
    latency_sizes: tuple[int, ...] = (1024,)
    latency_warm_s: float = 0.5
    latency_measured_s: float = 3.0
    perf_test_acks: tuple[str, ...] = ("all",)
    perf_test_partitions: tuple[int, ...] = (1,)
    idle_connections: int = 1_000


QUICK = Plan(
    rounds=1,
    counts={100: 100_000, 1024: 30_000},
    compiled_counts={100: 300_000, 1024: 50_000},
    latency_warm_s=0.5,
    latency_measured_s=1.0,
)


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of the benchmark: what is measured, and what came of it so far."""

    plan: Plan
    peers: list[Peer]
    jars: Path | None  # For kafka-producer-perf-test.
    root: Path
    program: Path | None = None  # The compiled client.
    samples: Samples = field(default_factory=Samples)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _topics: int = 0

    def measure(self, durabilities: tuple[Durability, ...]) -> None:
        self._raise_file_limit()
        measures = {
            "throughput": self._measure_throughput,
            "compiled": self._measure_compiled,
            "latency": self._measure_latency,
            "perf-test": self._measure_perf_test,
        }
        if "start" in self.plan.parts:
            self._measure_starts()
        for durability in durabilities:
            with ExitStack() as stack:
                servers = [
                    server
                    for peer in self.peers
                    if (server := self._started(stack, peer, durability)) is not None
                ]
                for part, measure in measures.items():
                    if part in self.plan.parts:
                        measure(servers, durability)
                if "connections" in self.plan.parts and durability == durabilities[-1]:
                    self._measure_connections(servers, durability)

    def _started(self, stack: ExitStack, peer: Peer, durability: Durability) -> Server | None:
        """The peer, warm; or None, and the reason among the failures."""
        try:
            directory = self.root / f"{durability}-{peer.name}"
            server = stack.enter_context(Server(peer, directory, durability))
            self._warm(server)
        except (NotRunning, TrialFailed) as problem:
            self._fail(f"{peer.name}, {durability}: {problem}")
            return None
        return server

    def _measure_starts(self) -> None:
        for number in range(self.plan.rounds):
            for peer in turn(self.peers, number):
                directory = self.root / f"start-{number}-{peer.name}"
                try:
                    server = Server(peer, directory, START_DURABILITY)
                except NotRunning as problem:
                    self._fail(str(problem))
                    continue
                try:
                    self._try(server, START_DURABILITY, "", number, lambda s, _: trials.start(s))
                finally:
                    server.stop()

    def _warm(self, server: Server) -> None:
        """Unreported: a JVM compiles what it runs often, and is measured after it did."""
        for partitions in PARTITIONS if server.peer.speaks_kafka else (1,):
            cell = Cell(size=SIZES[0], acks="all", partitions=partitions)
            count = self._count(server, cell.size)
            trials.throughput(server, cell, topic=f"warm-{partitions}", count=count)

    def _measure_throughput(self, servers: list[Server], durability: Durability) -> None:
        for cell in cells(durability, SIZES, PARTITIONS):

            def trial(server: Server, topic: str, cell: Cell = cell) -> dict[str, float]:
                count = self._count(server, cell.size)
                return trials.throughput(server, cell, topic=topic, count=count)

            self._rounds(servers, durability, cell, trial)
        for server in servers:
            values = {"load_rss_mb": server.peak_rss_bytes() / 1e6}
            self._keep(server, durability, "", 0, values)

    def _measure_compiled(self, servers: list[Server], durability: Durability) -> None:
        program = self.program
        if program is None:
            return
        kafkas = [server for server in servers if server.peer.speaks_kafka]
        for cell in cells(durability, SIZES, PARTITIONS):
            if cell.acks != "all":
                continue

            def trial(server: Server, topic: str, cell: Cell = cell) -> dict[str, float]:
                count = self.plan.compiled_counts[cell.size]
                return compiled_throughput(server, cell, topic=topic, count=count, program=program)

            self._rounds(kafkas, durability, cell, trial)

    def _measure_latency(self, servers: list[Server], durability: Durability) -> None:
        for cell in cells(durability, self.plan.latency_sizes, PARTITIONS):
            able = [server for server in servers if self._keeps_up(server, durability, cell)]
            self._rounds(able, durability, cell, self._latency_of(cell))

    def _measure_perf_test(self, servers: list[Server], durability: Durability) -> None:
        jars = self.jars
        if jars is None:
            return
        for cell in cells(durability, SIZES, self.plan.perf_test_partitions):
            if cell.acks not in self.plan.perf_test_acks:
                continue

            def trial(server: Server, topic: str, cell: Cell = cell) -> dict[str, float]:
                count = self.plan.counts[cell.size] // self.plan.perf_test_divisor
                return trials.perf_test(server, cell, topic=topic, count=count, jars=jars)

            kafkas = [server for server in servers if server.peer.speaks_kafka]
            self._rounds(kafkas, durability, cell, trial)

    def _measure_connections(self, servers: list[Server], durability: Durability) -> None:
        """Memory that idle connections take, and the latency of a client beside them."""
        count = self.plan.idle_connections
        cell = Cell(size=self.plan.latency_sizes[0], acks="all", partitions=1)

        def trial(server: Server, topic: str) -> dict[str, float]:
            before = server.rss_bytes()
            with trials.idle_connections(server, count):
                grown = server.rss_bytes() - before
                values = self._latency_of(cell)(server, topic)
            return values | {"connections_rss_mb": grown / 1e6}

        for server in servers:
            self._try(server, durability, f"{cell}, {count} idle connections", 0, trial)

    def _keeps_up(self, server: Server, durability: Durability, cell: Cell) -> bool:
        """Beyond what a broker can do, latency would say how long the run was, and no more."""
        rate = self.samples.median(server.peer.name, durability, str(cell), "produce_per_s")
        if rate is None or rate >= LATENCY_RATE:
            return True
        self.notes.append(
            f"{server.peer.name}, {durability}, {cell}: latency, because it takes {rate:,.0f} "
            f"records/s and the runs are at {LATENCY_RATE:,}"
        )
        return False

    def _latency_of(self, cell: Cell) -> Trial:
        return lambda server, topic: trials.latency(
            server,
            cell,
            topic=topic,
            rate=LATENCY_RATE,
            warm_s=self.plan.latency_warm_s,
            measured_s=self.plan.latency_measured_s,
        )

    def _rounds(
        self, servers: list[Server], durability: Durability, cell: Cell, trial: Trial
    ) -> None:
        able = [s for s in servers if s.peer.speaks_kafka or _is_for_jetstream(cell)]
        for number in range(self.plan.rounds):
            for server in turn(able, number):
                self._try(server, durability, str(cell), number, trial)

    def _try(
        self, server: Server, durability: Durability, setting: str, number: int, trial: Trial
    ) -> None:
        self._topics += 1
        title = f"{server.peer.name}, {durability}, {setting or 'start'}, round {number + 1}"
        try:
            values = trial(server, f"bench-{self._topics}")
        except (TrialFailed, NotRunning, OSError, subprocess.SubprocessError) as problem:
            self._fail(f"{title}: {problem}")
            return
        said = ", ".join(f"{name} {value:,.1f}" for name, value in values.items())
        _say(f"{title}: {said}")
        self._keep(server, durability, setting, number, values)

    def _fail(self, text: str) -> None:
        self.failures.append(text)
        _say(text)

    def _keep(
        self,
        server: Server,
        durability: Durability,
        setting: str,
        number: int,
        values: dict[str, float],
    ) -> None:
        for name, value in values.items():
            self.samples.add(
                Sample(
                    peer=server.peer.name,
                    durability=durability,
                    setting=setting,
                    name=name,
                    round=number,
                    value=value,
                )
            )

    def _count(self, server: Server, size: int) -> int:
        count = self.plan.counts[size]
        return count if server.peer.speaks_kafka else count // self.plan.jetstream_divisor

    def _raise_file_limit(self) -> None:
        now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        connections = self.plan.idle_connections + 1_000
        if most != resource.RLIM_INFINITY:
            connections = min(connections, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, connections), most))


def cells(
    durability: Durability, sizes: tuple[int, ...], partitions: tuple[int, ...]
) -> list[Cell]:
    return [
        Cell(size=size, acks=acks, partitions=count)
        for size in sizes
        for acks in ACKS[durability]
        for count in partitions
    ]


def turn(items: list[Item], number: int) -> list[Item]:
    """The order of a round: every second one is the other way round."""
    return items if number % 2 == 0 else items[::-1]


def _is_for_jetstream(cell: Cell) -> bool:
    """A stream is one log, and each of its records is acknowledged."""
    return cell.acks == "all" and cell.partitions == 1


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
