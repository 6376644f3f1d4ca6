"""Dedup: passes on the first of several rows that are the same by key or by fields.

Spark remembers a row for as long as the watermark says, counted in event time. The same row after
that is a new one.
"""

from collections.abc import Mapping

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.

from millstream.spark.errors import InvalidOption
from millstream.spark.pipelines.queries import Context, ToTopic, run_stream, source
from millstream.spark.pipelines.ready import records
from millstream.spark.pipelines.ready.records import RECORD, WRITTEN, FromTopic
from millstream.spark.pipelines.summaries import Summary

OBSERVED = "dedup"

_SAME = "same_"


class Parameters(FromTopic, kw_only=True, forbid_unknown_fields=True):
    """Pass on the first of rows that are the same by key or by fields."""

    to: str
    by: list[str] = msgspec.field(default_factory=lambda: ["record.key"])  # SQL, all of it.
    schema: str | None = None  # DDL of the JSON value, if `by` names fields of it.
    time: str | None = None  # SQL of the event time; else the record's own.
    watermark: str = "1 hour"  # For how long the same row is known again.

    def __post_init__(self) -> None:
        super().__post_init__()
        records.name(to=self.to)
        records.interval("watermark", self.watermark)
        if not self.by:
            raise InvalidOption("by is empty, expected fields or SQL such as record.key")


def transform(frames: Mapping[str, DataFrame], parameters: Parameters) -> DataFrame:
    return deduplicated(records.subscribed(frames, parameters.topic), parameters)


def deduplicated(frame: DataFrame, parameters: Parameters) -> DataFrame:
    """Rows for the sink, each as it was. Null is the same as null."""
    parsed = records.readable(records.parsed(frame, parameters.schema), OBSERVED)
    rows = records.timed(parsed, parameters.time, parameters.watermark)
    for index, sql in enumerate(parameters.by):
        with records.blaming("by", sql):
            rows = rows.select("*", F.expr(sql).alias(f"{_SAME}{index}"))
    names = [f"{_SAME}{index}" for index in range(len(parameters.by))]
    # Spark has the watermark's duplicates for streams only; a batch holds all rows at once.
    if rows.isStreaming:
        kept = rows.dropDuplicatesWithinWatermark(names)
    else:
        kept = rows.dropDuplicates(names)
    own = {name: F.col(f"{RECORD}.{name}") for name in WRITTEN}
    own["topic"] = F.lit(parameters.to)
    return kept.select(*(own[name].alias(name) for name in WRITTEN))


def reads(parameters: Parameters) -> list[str]:
    return records.topics(parameters.topic)


def writes(parameters: Parameters) -> list[str]:
    return [parameters.to]


def run(context: Context, parameters: Parameters) -> Summary:
    frame = deduplicated(source(context, parameters.topic, **parameters.options()), parameters)
    summary = run_stream(context, frame, query="dedup", sink=ToTopic())
    left_out = records.left_out(summary.details, OBSERVED)
    gone = summary.rows_in - summary.rows_written - sum(left_out.values())
    return summary.with_details(duplicate_rows=max(0, gone), **left_out)
