"""What is measured and in which order: one broker, one session, ways taken in turns.

The archive comes first, because its goal counts from when the session is up and nothing is warm.
All others are measured after rounds that are not reported: a JVM compiles what it runs often.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from benchmarks.kafka.cells import turn
from benchmarks.kafka.comparison import Sample, Samples
from benchmarks.kafka.peers import NotRunning, Server
from benchmarks.kafka.trials import TrialFailed
from benchmarks.spark import trials
from benchmarks.spark.connectors import (
    MILLSTREAM,
    OURS,
    OURS_ALIKE,
    OURS_AT_LEAST_ONCE,
    PARQUET,
    THEIRS,
    THEIRS_ALIKE,
    Connector,
)
from benchmarks.spark.trials import Place
from millstream.errors import MillstreamError

SIZES = (100, 1024)
PARTITIONS = 4
DURABILITY = "sync"  # Millstream's default.
LATENCY_RATE = 10_000
PARTS = ("archive", "rates", "triggers", "latency")
FIRST_JOB, LATER_JOBS = "first job of the session", "later jobs"
TO_NOTHING, TO_TOPIC = "source to noop", "source to sink"

BROKEN = (
    TrialFailed,
    NotRunning,
    MillstreamError,
    PySparkException,
    Py4JError,
    OSError,
    subprocess.SubprocessError,
)
Trial = Callable[[int], dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured; the defaults take about ten minutes on two cores."""

    rounds: int = 3
    warm_rounds: int = 2  # Unreported: what runs on the JVM gets faster for as long.
    counts: dict[int, int] = field(default_factory=lambda: {100: 1_000_000, 1024: 250_000})
    archive_count: int = 1_000_000
    floor_rows: int = 40
    floor_warm: int = 8
    floor_count: int = 20
    latency_size: int = 100
    latency_warm_s: float = 4.0
    latency_measured_s: float = 6.0


QUICK = Plan(
    rounds=1,
    warm_rounds=1,
    counts={100: 300_000, 1024: 60_000},
    floor_warm=5,
    floor_count=15,
    latency_warm_s=4.0,
    latency_measured_s=4.0,
)


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of the benchmark: what is measured, and what came of it so far."""

    plan: Plan
    has_connector: bool
    parts: tuple[str, ...] = PARTS
    samples: Samples = field(default_factory=Samples)
    failures: list[str] = field(default_factory=list)
    _topics: int = 0

    @property
    def sources(self) -> list[Connector]:
        return [OURS, THEIRS] if self.has_connector else [OURS]

    @property
    def alike(self) -> list[Connector]:
        """Both at equal settings; without the other there is nothing to compare."""
        return [OURS_ALIKE, THEIRS_ALIKE] if self.has_connector else []

    @property
    def sinks(self) -> list[Connector]:
        return [OURS, OURS_AT_LEAST_ONCE, *self.sources[1:]]

    @property
    def _floor_records(self) -> int:
        """Enough that no trigger of a floor trial finds its topic read to the end."""
        return 2 * (self.plan.floor_warm + self.plan.floor_count) * self.plan.floor_rows

    def fill(self, server: Server) -> None:
        """Write the topics that are read."""
        topics: dict[str, tuple[int, int]] = {}
        if "archive" in self.parts:
            topics["archive"] = (SIZES[0], self.plan.archive_count)
        if "rates" in self.parts:
            topics |= {_source(size): (size, self.plan.counts[size]) for size in SIZES}
        if "triggers" in self.parts:
            topics["floor"] = (SIZES[0], self._floor_records)
        for topic, (size, count) in topics.items():
            asked = trials.job(server, topic, size=size, count=count, partitions=PARTITIONS)
            for action in ("produce", "check"):
                trials.do(server, action, asked)

    def measure(self, place: Place) -> None:
        measures = {
            "archive": self._measure_archive,
            "rates": self._measure_rates,
            "triggers": self._measure_floors,
            "latency": self._measure_latency,
        }
        assert tuple(measures) == PARTS
        for part in PARTS:
            if part in self.parts:
                measures[part](place)

    def _measure_rates(self, place: Place) -> None:
        files = {size: self._kept(place, size) for size in SIZES}
        for size, rows in files.items():
            self._measure_reads(place, size, rows)
        for size, rows in files.items():
            self._measure_writes(place, size, rows)

    def _measure_archive(self, place: Place) -> None:
        count = self.plan.archive_count
        for number in range(self.plan.rounds + 1):
            setting = LATER_JOBS if number else FIRST_JOB
            self._try(
                MILLSTREAM,
                setting,
                number,
                lambda n: trials.archived(place, topic="archive", count=count, number=n),
            )

    def _kept(self, place: Place, size: int) -> DataFrame:
        """The same rows as a file, uncompressed: what Spark reads fastest."""
        path = str(place.root / f"rows-{size}")
        rows = OURS.read(place.spark, place.server.address, _source(size))
        rows.write.option("compression", "none").parquet(path)
        return place.spark.read.parquet(path)

    def _measure_reads(self, place: Place, size: int, rows: DataFrame) -> None:
        count = self.plan.counts[size]

        def reading(source: Connector | None) -> Trial:
            def trial(_: int) -> dict[str, float]:
                # Opened each time: the offsets to read are looked up anew, as in every job.
                frame = (
                    rows
                    if source is None
                    else source.read(place.spark, place.server.address, _source(size))
                )
                return trials.read(place, frame, size=size, count=count)

            return trial

        ways = {source.name: reading(source) for source in [*self.sources, *self.alike]}
        self._rounds(f"read {size} B", ways | {PARQUET: reading(None)}, warm=self.plan.warm_rounds)

    def _measure_writes(self, place: Place, size: int, rows: DataFrame) -> None:
        count = self.plan.counts[size]

        def writing(sink: Connector) -> Trial:
            def trial(_: int) -> dict[str, float]:
                topic = self._new_topic(place)
                return trials.write(place, sink, rows, topic=topic, size=size, count=count)

            return trial

        ways = {sink.name: writing(sink) for sink in [*self.sinks, *self.alike]}
        self._rounds(f"write {size} B", ways, warm=self.plan.warm_rounds)

    def _measure_floors(self, place: Place) -> None:
        for setting, has_sink in ((TO_NOTHING, False), (TO_TOPIC, True)):
            ways = {
                source.name: self._floor_of(place, source, source if has_sink else None)
                for source in self.sources
            }
            self._rounds(setting, ways)

    def _floor_of(self, place: Place, source: Connector, sink: Connector | None) -> Trial:
        plan = self.plan
        return lambda _: trials.floor(
            place,
            source,
            sink,
            topic="floor",
            to=self._new_topic(place),
            rows=plan.floor_rows,
            warm=plan.floor_warm,
            count=plan.floor_count,
        )

    def _measure_latency(self, place: Place) -> None:
        setting = f"{self.plan.latency_size} B at {LATENCY_RATE:,} records/s"
        both = [*self.sources, *self.alike]
        ways = {connector.name: self._latency_of(place, connector) for connector in both}
        # Once unreported: records that wait for a first trigger delay all that come after them.
        self._rounds(setting, ways, warm=1)

    def _latency_of(self, place: Place, way: Connector) -> Trial:
        def trial(_: int) -> dict[str, float]:
            self._topics += 1
            return trials.latency(
                place,
                way,
                way,
                topic=f"latency-{self._topics}",
                size=self.plan.latency_size,
                rate=LATENCY_RATE,
                warm_s=self.plan.latency_warm_s,
                measured_s=self.plan.latency_measured_s,
            )

        return trial

    def _rounds(self, setting: str, ways: dict[str, Trial], *, warm: int = 0) -> None:
        for number in range(-warm, self.plan.rounds):
            for name in turn(list(ways), number):
                self._try(name, setting, number, ways[name])

    def _try(self, name: str, setting: str, number: int, trial: Trial) -> None:
        title = f"{name}, {setting}, round {number + 1}"
        try:
            values = trial(number)
        except BROKEN as problem:
            self.failures.append(f"{title}: {_first_line(problem)}")
            _say(self.failures[-1])
            return
        _say(f"{title}: " + ", ".join(f"{key} {value:,.3f}" for key, value in values.items()))
        for key, value in values.items():
            if number >= 0:
                self.samples.add(
                    Sample(
                        peer=name,
                        durability=DURABILITY,
                        setting=setting,
                        name=key,
                        round=number,
                        value=value,
                    )
                )

    def _new_topic(self, place: Place) -> str:
        self._topics += 1
        topic = f"written-{self._topics}"
        asked = trials.job(place.server, topic, size=SIZES[0], count=0, partitions=PARTITIONS)
        trials.do(place.server, "create", asked)
        return topic


def _source(size: int) -> str:
    return f"source-{size}"


def _first_line(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines()
    return lines[0] if lines else type(problem).__name__


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
