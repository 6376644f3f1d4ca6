"""One measurement of one way between Spark and the broker, proven and not averaged.

A trial that could not be proven raises `TrialFailed` and gives no figure: rows are counted while
they are read, and what was written is compared with what should have been, value by value.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.
from pyspark.sql.streaming import StreamingQuery

from benchmarks.kafka.comparison import percentile
from benchmarks.kafka.job import Job
from benchmarks.kafka.peers import Server
from benchmarks.kafka.trials import Client, TrialFailed
from benchmarks.spark.connectors import OURS, Connector
from millstream.spark.pipelines.queries import Context
from millstream.spark.pipelines.ready import archive

QUERY_SECONDS_MAX = 120
POLL_SECONDS = 0.05
# What Spark says a trigger spent its time on, and what we call it.
PARTS = {
    "triggerExecution": "trigger_s",
    "latestOffset": "trigger_offsets_s",
    "queryPlanning": "trigger_planning_s",
    "walCommit": "trigger_wal_s",
    "addBatch": "trigger_work_s",
    "commitOffsets": "trigger_log_s",
}
PERCENTILES = {"p50": 0.5, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where trials happen: the session, the broker, and a directory for what they leave."""

    spark: SparkSession
    server: Server
    root: Path


def job(server: Server, topic: str, *, size: int, count: int, partitions: int, **paced: int) -> Job:
    """What a client is asked to do with a topic."""
    return Job(
        address=server.address,
        topic=topic,
        partitions=partitions,
        acks="all",
        size=size,
        count=count,
        **paced,
    )


def do(server: Server, action: str, asked: Job) -> None:
    """Have a client do it, to the end."""
    client = Client(server.peer, action, asked)
    client.go()
    client.result()


def read(place: Place, frame: DataFrame, *, size: int, count: int) -> dict[str, float]:
    """All rows with all columns into Spark's sink that drops them."""
    seen = Observation()
    observed = frame.observe(
        seen, F.count(F.lit(1)).alias("rows"), F.sum(F.octet_length("value")).alias("bytes")
    )
    cpu = place.server.cpu_seconds()
    begin = time.perf_counter()
    observed.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - begin
    cpu = place.server.cpu_seconds() - cpu
    check_counts(seen.get, {"rows": count, "bytes": count * size})
    return rates(count, size, seconds) | {"broker_cpu_us": cpu / count * 1e6}


def write(
    place: Place, connector: Connector, rows: DataFrame, *, topic: str, size: int, count: int
) -> dict[str, float]:
    """Rows with keys from a file into a topic; what it holds then is compared with the file."""
    keyed = rows.selectExpr("substring(value, 1, 8) as key", "value")
    writer = connector.sink(keyed.write.mode("append"), place.server.address, topic)
    cpu = place.server.cpu_seconds()
    begin = time.perf_counter()
    writer.save()
    seconds = time.perf_counter() - begin
    cpu = place.server.cpu_seconds() - cpu
    written = OURS.read(place.spark, place.server.address, topic).select("value")
    check_counts(fingerprint(written), fingerprint(rows))
    return rates(count, size, seconds) | {"broker_cpu_us": cpu / count * 1e6}


def floor(
    place: Place,
    source: Connector,
    sink: Connector | None,
    *,
    topic: str,
    to: str,
    rows: int,
    warm: int,
    count: int,
) -> dict[str, float]:
    """How long a trigger takes that has next to nothing to do; without a sink, rows are dropped."""
    address = place.server.address
    frame = source.read_stream(place.spark, address, topic, maxOffsetsPerTrigger=str(rows))
    writer = frame.select("value").writeStream
    opened = writer.format("noop") if sink is None else sink.sink(writer, address, to)
    query = _started(opened, place, f"floor-{to}")
    try:
        _wait(query, lambda: len(_triggers(query)) >= warm + count)
    finally:
        query.stop()
    measured = _triggers(query)[warm : warm + count]
    seconds = {part: median(trigger.get(part, 0.0) for trigger in measured) for part in PARTS}
    worst = max(trigger["triggerExecution"] for trigger in measured)
    return {name: seconds[part] for part, name in PARTS.items()} | {"trigger_worst_s": worst}


def latency(
    place: Place,
    source: Connector,
    sink: Connector,
    *,
    topic: str,
    size: int,
    rate: int,
    warm_s: float,
    measured_s: float,
) -> dict[str, float]:
    """From when a record was due, through a topic, Spark and another topic, to a consumer."""
    warm_count = int(rate * warm_s)
    shape = {"size": size, "count": warm_count + int(rate * measured_s), "partitions": 2}
    paced = {"rate": rate, "warm_count": warm_count}
    here = job(place.server, topic, **shape, **paced)
    there = job(place.server, f"{topic}-out", **shape, **paced)
    do(place.server, "create", here)
    receiver = Client(place.server.peer, "receive", there)
    frame = source.read_stream(place.spark, place.server.address, topic).select("value")
    opened = sink.sink(frame.writeStream, place.server.address, there.topic)
    query, sender = None, None
    try:
        query = _started(opened, place, f"latency-{topic}")
        sender = Client(place.server.peer, "send", here)
        receiver.go()
        sender.go()
        sender.result()
        latencies = receiver.result()["latencies_us"]
    finally:
        for client in (receiver, sender):
            if client is not None:
                client.kill()
        if query is not None:
            query.stop()
    assert isinstance(latencies, list)
    ordered = sorted(latencies)
    return {f"{name}_ms": percentile(ordered, part) / 1000 for name, part in PERCENTILES.items()}


def archived(place: Place, *, topic: str, count: int, number: int) -> dict[str, float]:
    """The pipeline *archive* over a topic, to the end."""
    path = place.root / f"archive-{number}"
    state = str(place.root / "state")
    context = Context(
        spark=place.spark,
        bootstrap=place.server.address,
        state_dir=state,
        name=f"archive-{number}",
    )
    begin = time.perf_counter()
    archive.run(context, archive.Parameters(topic=topic, path=str(path)))
    seconds = time.perf_counter() - begin
    kept = place.spark.read.parquet(str(path)).count()
    check_counts({"rows": kept}, {"rows": count})
    return {"archive_s": seconds}


def rates(count: int, size: int, seconds: float) -> dict[str, float]:
    return {"rows_per_s": count / seconds, "mb_per_s": count * size / seconds / 1e6}


def fingerprint(frame: DataFrame) -> dict[str, int]:
    """Tells a set of values from any that lacks some or has some twice."""
    mixed = F.bit_xor(F.xxhash64("value")).alias("values")
    row = frame.agg(F.count(F.lit(1)).alias("rows"), mixed).first()
    assert row is not None
    return row.asDict()


def check_counts(counts: dict[str, int], expected: dict[str, int]) -> None:
    if counts != expected:
        raise TrialFailed(f"found {counts}, expected {expected}")


def _started(writer: Any, place: Place, name: str) -> StreamingQuery:  # Spark's stream writer.
    checkpoint = str(place.root / "checkpoints" / name)
    opened = writer.option("checkpointLocation", checkpoint)
    query: StreamingQuery = opened.trigger(processingTime="0 seconds").start()
    return query


def _triggers(query: StreamingQuery) -> list[dict[str, float]]:
    """What each trigger so far that had rows spent on what, in seconds, as Spark calls it."""
    return [
        {part: spent_ms / 1000 for part, spent_ms in progress.durationMs.items()}
        for progress in query.recentProgress
        if progress.numInputRows
    ]


def _wait(query: StreamingQuery, is_done: Any) -> None:  # A function without arguments.
    until = time.monotonic() + QUERY_SECONDS_MAX
    while not is_done():
        problem = query.exception()
        if problem is not None or time.monotonic() > until:
            raise TrialFailed(f"the query did not get through: {problem}")
        time.sleep(POLL_SECONDS)
