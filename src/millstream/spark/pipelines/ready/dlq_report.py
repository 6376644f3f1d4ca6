"""Dead letters: reports the records of dead-letter topics by reason and time, with samples.

Reads only; `redrive` sends letters back. The headers of a letter name its origin and reason. A
letter without them counts for the topic that its dead-letter topic is named after.
"""

import re
import time

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.

from millstream.names import (
    DLQ_HEADER_PREFIX,
    DLQ_SUBJECT_PREFIX,
    DLQ_TOPIC_SUFFIX,
    OPTION_HEADERS,
    REDRIVE_COUNT_HEADER,
    SUBJECT_HEADER,
)
from millstream.spark.pipelines.queries import Context, read
from millstream.spark.pipelines.ready import records
from millstream.spark.pipelines.summaries import Summary

UNKNOWN = "unknown"
SHOWN_LENGTH_MAX = 200

_ALL = f".*{re.escape(DLQ_TOPIC_SUFFIX)}"


class Parameters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Count dead letters by reason, topic and time, with samples."""

    topic: str | None = None  # One or more, with commas. All that end with .dlq.
    where: str | None = None  # SQL over the columns of `letters`.
    bucket: str = "1 hour"
    samples: int = 3  # Of each reason and topic, the latest.

    def __post_init__(self) -> None:
        records.name(topic=self.topic, where=self.where)
        records.interval("bucket", self.bucket)
        records.positive(samples=self.samples)


def letter_headers(reason: Column, error: Column) -> Column:
    """The headers of the dead letter of a row with a column `record`."""
    facts = {name: F.col(f"{records.RECORD}.{name}") for name in ("topic", "partition", "offset")}
    facts |= {"reason": reason, "error": error}
    aside = put_aside(F.col(f"{records.RECORD}.headers"), facts["topic"])
    return records.with_headers(
        aside, {f"{DLQ_HEADER_PREFIX}{name}": fact for name, fact in facts.items()}
    )


def as_letters(frame: DataFrame, *, reason: Column, error: Column) -> DataFrame:
    """Rows for the sink: the dead letter of every row, for the dead letters of its topic."""
    return frame.select(
        F.concat(f"{records.RECORD}.topic", F.lit(DLQ_TOPIC_SUFFIX)).alias("topic"),
        F.col(f"{records.RECORD}.key").alias("key"),
        F.col(f"{records.RECORD}.value").alias("value"),
        letter_headers(reason, error).alias("headers"),
    )


def put_aside(headers: Column, topic: Column) -> Column:
    """A record's headers as its dead letter has them, before it says why.

    Subscribers of the record's subject do not get its dead letter.
    """
    subject = records.header(headers, SUBJECT_HEADER)
    kept = F.filter(headers, lambda header: ~header["key"].isin(SUBJECT_HEADER, *OPTION_HEADERS))
    dead = F.concat(F.lit(DLQ_SUBJECT_PREFIX), F.coalesce(subject, topic))
    dead_headers = records.with_headers(
        records.without_headers(kept, DLQ_HEADER_PREFIX), {SUBJECT_HEADER: dead}
    )
    with_subject = records.with_headers(dead_headers, {f"{DLQ_HEADER_PREFIX}subject": subject})
    return F.when(subject.isNotNull(), with_subject).otherwise(dead_headers)


def brought_back(headers: Column) -> Column:
    """The headers that the record had."""
    own = records.without_headers(
        records.without_headers(headers, DLQ_HEADER_PREFIX), REDRIVE_COUNT_HEADER
    )

    def is_kept(header: Column) -> Column:
        is_dead = (header["key"] == SUBJECT_HEADER) & header["value"].cast("string").startswith(
            DLQ_SUBJECT_PREFIX
        )
        return ~F.coalesce(is_dead, F.lit(False))

    living = F.filter(own, is_kept)
    subject = records.header(headers, f"{DLQ_HEADER_PREFIX}subject")
    with_subject = records.with_headers(living, {SUBJECT_HEADER: subject})
    return F.when(subject.isNotNull(), with_subject).otherwise(living)


def letters(frame: DataFrame, where: str | None = None) -> DataFrame:
    """Records of dead-letter topics with what their headers say as columns.

    Columns: origin_topic, origin_partition, origin_offset, reason, error, redriven (how often it
    was sent back before), and the record's own.
    """
    headers = F.col("headers")
    named = F.regexp_replace("topic", rf"{DLQ_TOPIC_SUFFIX.replace('.', '[.]')}$", "")

    def header(name: str) -> Column:
        return records.header(headers, DLQ_HEADER_PREFIX + name)

    rows = frame.select(
        F.coalesce(header("topic"), named).alias("origin_topic"),
        header("partition").try_cast("int").alias("origin_partition"),
        header("offset").try_cast("bigint").alias("origin_offset"),
        F.coalesce(header("reason"), F.lit(UNKNOWN)).alias("reason"),
        header("error").alias("error"),
        F.coalesce(records.header(headers, REDRIVE_COUNT_HEADER).try_cast("int"), F.lit(0)).alias(
            "redriven"
        ),
        *frame.columns,
    )
    if where is None:
        return rows
    with records.blaming("where", where):
        return rows.where(where)


def counts(rows: DataFrame, *by: str) -> DataFrame:
    """How many letters, and from when to when; most first."""
    return (
        rows.groupBy(*by)
        .agg(
            F.count(F.lit(1)).alias("letters"),
            F.min("timestamp").alias("first"),
            F.max("timestamp").alias("last"),
        )
        .orderBy(F.desc("letters"), *by)
    )


def samples(rows: DataFrame, count: int) -> DataFrame:
    """The latest letters of each topic and reason, as text."""
    latest = Window.partitionBy("origin_topic", "reason").orderBy(
        F.desc("timestamp"), F.desc("offset"), "partition"
    )
    ranked = rows.withColumn("rank", F.row_number().over(latest))
    return (
        ranked.where(F.col("rank") <= count)
        .orderBy("origin_topic", "reason", "rank")
        .select(
            "origin_topic",
            "origin_partition",
            "origin_offset",
            "reason",
            "error",
            "timestamp",
            *(F.substring(F.col(c).cast("string"), 1, SHOWN_LENGTH_MAX).alias(c) for c in _TEXTS),
        )
    )


_TEXTS = ("key", "value")


def reads(parameters: Parameters) -> list[str]:
    return records.topics(parameters.topic or "")


def writes(_: Parameters) -> list[str]:
    return []


def run(context: Context, parameters: Parameters) -> Summary:
    started = time.monotonic()
    if parameters.topic is None:
        frame = read(context, "", subscribePattern=_ALL, includeHeaders="true")
    else:
        frame = read(context, parameters.topic, includeHeaders="true")
    rows = letters(frame, parameters.where).persist()
    try:
        size = records.interval("bucket", parameters.bucket)
        at = F.window("timestamp", size)["start"]
        tables = {
            "by_reason": counts(rows, "origin_topic", "reason"),
            "by_time": counts(rows.withColumn("time", at), "time", "origin_topic").orderBy(
                "time", "origin_topic"
            ),
            "samples": samples(rows, parameters.samples),
        }
        details = {name: records.rows(table) for name, table in tables.items()}
    finally:
        rows.unpersist()
    letter_count = sum(int(str(row["letters"])) for row in details["by_reason"])
    return Summary(rows_in=letter_count, seconds=time.monotonic() - started).with_details(**details)
