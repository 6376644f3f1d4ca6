"""Aggregate: figures of event-time windows, as JSON records of a topic or as a table of files.

The final figures of a window are written when the watermark has passed its end, so the last windows
of a stream wait for later records. Rows later than the watermark are counted and left out.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.

from millstream.spark.errors import InvalidOption
from millstream.spark.pipelines.queries import (
    Context,
    Sink,
    ToFiles,
    ToTopic,
    run_stream,
    source,
    upserts,
)
from millstream.spark.pipelines.ready import records
from millstream.spark.pipelines.ready.records import EVENT_TIME, FromTopic
from millstream.spark.pipelines.summaries import Summary

OBSERVED = "aggregate"
BOUNDS = ("window_start", "window_end")


class _Window(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class Tumbling(_Window, tag="tumbling"):
    size: str

    def __post_init__(self) -> None:
        records.interval("window.size", self.size)


class Sliding(_Window, tag="sliding"):
    size: str
    slide: str

    def __post_init__(self) -> None:
        records.interval("window.size", self.size)
        records.interval("window.slide", self.slide)


class Session(_Window, tag="session"):
    gap: str

    def __post_init__(self) -> None:
        records.interval("window.gap", self.gap)


Window: TypeAlias = Tumbling | Sliding | Session


class Parameters(FromTopic, kw_only=True, forbid_unknown_fields=True):
    """Compute figures of event-time windows, with late rows counted."""

    window: Window
    aggregates: dict[str, str]  # Name of the figure: SQL such as `sum(amount)`.
    # Fields, or names with their SQL.
    group_by: dict[str, str] | list[str] = msgspec.field(default_factory=list)
    schema: str | None = None  # DDL of the JSON value.
    time: str | None = None  # SQL of the event time; else the record's own.
    watermark: str = "10 minutes"  # How much later than the latest a row may come.
    emit: Literal["final", "updates"] = "final"
    to: str | None = None  # Topic.
    path: str | None = None  # Table of Parquet files, in place of a topic.

    def __post_init__(self) -> None:
        super().__post_init__()
        records.name(to=self.to, path=self.path)
        records.interval("watermark", self.watermark)
        if not self.aggregates:
            raise InvalidOption(
                "aggregates is empty, expected figures such as {total: sum(amount)}"
            )
        if (self.to is None) == (self.path is None):
            raise InvalidOption("to and path: expected one of them, a topic or a directory")
        if self.path is not None and self.emit == "updates":
            raise InvalidOption("emit is updates, which files can't take; expected final")
        if isinstance(self.window, Session) and self.emit == "updates":
            raise InvalidOption("emit is updates, which sessions can't have; expected final")
        taken = [*BOUNDS, *self.groups, *self.aggregates]
        twice = {name for name in taken if taken.count(name) > 1}
        if twice:
            raise InvalidOption(f"group_by and aggregates have the name {min(twice)!r} twice")

    @property
    def groups(self) -> dict[str, str]:
        """Names and SQL of what is grouped by."""
        if isinstance(self.group_by, dict):
            return self.group_by
        return {name: f"`{name}`" for name in self.group_by}


def transform(frames: Mapping[str, DataFrame], parameters: Parameters) -> DataFrame:
    return as_records(
        aggregated(records.subscribed(frames, parameters.topic), parameters), parameters
    )


def aggregated(frame: DataFrame, parameters: Parameters) -> DataFrame:
    """One row for each window and group: window_start, window_end, groups, figures."""
    parsed = records.readable(records.parsed(frame, parameters.schema), OBSERVED)
    rows = records.timed(parsed, parameters.time, parameters.watermark)
    groups = []
    for name, sql in parameters.groups.items():
        with records.blaming(f"group_by.{name}", sql):
            groups.append(F.expr(sql).alias(name))
            rows.select(groups[-1])
    figures = []
    for name, sql in parameters.aggregates.items():
        with records.blaming(f"aggregates.{name}", sql):
            figures.append(F.expr(sql).alias(name))
            rows.groupBy().agg(figures[-1])
    window = _window(parameters.window).alias("window")
    return (
        rows.groupBy(window, *groups)
        .agg(*figures)
        .select(
            F.col("window.start").alias(BOUNDS[0]),
            F.col("window.end").alias(BOUNDS[1]),
            *(F.col(f"`{name}`") for name in (*parameters.groups, *parameters.aggregates)),
        )
    )


def as_records(frame: DataFrame, parameters: Parameters) -> DataFrame:
    """Rows for the sink: the group as key, all columns as JSON."""
    return frame.select(*records.as_json(frame, list(parameters.groups), frame.columns))


def reads(parameters: Parameters) -> list[str]:
    return records.topics(parameters.topic)


def writes(parameters: Parameters) -> list[str]:
    return [parameters.to] if parameters.to is not None else []


def run(context: Context, parameters: Parameters) -> Summary:
    frame = aggregated(source(context, parameters.topic, **parameters.options()), parameters)
    mode = "append"
    sink: Sink = ToTopic(topic=parameters.to)
    if parameters.path is not None:
        records.check_files(context, OBSERVED, parameters.path)
        sink = ToFiles(path=parameters.path)
    else:
        frame = as_records(frame, parameters)
    if parameters.emit == "updates":
        mode, sink = "update", upserts(context, topic=parameters.to)
    summary = run_stream(context, frame, query=OBSERVED, sink=sink, output_mode=mode)
    return summary.with_details(**records.left_out(summary.details, OBSERVED))


def _window(window: Window) -> Column:
    match window:
        case Tumbling(size=size):
            return F.window(EVENT_TIME, records.interval("window.size", size))
        case Sliding(size=size, slide=slide):
            return F.window(
                EVENT_TIME,
                records.interval("window.size", size),
                records.interval("window.slide", slide),
            )
        case Session(gap=gap):
            return F.session_window(EVENT_TIME, records.interval("window.gap", gap))
