"""Archive: topics as Parquet files, in directories by topic, day and hour.

Spark's file sink keeps a log of the files of each batch, so a batch that is run again after a crash
adds no file twice. That log, `_spark_metadata`, belongs to the archive: Spark reads by it. Programs
that read the files alone may see those of an attempt that failed.
"""

from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.

from millstream.spark.pipelines.queries import Context, ToFiles, run_stream, source
from millstream.spark.pipelines.ready import records
from millstream.spark.pipelines.ready.records import (
    HEADERS,
    IS_MALFORMED,
    RECORD,
    FromTopic,
    with_settings,
)
from millstream.spark.pipelines.summaries import Summary

OBSERVED = "archive"
DIRECTORIES = ("topic", "date", "hour")
_KEPT = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers")
SCHEMA = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, "
    f"timestampType int, headers {HEADERS}, topic string, date date, hour int"
)

_HOUR_MICROS = 3_600_000_000
# Files that a task may have open at once. Without this Spark sorts its rows by directory first.
_WRITERS = "spark.sql.maxConcurrentOutputFileWriters"
_WRITERS_MAX = "48"


class Parameters(FromTopic, kw_only=True, forbid_unknown_fields=True):
    """Keep topics as Parquet files by topic, day and hour."""

    path: str
    schema: str | None = None  # DDL of the JSON value: adds a typed column `data`.
    compression: Literal["zstd", "snappy", "lz4", "none"] = "zstd"

    def __post_init__(self) -> None:
        super().__post_init__()
        records.name(path=self.path)


def archived(frame: DataFrame, parameters: Parameters) -> DataFrame:
    """Records as they are, with `data` if there is a schema, and the day and hour in UTC.

    `value` always stays, so nothing is lost of a value that is not JSON: its `data` is null.
    """
    parsed = records.parsed(frame, parameters.schema)
    # By arithmetic, as days and hours of the session's time zone would move files around.
    hours = F.floor(F.unix_micros(F.col(f"{RECORD}.timestamp")) / F.lit(_HOUR_MICROS)).cast("int")
    columns = [F.col(f"{RECORD}.{name}").alias(name) for name in _KEPT]
    if parameters.schema is not None:
        counted = F.count_if(F.col(IS_MALFORMED)).alias("malformed")
        parsed = parsed.observe(OBSERVED, counted)
        names = records.fields(parameters.schema).names
        data = F.struct(*(F.col(f"`{name}`") for name in names))
        is_there = ~F.col(IS_MALFORMED) & F.col(f"{RECORD}.value").isNotNull()
        columns.append(F.when(is_there, data).alias("data"))
    return parsed.select(
        *columns,
        F.col(f"{RECORD}.topic").alias("topic"),
        F.date_from_unix_date(F.floor(hours / 24).cast("int")).alias("date"),
        F.pmod(hours, F.lit(24)).alias("hour"),
    )


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """The rows of an archive, without the typed column."""
    # With its schema given, a topic that is called 1 stays text.
    with records.blaming("path", path):
        frame = spark.read.schema(SCHEMA).parquet(path)
    return frame.select(*(name for name in frame.columns if name not in ("date", "hour")))


def reads(parameters: Parameters) -> list[str]:
    return records.topics(parameters.topic)


def writes(_: Parameters) -> list[str]:
    return []


def run(context: Context, parameters: Parameters) -> Summary:
    records.check_files(context, OBSERVED, parameters.path)
    own = with_settings(context, {_WRITERS: _WRITERS_MAX})
    frame = archived(source(own, parameters.topic, **parameters.options()), parameters)
    sink = ToFiles(
        path=parameters.path,
        partition_by=DIRECTORIES,
        options={"compression": parameters.compression},
    )
    summary = run_stream(own, frame, query=OBSERVED, sink=sink)
    malformed = records.observed(summary.details, OBSERVED).get("malformed", 0)
    return summary.with_details(path=parameters.path, malformed_rows=malformed)
