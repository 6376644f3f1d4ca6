"""Reports rates, sizes, latency and skew of topics as tables.

Reads what topics hold now and writes to none. A record has one time, its producer's or the
broker's. With `sent_at`, latency is that time less the time of sending; without it the time is
compared with now, and the figures are ages.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.

from millstream.spark.errors import InvalidOption
from millstream.spark.pipelines.queries import Context, read
from millstream.spark.pipelines.ready import records
from millstream.spark.pipelines.ready.records import RECORD
from millstream.spark.pipelines.summaries import Summary

BUCKETS_MAX = 120  # A plot shows no more points than this.
ASKED_BUCKETS_MAX = 5000  # The most that the parameter `bucket` may lead to.
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
KEY_LENGTH_MAX = 80  # Of a key as shown; longer ones that begin alike count as one.

_NICE_SECONDS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 6 * 3600, 86_400, 7 * 86_400)
_ACCURACY = 1000


class Parameters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Report rates, sizes, latency and skew of topics as tables."""

    topic: str  # One or more, with commas.
    output: str | None = None  # Directory for traffic.json.
    schema: str | None = None  # DDL of the JSON value, if `sent_at` names fields of it.
    sent_at: str | None = None  # SQL of when a record was sent.
    from_time: datetime | None = None  # Included; a time without a zone is UTC.
    until_time: datetime | None = None  # Excluded.
    bucket: str | None = None  # Of rates; chosen by the time between first and last.
    keys: int = 10  # How many of the most frequent keys.

    def __post_init__(self) -> None:
        records.name(topic=self.topic, output=self.output, sent_at=self.sent_at)
        records.positive(keys=self.keys)
        if self.bucket is not None:
            records.interval("bucket", self.bucket)
        self.from_time = records.utc(self.from_time)
        self.until_time = records.utc(self.until_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """One row for each topic; topic and time; topic; topic and partition; topic and key."""

    topics: DataFrame
    rates: DataFrame
    latency: DataFrame
    partitions: DataFrame
    keys: DataFrame


def facts(frame: DataFrame, parameters: Parameters, now: datetime) -> DataFrame:
    """Return topic, partition, timestamp, key, size_bytes and latency_ms of each record."""
    rows = records.parsed(frame, parameters.schema)
    when = F.col(f"{RECORD}.timestamp")
    if parameters.from_time is not None:
        rows = rows.where(when >= F.lit(parameters.from_time))
    if parameters.until_time is not None:
        rows = rows.where(when < F.lit(parameters.until_time))
    start, end = when, F.lit(now)
    if parameters.sent_at is not None:
        with records.blaming("sent_at", parameters.sent_at):
            start, end = F.expr(parameters.sent_at).cast("timestamp"), when
            rows.select(start)
    key, value = F.col(f"{RECORD}.key"), F.col(f"{RECORD}.value")
    sizes = [F.coalesce(F.octet_length(part), F.lit(0)) for part in (key, value)]
    return rows.select(
        F.col(f"{RECORD}.topic").alias("topic"),
        F.col(f"{RECORD}.partition").alias("partition"),
        when.alias("timestamp"),
        F.substring(key.cast("string"), 1, KEY_LENGTH_MAX).alias("key"),
        value.isNull().alias("is_tombstone"),
        (sizes[0] + sizes[1]).cast("bigint").alias("size_bytes"),
        ((F.unix_micros(end) - F.unix_micros(start)) / 1000).alias("latency_ms"),
    )


def measured(rows: DataFrame, *, bucket_seconds: int, keys: int) -> Tables:
    """Compute the tables from `facts`."""
    return Tables(
        topics=_topics(rows).orderBy("topic"),
        rates=_rates(rows, bucket_seconds).orderBy("topic", "time"),
        latency=_latency(rows).orderBy("topic"),
        partitions=_shares(rows, "partition").orderBy("topic", "partition"),
        keys=_top_keys(rows, keys),
    )


def bucket_seconds(span_seconds: float) -> int:
    """Return the shortest round time that needs at most `BUCKETS_MAX` buckets."""
    enough = (nice for nice in _NICE_SECONDS if span_seconds <= nice * BUCKETS_MAX)
    return next(enough, max(_NICE_SECONDS[-1], int(span_seconds / BUCKETS_MAX) + 1))


def filled(rates: Sequence[Mapping[str, object]], step_seconds: int) -> list[dict[str, object]]:
    """Add a row with rates of 0 for every bucket between first and last that has no records."""
    if not rates:
        return []
    known = {(str(row["topic"]), datetime.fromisoformat(str(row["time"]))): row for row in rates}
    first, last = min(at for _, at in known), max(at for _, at in known)
    count = int((last - first).total_seconds()) // step_seconds + 1
    none = {name: 0.0 for name in rates[0] if name not in ("topic", "time")}
    every = []
    for topic in sorted({topic for topic, _ in known}):
        for index in range(count):
            at = first + timedelta(seconds=index * step_seconds)
            row = known.get((topic, at), none)
            every.append({**row, "topic": topic, "time": at.isoformat()})
    return every


def reads(parameters: Parameters) -> list[str]:
    return records.topics(parameters.topic)


def writes(_: Parameters) -> list[str]:
    return []


def run(context: Context, parameters: Parameters) -> Summary:
    started = time.monotonic()
    now = datetime.now(UTC)
    rows = facts(read(context, parameters.topic), parameters, now).persist()
    try:
        step = _bucket(rows, parameters)
        tables = measured(rows, bucket_seconds=step, keys=parameters.keys)
        plain = {name: records.rows(getattr(tables, name)) for name in Tables.__dataclass_fields__}
    finally:
        rows.unpersist()
    plain["rates"] = filled(plain["rates"], step)
    latency_is = "latency" if parameters.sent_at else "age"
    if parameters.output is not None:
        _write(Path(parameters.output), plain, latency_is, now)
    row_count = sum(int(str(row["records"])) for row in plain["topics"])
    return Summary(rows_in=row_count, seconds=time.monotonic() - started).with_details(
        **plain, latency_is=latency_is, output=parameters.output
    )


# -- tables ----------------------------------------------------------------------------------------


def _topics(rows: DataFrame) -> DataFrame:
    totals = rows.groupBy("topic").agg(
        F.count(F.lit(1)).alias("records"),
        F.count_distinct("partition").alias("partitions"),
        F.sum("size_bytes").alias("bytes"),
        F.avg("size_bytes").alias("bytes_mean"),
        *_percentiles("size_bytes", "bytes_"),
        F.max("size_bytes").alias("bytes_max"),
        F.count_if(F.col("key").isNull()).alias("without_key"),
        F.count_if("is_tombstone").alias("tombstones"),
        F.approx_count_distinct("key").alias("keys_about"),
        F.min("timestamp").alias("first"),
        F.max("timestamp").alias("last"),
    )
    span = (F.unix_micros("last") - F.unix_micros("first")) / 1_000_000
    # Records that all have the same time have no rate.
    rate = F.when(span > 0, F.col("records") / span)
    return totals.withColumns(
        {"records_per_second": rate, "bytes_per_second": rate * F.col("bytes_mean")}
    )


def _rates(rows: DataFrame, seconds: int) -> DataFrame:
    at = F.window("timestamp", f"{seconds} seconds")["start"].alias("time")
    return rows.groupBy("topic", at).agg(
        (F.count(F.lit(1)) / seconds).alias("records_per_second"),
        (F.sum("size_bytes") / seconds).alias("bytes_per_second"),
    )


def _latency(rows: DataFrame) -> DataFrame:
    known = rows.where(F.col("latency_ms").isNotNull())
    return known.groupBy("topic").agg(
        F.count(F.lit(1)).alias("records"),
        *_percentiles("latency_ms", "ms_"),
        F.max("latency_ms").alias("ms_max"),
    )


def _shares(rows: DataFrame, column: str) -> DataFrame:
    counts = rows.groupBy("topic", column).agg(
        F.count(F.lit(1)).alias("records"), F.sum("size_bytes").alias("bytes")
    )
    total = F.sum("records").over(Window.partitionBy("topic"))
    return counts.withColumn("share", F.col("records") / total)


def _top_keys(rows: DataFrame, count: int) -> DataFrame:
    most = Window.partitionBy("topic").orderBy(F.desc("records"), F.asc_nulls_last("key"))
    ranked = _shares(rows, "key").withColumn("rank", F.row_number().over(most))
    return ranked.where(F.col("rank") <= count).orderBy("topic", "rank")


def _percentiles(column: str, prefix: str) -> list[Column]:
    return [
        F.percentile_approx(column, at, _ACCURACY).alias(prefix + name)
        for name, at in PERCENTILES.items()
    ]


# -- output ----------------------------------------------------------------------------------------


def _bucket(rows: DataFrame, parameters: Parameters) -> int:
    micros = F.unix_micros(F.max("timestamp")) - F.unix_micros(F.min("timestamp"))
    row = rows.agg(micros.alias("span")).head()
    span_seconds = (row["span"] or 0) / 1_000_000 if row is not None else 0
    if parameters.bucket is None:
        return bucket_seconds(span_seconds)
    seconds = records.seconds("bucket", parameters.bucket)
    if span_seconds / seconds > ASKED_BUCKETS_MAX:
        raise InvalidOption(
            f"bucket is {parameters.bucket!r}, which makes {span_seconds / seconds:.0f} points of "
            f"each topic, expected at most {ASKED_BUCKETS_MAX}"
        )
    return seconds


def _write(
    directory: Path, tables: Mapping[str, list[dict[str, object]]], latency_is: str, now: datetime
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"at": now.isoformat(), "latency_is": latency_is, **tables}, indent=1)
    (directory / "traffic.json").write_text(text, encoding="utf-8")
