"""How a run is printed and kept: a table for each kind of figure, every raw value as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from benchmarks.kafka.comparison import Goal, Samples, at_least
from benchmarks.report import keep, machine, number, table, verdict
from benchmarks.spark.connectors import (
    CONNECTOR,
    MASTER,
    MILLSTREAM,
    OURS_ALIKE_NAME,
    PARQUET,
    THEIRS_ALIKE_NAME,
)
from benchmarks.spark.install import CLIENTS_VERSION, CONNECTOR_VERSION, TOKENS_VERSION
from benchmarks.spark.run import (
    DURABILITY,
    FIRST_JOB,
    LATENCY_RATE,
    LATER_JOBS,
    PARTITIONS,
    SIZES,
    TO_NOTHING,
    TO_TOPIC,
    Run,
)

RATIO_GOAL = 1.0
SINK_GOAL = 300_000
FLOOR_GOAL = 0.3
LATENCY_GOALS_MS = (150, 300)  # p50, p99.
TRIGGER_PARTS = {
    "offsets (latestOffset)": "trigger_offsets_s",
    "planning (queryPlanning)": "trigger_planning_s",
    "Spark's logs (walCommit)": "trigger_wal_s",
    "tasks and commit (addBatch)": "trigger_work_s",
    "Spark's logs (commitOffsets)": "trigger_log_s",
}
ARCHIVE_COUNT, ARCHIVE_GOAL = 1_000_000, 5.0


def publish(run: Run, *, command: str, part: str, facts: Mapping[str, str]) -> None:
    """Print the tables and write them to `benchmarks/results/<part>.{md,json}`."""
    known = machine() | dict(facts)
    text = render(run, command=command, facts=known)
    content = {
        "command": command,
        "machine": known,
        "plan": asdict(run.plan),
        "failures": run.failures,
        "samples": [asdict(sample) for sample in run.samples.all],
    }
    keep(part, text, content)


def render(run: Run, *, command: str, facts: Mapping[str, str]) -> str:
    lines = ["# spark", "", f"`{command}`", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += _settings(run)
    if run.failures:
        lines += ["", "## Trials that failed, and gave no figure", ""]
        lines += [f"- {failure}" for failure in run.failures]
    lines += ["", "## Reading a topic (batch, all columns, into noop)", "", *_reads(run)]
    lines += ["", "## Writing a topic (batch, keys and values, from Parquet)", "", *_writes(run)]
    if run.alike:
        lines += ["", "## Both at equal settings", "", *_alike(run)]
    lines += ["", "## Triggers, latency, archive", "", *_others(run)]
    return "\n".join(lines) + "\n"


def _settings(run: Run) -> list[str]:
    plan = run.plan
    counts = ", ".join(f"{count:,} of {size} B" for size, count in plan.counts.items())
    connector = (
        f"spark-sql-kafka-0-10 {CONNECTOR_VERSION} with kafka-clients {CLIENTS_VERSION} and token "
        f"provider {TOKENS_VERSION}, in the same session. **Not the connector of Spark 4.3**: "
        "Maven Central had none, and these are the newest that could be had together"
    )
    facts = {
        CONNECTOR: connector if run.has_connector else "not available, left out",
        "session": f"{MASTER}, the settings of `millstream.spark.session`; broker, session and "
        "clients share the cores",
        "topics": f"{PARTITIONS} partitions, durability {DURABILITY}, values that do not compress",
        "rows": f"{counts}; counted in every read, compared value by value after every write",
        "rounds": f"{plan.rounds} in turns; before them {plan.warm_rounds} for rates and 1 for "
        "latency, to warm up; figures are "
        "medians, ratios are medians of the rounds' ratios",
        "options": "at their defaults on both sides unless said otherwise: ours reads committed "
        "records only and asks for 4 MiB, the connector reads all records and asks for 1 MiB; "
        "ours writes batches of up to 512 KiB, in transactions unless said otherwise, the "
        "connector of 16 KiB without",
        "equal settings": "both read committed records in fetches of 4 MiB, and write batches of "
        "up to 512 KiB with acks=all and idempotence but without transactions, a task for each "
        "partition; the connector lingers 5 ms to fill its batches",
        "trigger": f"median of {plan.floor_count} with {plan.floor_rows} rows, after "
        f"{plan.floor_warm}",
        "latency": f"from when a record was due at {LATENCY_RATE:,} records/s, through a topic, a "
        "query that changes nothing and another topic, to a librdkafka consumer of committed "
        f"records; {plan.latency_measured_s:g} s after {plan.latency_warm_s:g} s",
    }
    return [f"- {name}: {text}" for name, text in facts.items()]


def _reads(run: Run) -> list[str]:
    ways = [MILLSTREAM, *([CONNECTOR] if run.has_connector else []), PARQUET]
    rows = []
    for size in SIZES:
        setting = f"read {size} B"
        ratio = run.samples.ratio(MILLSTREAM, CONNECTOR, DURABILITY, setting, "rows_per_s")
        goal = verdict(at_least(ratio, RATIO_GOAL))
        rows.append([f"{size} B", *_rates(run.samples, ways, setting), number(ratio), goal])
    heads = ["records", *(f"{way}, rows/s (MB/s)" for way in ways), "ratio to connector", "goal"]
    return table(heads, rows)


def _writes(run: Run) -> list[str]:
    ways = [sink.name for sink in run.sinks]
    rows = []
    for size in SIZES:
        setting = f"write {size} B"
        ratio = run.samples.ratio(MILLSTREAM, CONNECTOR, DURABILITY, setting, "rows_per_s")
        ours = run.samples.median(MILLSTREAM, DURABILITY, setting, "rows_per_s")
        goal = None
        if ours is not None and size == SIZES[0]:
            goal = Goal(text=f">= {SINK_GOAL:,} rows/s", is_met=ours >= SINK_GOAL)
        rates = _rates(run.samples, ways, setting)
        rows.append([f"{size} B", *rates, number(ratio), verdict(goal)])
    heads = ["records", *(f"{way}, rows/s (MB/s)" for way in ways), "ratio to connector", "goal"]
    return table(heads, rows)


def _alike(run: Run) -> list[str]:
    """Throughput and latency side by side, with the same promise and the same sizes."""
    samples = run.samples

    def row(title: str, setting: str, name: str) -> list[str]:
        ours, theirs = (
            samples.median(way, DURABILITY, setting, name)
            for way in (OURS_ALIKE_NAME, THEIRS_ALIKE_NAME)
        )
        ratio = samples.ratio(OURS_ALIKE_NAME, THEIRS_ALIKE_NAME, DURABILITY, setting, name)
        return [title, number(ours), number(theirs), number(ratio)]

    rates = [
        row(f"{act} {size} B, rows/s", f"{act} {size} B", "rows_per_s")
        for act in ("read", "write")
        for size in SIZES
    ]
    paced = _paced(run)
    latencies = [row(f"end to end {part}, ms", paced, f"{part}_ms") for part in ("p50", "p99")]
    return table(["", "Millstream", "Kafka connector", "ratio"], [*rates, *latencies])


def _paced(run: Run) -> str:
    return f"{run.plan.latency_size} B at {LATENCY_RATE:,} records/s"


def _others(run: Run) -> list[str]:
    ways = [source.name for source in run.sources]

    def row(title: str, setting: str, name: str, most: float | None = None) -> list[str]:
        medians = [run.samples.median(way, DURABILITY, setting, name) for way in ways]
        ours = medians[0]
        goal = None
        if ours is not None and most is not None:
            goal = Goal(text=f"<= {most:g}", is_met=ours <= most)
        return [title, *map(number, medians), verdict(goal)]

    def parts(setting: str) -> list[list[str]]:
        return [row(f"- of which {title}", setting, name) for title, name in TRIGGER_PARTS.items()]

    paced = _paced(run)
    is_whole = run.plan.archive_count == ARCHIVE_COUNT
    first = ARCHIVE_GOAL if is_whole else None
    archived = f"{run.plan.archive_count:,} rows to Parquet by the pipeline archive, s"
    return table(
        ["", *ways, "goal"],
        [
            row(f"trigger, {TO_NOTHING}, s", TO_NOTHING, "trigger_s", FLOOR_GOAL),
            *parts(TO_NOTHING),
            row(f"trigger, {TO_TOPIC}, s", TO_TOPIC, "trigger_s", FLOOR_GOAL),
            *parts(TO_TOPIC),
            row("end to end p50, ms", paced, "p50_ms", LATENCY_GOALS_MS[0]),
            row("end to end p99, ms", paced, "p99_ms", LATENCY_GOALS_MS[1]),
            row(f"{archived}, {FIRST_JOB}", FIRST_JOB, "archive_s", first),
            row(f"{archived}, {LATER_JOBS}", LATER_JOBS, "archive_s"),
        ],
    )


def _rates(samples: Samples, ways: Sequence[str], setting: str) -> list[str]:
    lines = []
    for way in ways:
        rows = samples.median(way, DURABILITY, setting, "rows_per_s")
        size = samples.median(way, DURABILITY, setting, "mb_per_s")
        lines.append("-" if rows is None else f"{number(rows)} ({number(size)})")
    return lines
