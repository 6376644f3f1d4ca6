"""Enrich: add fields of a table, or of another stream, to the rows of a stream.

A table is files, a table of Spark's, or a compacted topic: the last value of each key. It is read
when the query starts and not again. Two streams are joined while both go on, rows within `within`
of each other.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.

from millstream.spark.errors import InvalidOption
from millstream.spark.pipelines.queries import Context, ToTopic, read, run_stream, source
from millstream.spark.pipelines.ready import records
from millstream.spark.pipelines.ready.records import EVENT_TIME, IS_MALFORMED, RECORD, FromTopic
from millstream.spark.pipelines.summaries import Summary

OBSERVED, OBSERVED_OTHER = "enrich", "enrich_other"
THIS, OTHER = "this", "other"  # The names of the two sides in SQL.


class _Other(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class Files(_Other, tag="files"):
    """Files that Spark reads as rows."""

    path: str
    format: Literal["parquet", "csv", "json", "orc"] = "parquet"
    schema: str | None = None  # DDL; CSV without it has names in its first line and only text.


class Table(_Other, tag="table"):
    """A table or view that the Spark session knows."""

    name: str


class TopicTable(_Other, tag="topic"):
    """A topic as a table: the last JSON value of each key, gone where that is null."""

    topic: str
    schema: str


class Stream(_Other, tag="stream"):
    """Another topic as a stream, joined with what is near in event time."""

    topic: str
    schema: str
    within: str  # How far apart two rows may be.
    time: str | None = None
    watermark: str = "10 minutes"

    def __post_init__(self) -> None:
        records.interval("other.within", self.within)
        records.interval("other.watermark", self.watermark)


Other: TypeAlias = Files | Table | TopicTable | Stream


class Parameters(FromTopic, kw_only=True, forbid_unknown_fields=True):
    """Add fields of a table or of another stream to the rows of a stream."""

    to: str
    schema: str  # DDL of the JSON value.
    other: Other
    join_on: str  # SQL over this and other: this.customer = other.id
    add: list[str]  # SQL over other: other.name, other.price as unit_price
    how: Literal["inner", "left"] = "left"  # left: rows that find nothing go on with nulls.
    time: str | None = None  # SQL of the event time; else the record's own. For streams.
    watermark: str = "10 minutes"  # For streams.

    def __post_init__(self) -> None:
        super().__post_init__()
        records.name(to=self.to, join_on=self.join_on)
        records.interval("watermark", self.watermark)
        if not self.add:
            raise InvalidOption("add is empty, expected fields such as other.name")


def transform(frames: Mapping[str, DataFrame], parameters: Parameters) -> DataFrame:
    other = parameters.other
    if isinstance(other, Files | Table):
        raise InvalidOption(f"other is {type(other).__name__.lower()}, expected a topic or stream")
    frame = records.subscribed(frames, other.topic)
    rows = latest_by_key(frame, other.schema) if isinstance(other, TopicTable) else frame
    return enriched(records.subscribed(frames, parameters.topic), rows, parameters)


def enriched(frame: DataFrame, other: DataFrame, parameters: Parameters) -> DataFrame:
    """Rows for the sink: key and headers as they were, the value with the added fields.

    `other` is a table, or the records of the other stream as the source has them.
    """
    this = records.readable(records.parsed(frame, parameters.schema), OBSERVED)
    names = records.fields(parameters.schema).names
    condition = parameters.join_on
    if isinstance(parameters.other, Stream):
        this = records.timed(this, parameters.time, parameters.watermark)
        other = _other_stream(other, parameters.other)
        span = f"interval {records.interval('other.within', parameters.other.within)}"
        there = f"{OTHER}.{EVENT_TIME}"
        condition = (
            f"({condition}) and {THIS}.{EVENT_TIME} between {there} - {span} and {there} + {span}"
        )
    left, right = this.alias(THIS), other.alias(OTHER)
    with records.blaming("join_on", parameters.join_on):
        joined = left.join(right, F.expr(condition), parameters.how)
    with records.blaming("add", ", ".join(parameters.add)):
        rows = joined.select(
            F.col(f"{THIS}.{RECORD}").alias(RECORD),
            *(F.col(f"{THIS}.`{name}`") for name in names),
            *(F.expr(sql) for sql in parameters.add),
        )
    _, *columns = rows.columns
    taken = [name.lower() for name in columns]
    for name in columns:
        if taken.count(name.lower()) > 1:
            raise InvalidOption(
                f"add has the field {name} that rows have already: name it, other.{name} as ..."
            )
    _, value = records.as_json(rows, [], columns)
    return rows.select(
        F.lit(parameters.to).alias("topic"), f"{RECORD}.key", value, f"{RECORD}.headers"
    )


def latest_by_key(frame: DataFrame, schema: str) -> DataFrame:
    """A compacted topic as a table: the fields of the last value of each key, and `record_key`.

    Rows of null values are gone, and so are those that are not JSON of the schema.
    """
    # A key is always in one partition, so offsets say which value is the last.
    last = frame.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
    parsed = records.parsed(last.where(F.col("value").isNotNull()), schema)
    names = records.fields(schema).names
    key = F.col(f"{RECORD}.key").cast("string").alias("record_key")
    return parsed.where(~F.col(IS_MALFORMED)).select(key, *(F.col(f"`{name}`") for name in names))


def reads(parameters: Parameters) -> list[str]:
    return [*records.topics(parameters.topic), *_other_topics(parameters.other)]


def writes(parameters: Parameters) -> list[str]:
    return [parameters.to]


def run(context: Context, parameters: Parameters) -> Summary:
    this = source(context, parameters.topic, **parameters.options())
    frame = enriched(this, _read(context, parameters), parameters)
    summary = run_stream(context, frame, query="enrich", sink=ToTopic())
    return summary.with_details(
        **records.left_out(summary.details, OBSERVED),
        other_malformed_rows=records.observed(summary.details, OBSERVED_OTHER).get("malformed", 0),
    )


def _other_topics(other: Other) -> list[str]:
    return [other.topic] if isinstance(other, TopicTable | Stream) else []


def _read(context: Context, parameters: Parameters) -> DataFrame:
    match parameters.other:
        case Files(path=path, format=form, schema=schema):
            reader = context.spark.read.format(form)
            if schema is not None:
                reader = reader.schema(records.fields(schema))
            if form == "csv":
                reader = reader.option("header", "true")
            with records.blaming("other.path", path):
                return reader.load(path)
        case Table(name=name):
            with records.blaming("other.name", name):
                return context.spark.table(name)
        case TopicTable(topic=topic, schema=schema):
            return latest_by_key(read(context, topic), schema)
        case Stream(topic=topic):
            return source(context, topic, **parameters.options())


def _other_stream(frame: DataFrame, stream: Stream) -> DataFrame:
    parsed = records.readable(records.parsed(frame, stream.schema), OBSERVED_OTHER)
    return records.timed(parsed, stream.time, stream.watermark)
