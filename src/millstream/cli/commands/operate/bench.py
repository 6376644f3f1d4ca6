"""`millstream bench`: how fast the cluster is, with every record read back and compared."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from millstream.cli.connection import Target, connection_options, open_client
from millstream.cli.render import Answer, Refused, answered, card, progress

if TYPE_CHECKING:
    from millstream.benchmark import BenchmarkResult


@click.command()
@click.option("--count", "message_count", default=100_000, show_default=True, metavar="N")
@click.option("--size", "message_size", default=1_000, show_default=True, metavar="BYTES")
@click.option("--batch", "batch_size", default=1_000, show_default=True, metavar="RECORDS")
@click.option("--threads", default=1, show_default=True, help="Producers, then consumers.")
@click.option(
    "--topic",
    default="millstream-benchmark",
    show_default=True,
    help="Deleted afterwards, unless it was there before.",
)
@answered
@connection_options
def bench(target: Target, **options: int | str) -> Answer:
    """Write records, read them back, compare every one, and show rates and latencies.

    The exit code is 1 if a record is missing, doubled or damaged.
    """
    from millstream.benchmark import BenchmarkConfig, BenchmarkFailed, run_benchmark

    try:
        config = BenchmarkConfig(**options)  # type: ignore[arg-type]  # By name and type of flags.
    except ValueError as problem:
        raise click.UsageError(f"{problem}.") from None
    with (
        open_client(target) as client,  # Fails at once, with one sentence, without a broker.
        progress("writing and reading", 2 * config.message_count) as advance,
    ):
        try:
            result = run_benchmark(
                target.bootstrap,
                config,
                # Warnings at most: librdkafka also logs its own cleaning up.
                options={"log_level": "4", **target.settings},
                on_progress=_steps(advance),
                explain_stall=client.explain_stall,
            )
        except BenchmarkFailed as problem:
            raise Refused(str(problem)) from problem
    return Answer(_data(result), _text(result), result.is_verified)


def _steps(advance: Callable[[int], object]) -> Callable[[str, int, int], None]:
    """Turn running totals, of writing and then of reading, into steps."""
    seen: dict[str, int] = {}

    def on_progress(phase: str, done: int, total: int) -> None:
        advance(done - seen.get(phase, 0))
        seen[phase] = done

    return on_progress


def _data(result: "BenchmarkResult") -> dict[str, object]:
    rates = {
        name: {"records_per_s": round(rate.records_per_s), "mib_per_s": round(rate.mib_per_s, 1)}
        for name, rate in (("produced", result.produced), ("consumed", result.consumed))
    }
    return {**asdict(result), **rates, "is_verified": result.is_verified}


def _text(result: "BenchmarkResult") -> str:
    latency = result.latency
    bad = f"{result.missing} missing, {result.duplicated} doubled, {result.damaged} damaged"
    lines = {
        name: f"{rate.records_per_s:,.0f} records/s, {rate.mib_per_s:,.1f} MiB/s"
        for name, rate in (("written", result.produced), ("read", result.consumed))
    }
    lines["latency"] = (
        f"p50 {latency.p50_ms:.1f} ms, p95 {latency.p95_ms:.1f} ms, "
        f"p99 {latency.p99_ms:.1f} ms, max {latency.max_ms:.1f} ms"
    )
    count = result.config.message_count
    lines["verified"] = f"all {count:,} records came back" if result.is_verified else bad
    return card(lines)
