"""Measures all of it and writes `benchmarks/results/security.{md,json}`."""

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.hot_path import Cell
from benchmarks.kafka.install import Unavailable, kafka_jars
from benchmarks.kafka.peers import KAFKA, MILLSTREAM, Server
from benchmarks.report import Figure, publish
from benchmarks.security import connections, decisions
from benchmarks.security.cells import CELLS, FETCH, LARGE, SMALL, Timing, measure
from benchmarks.security.client import remember_hashes
from benchmarks.security.peers import (
    AT_REST,
    PLAIN,
    SASL,
    SASL_TLS,
    TLS,
    Files,
    Variant,
    kafkas,
    ours,
)

# Parts of the rate of plain text, by the broker's CPU time, in turns side by side.
SASL_MIN = 0.97
AT_REST_MIN = {SMALL: 0.93, LARGE: 0.88, FETCH: 0.5}
TLS_CPU_S_PER_GB_MAX = {LARGE: 0.9, FETCH: 0.6}
TLS_RATE_MIN = 0.5
KAFKAS_TLS_MIN = 1.0

Measured = dict[tuple[str, str], Timing]  # By broker and kind of security.


def variants(files: Files, jars: Path | None) -> list[Variant]:
    chosen = [ours(kind, files) for kind in (PLAIN, SASL, TLS, SASL_TLS, AT_REST)]
    if jars is not None:
        chosen += [kafkas(kind, jars, files) for kind in (TLS, SASL_TLS)]
    return chosen


def figures_of(cell: str, timings: Measured) -> Iterator[Figure]:
    for (broker, kind), timing in timings.items():
        settings = f"{timing.rate:,.0f} requests/s, {timing.cpu_s_per_gb:.2f} CPU-s/GB"
        yield Figure(f"{cell}, {broker}, {kind}", timing.median_us, "us of CPU", settings)
    yield from goals_of(cell, timings)


def goals_of(cell: str, timings: Measured) -> Iterator[Figure]:
    """The goals of this cell, held against what was measured beside one another."""
    plain, tls = timings[MILLSTREAM, PLAIN], timings[MILLSTREAM, TLS]
    for kind, least in ((SASL, SASL_MIN), (AT_REST, AT_REST_MIN[cell])):
        part = timings[MILLSTREAM, kind].part_of(plain)
        yield _at_least(f"{cell}: {kind}, part of plain", part, least, "by CPU time")
    if cell in TLS_CPU_S_PER_GB_MAX:
        more, most = tls.more_than(plain), TLS_CPU_S_PER_GB_MAX[cell]
        yield Figure(
            f"{cell}: tls, more than plain", more, "CPU-s/GB", "", f"<= {most}", more <= most
        )
    part = tls.rate / plain.rate
    yield _at_least(f"{cell}: tls, part of plain", part, TLS_RATE_MIN, "by the clock, best turns")
    kafka = timings.get((KAFKA, TLS))
    if kafka is not None:
        part = tls.rate / kafka.rate
        settings = "by the clock, best turns, same client"
        yield _at_least(f"{cell}: tls, part of Kafka's tls", part, KAFKAS_TLS_MIN, settings)


def throughput(
    chosen: list[Variant], cells: list[Cell], files: Files, directory: Path
) -> Iterator[Figure]:
    """All brokers are started once, and serve every cell."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Server(variant.peer, directory / str(at), "write"))
            for at, variant in enumerate(chosen)
        ]
        named = [(variant.peer.name, variant.kind) for variant in chosen]
        for cell in cells:
            timings = measure(servers, chosen, cell, files.ca)
            yield from figures_of(cell.name, dict(zip(named, timings, strict=True)))
            print(f"measured {cell.name}", flush=True)


def _at_least(name: str, value: float, least: float, settings: str) -> Figure:
    return Figure(name, value, "", settings, f">= {least}", value >= least)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.security")
    parser.add_argument("--cells", default="*")
    parser.add_argument("--no-kafka", action="store_true")
    arguments = parser.parse_args()
    remember_hashes()
    try:
        jars = None if arguments.no_kafka else kafka_jars()
    except Unavailable as reason:
        print(f"without Apache Kafka: {reason}")
        jars = None
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory:
        files = Files(Path(directory) / "files")
        figures = [*decisions.figures(), *connections.figures(files)]
        print("measured decisions and connections", flush=True)
        cells = [cell for cell in CELLS if fnmatch(cell.name, arguments.cells)]
        figures += throughput(variants(files, jars), cells, files, Path(directory))
    figures.append(Figure("load before the run", load, "", "1 minute"))
    publish("security", "python -m benchmarks.security", figures)


if __name__ == "__main__":
    main()
