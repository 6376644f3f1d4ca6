"""Redrive: dead letters back to the topics that they come from, as they were.

It is a streaming query, and its checkpoint holds the position, so each letter is sent back once. A
letter that `where` leaves out is passed over for good, unless a run under another name selects it.
"""

import time
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.

from millstream.names import REDRIVE_COUNT_HEADER
from millstream.spark.pipelines.queries import Context, ToTopic, read, run_stream, source
from millstream.spark.pipelines.ready import records
from millstream.spark.pipelines.ready.dlq_report import brought_back, counts, letters
from millstream.spark.pipelines.ready.records import PACE_BATCH_SECONDS, FromTopic
from millstream.spark.pipelines.summaries import Summary

OBSERVED = "redrive"


class Parameters(FromTopic, kw_only=True, forbid_unknown_fields=True):
    """Send dead letters back to the topics that they come from."""

    to: str | None = None  # Where each comes from.
    where: str | None = None  # SQL over the columns of `dead_letters.letters`.
    attempts_max: int = 3  # A letter that was sent back this often stays.
    rows_per_second: float | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        records.name(to=self.to, where=self.where)
        records.positive(attempts_max=self.attempts_max, rows_per_second=self.rows_per_second)

    def options(self) -> dict[str, str]:
        options = super().options()
        if self.rows_per_second is not None:
            most = max(1, int(self.rows_per_second * PACE_BATCH_SECONDS))
            limit = self.trigger_records_max
            options["maxOffsetsPerTrigger"] = str(most if limit is None else min(most, limit))
        return options


def transform(frames: Mapping[str, DataFrame], parameters: Parameters) -> DataFrame:
    return redriven(records.subscribed(frames, parameters.topic), parameters)


def redriven(frame: DataFrame, parameters: Parameters) -> DataFrame:
    """Rows for the sink: the record as it was, and how often it was sent back."""
    chosen_letters = chosen(frame, parameters)
    again = {REDRIVE_COUNT_HEADER: F.col("redriven") + 1}
    rows = chosen_letters.select(
        (F.lit(parameters.to) if parameters.to else F.col("origin_topic")).alias("topic"),
        "key",
        "value",
        records.with_headers(brought_back(F.col("headers")), again).alias("headers"),
    )
    return records.paced(rows, parameters.rows_per_second)


def chosen(frame: DataFrame, parameters: Parameters) -> DataFrame:
    rows = letters(frame, parameters.where)
    return rows.where(F.col("redriven") < parameters.attempts_max)


def reads(parameters: Parameters) -> list[str]:
    return records.topics(parameters.topic)


def writes(parameters: Parameters) -> list[str]:
    return [parameters.to] if parameters.to is not None else []


def run(context: Context, parameters: Parameters) -> Summary:
    if parameters.dry_run:
        return _dry_run(context, parameters)
    frame = redriven(source(context, parameters.topic, **parameters.options()), parameters)
    summary = run_stream(context, frame, query="redrive", sink=ToTopic())
    return summary.with_details(passed_over_rows=max(0, summary.rows_in - summary.rows_written))


def _dry_run(context: Context, parameters: Parameters) -> Summary:
    """Report what a run would send now: the group's offsets are the end of the last run."""
    started = time.monotonic()
    frame = read(
        context,
        parameters.topic,
        includeHeaders="true",
        startingOffsets="committed",
        **{"kafka.group.id": context.name},
    )
    table = records.rows(counts(chosen(frame, parameters), "origin_topic", "reason"))
    letter_count = sum(int(str(row["letters"])) for row in table)
    return Summary(rows_in=letter_count, seconds=time.monotonic() - started).with_details(
        would_redrive=table, is_dry_run=True
    )
