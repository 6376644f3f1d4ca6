"""Parses records into columns and builds records from rows, for all ready-made pipelines.

Pure, apart from looking at frames. Owns the names that users write SQL with: a record's own columns
are fields of `record`, the fields of its JSON value are columns. Invariant: a value that is not
JSON of the schema is marked, not lost; each pipeline decides what it does with such rows.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Literal

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.
from pyspark.sql.types import StructType

from millstream.spark.errors import InvalidOption
from millstream.spark.pipelines.failures import short_reason
from millstream.spark.pipelines.queries import Context

HEADERS = "array<struct<key:string,value:binary>>"
RECORD = "record"
IS_MALFORMED = "is_malformed"
EVENT_TIME = "event_time"
# The columns of a row that a pipeline passes on to the sink.
WRITTEN = ("topic", "key", "value", "headers")

PACE_BATCH_SECONDS = 10  # A batch of a paced query is written in one transaction: keep it short.

_CORRUPT = "_corrupt"
_SPARKS_ERRORS = "DataFrameQueryContextLogger"
_RESERVED = (RECORD, IS_MALFORMED, EVENT_TIME, _CORRUPT)
_INTERVAL = re.compile(r"\s*(?P<count>\d+)\s*(?P<unit>[a-z]+)\s*", re.IGNORECASE)
_UNITS = {
    "ms": "milliseconds",
    "s": "seconds",
    "m": "minutes",
    "h": "hours",
    "d": "days",
    **{unit: f"{unit}s" for unit in ("millisecond", "second", "minute", "hour", "day")},
    **{unit: unit for unit in ("milliseconds", "seconds", "minutes", "hours", "days")},
}


class FromTopic(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Where the rows of a stream come from."""

    topic: str
    starting: Literal["earliest", "latest"] = "earliest"  # For the first run only.
    trigger_records_max: int | None = None

    def __post_init__(self) -> None:
        name(topic=self.topic)
        positive(trigger_records_max=self.trigger_records_max)

    def options(self) -> dict[str, str]:
        """For the source."""
        limit = self.trigger_records_max
        return {
            "startingOffsets": self.starting,
            "includeHeaders": "true",
            **({} if limit is None else {"maxOffsetsPerTrigger": str(limit)}),
        }


def subscribed(frames: Mapping[str, DataFrame], text: str) -> DataFrame:
    """The rows of all topics of a list with commas."""
    subscribed_frames = [frames[topic] for topic in topics(text)]
    return reduce(DataFrame.unionByName, subscribed_frames)


def topics(text: str) -> list[str]:
    """The topics of a list with commas."""
    return [name for name in (part.strip() for part in text.split(",")) if name]


def with_settings(context: Context, settings: Mapping[str, str]) -> Context:
    """The same with a Spark session of its own, on the same cluster, that has these settings."""
    spark = context.spark.newSession()
    for key, value in settings.items():
        spark.conf.set(key, value)
    return replace(context, spark=spark)


def check_files(context: Context, query: str, path: str, *, named: str = "path") -> None:
    """Raise if files are there that this query, by its checkpoint, has not written.

    Spark's file sink knows batches by number alone. To a query that starts anew, or that goes on
    from an older copy of its checkpoint, the next batches look as if they were written, and are
    left out.
    """
    written = _last_batch(context, f"{path}/_spark_metadata")
    if written is None:
        return
    checkpoint = context.checkpoint(query)
    begun = _last_batch(context, f"{checkpoint}/offsets")
    if begun is None:
        raise InvalidOption(
            f"{named} is {path!r}, which holds files of another run, and {checkpoint} does not "
            "exist or is empty: name another directory, or bring that checkpoint back"
        )
    if begun < written:
        raise InvalidOption(
            f"{named} is {path!r}, which holds files of batch {written}, and {checkpoint} is "
            f"older: it ends with batch {begun}. Its next batches would be taken for written: name "
            "another directory, or bring the newer checkpoint back"
        )


def _last_batch(context: Context, log_path: str) -> int | None:
    """The last batch in a log of Spark's, on any file system; None: there is none."""
    spark = context.spark.sparkContext
    assert spark._jvm is not None
    folder = spark._jvm.org.apache.hadoop.fs.Path(log_path)
    files = folder.getFileSystem(spark._jsc.hadoopConfiguration())
    if not files.exists(folder):
        return None
    names = (str(status.getPath().getName()) for status in files.listStatus(folder))
    # Every tenth file of the file sink's log has those before it in it.
    numbers = (name.removesuffix(".compact") for name in names)
    return max((int(number) for number in numbers if number.isdecimal()), default=None)


# -- parameters ------------------------------------------------------------------------------------


def name(**named: str | None) -> None:
    """Raise unless the text is there, if it is given at all."""
    for place, text in named.items():
        if text is not None and not text.strip():
            raise InvalidOption(f"{place} is empty, expected a name")


def positive(**named: float | None) -> None:
    for place, number in named.items():
        if number is not None and number <= 0:
            raise InvalidOption(f"{place} is {number}, expected a number above 0")


def interval(place: str, text: str) -> str:
    """A time such as `10m` or `10 minutes`, in Spark's words."""
    match = _INTERVAL.fullmatch(text)
    unit = _UNITS.get(match["unit"].lower()) if match else None
    if match is None or unit is None:
        raise InvalidOption(f"{place} is {text!r}, expected a time such as 30s, 10m or 2 hours")
    return f"{match['count']} {unit}"


def seconds(place: str, text: str) -> int:
    """A time such as `10m`, as whole seconds."""
    count, unit = interval(place, text).split()
    total_seconds = timedelta(**{unit: int(count)}) // timedelta(seconds=1)
    if total_seconds < 1:
        raise InvalidOption(f"{place} is {text!r}, expected at least a second")
    return total_seconds


def utc(moment: datetime | None) -> datetime | None:
    """A time that says its zone; one that does not is meant to be UTC."""
    is_bare = moment is not None and moment.tzinfo is None
    return moment.replace(tzinfo=UTC) if moment is not None and is_bare else moment


def fields(schema: str) -> StructType:
    """The fields of a JSON value, given as DDL."""
    try:
        parsed_schema = StructType.fromDDL(schema)
    except PySparkException as problem:
        raise InvalidOption(
            f"schema is {schema!r}, expected fields such as 'id bigint, at timestamp': "
            f"{short_reason(str(problem))}"
        ) from None
    if not isinstance(parsed_schema, StructType):
        raise InvalidOption(f"schema is {schema!r}, expected fields such as 'id bigint'")
    for field in parsed_schema:
        if field.name.lower() in _RESERVED:
            raise InvalidOption(f"schema has a field {field.name}, a name that is taken")
    return parsed_schema


@contextmanager
def blaming(place: str, sql: str) -> Iterator[None]:
    """Around the use of a user's SQL: what Spark says of it becomes one sentence about `place`."""
    spark_log = logging.getLogger(_SPARKS_ERRORS)
    was_disabled, spark_log.disabled = spark_log.disabled, True  # It prints the plan, in pages.
    try:
        yield
    except PySparkException as problem:
        raise InvalidOption(f"{place} is {sql!r}: {short_reason(str(problem))}") from None
    finally:
        spark_log.disabled = was_disabled


# -- records to columns ----------------------------------------------------------------------------


def parsed(frame: DataFrame, schema: str | None) -> DataFrame:
    """Columns `record`, `is_malformed` and, given a schema, one for each field of the JSON value.

    A null value is not malformed: its fields are null.
    """
    columns = [F.col(column) for column in frame.columns]
    if "headers" not in frame.columns:
        columns.append(F.array().cast(HEADERS).alias("headers"))
    record = F.struct(*columns).alias(RECORD)
    if schema is None:
        return frame.select(record, F.lit(False).alias(IS_MALFORMED))
    struct = fields(schema)
    kind = StructType(struct.fields).add(_CORRUPT, "string")
    text = F.col("value").cast("string")
    # Nothing is parsed lazily: a bad field of a value makes all of it bad.
    data = F.from_json(text, kind, {"columnNameOfCorruptRecord": _CORRUPT}).alias("data")
    is_bad = F.col(f"data.{_CORRUPT}").isNotNull() | F.col("data").isNull()
    is_malformed = F.col(f"{RECORD}.value").isNotNull() & is_bad
    return frame.select(record, data).select(
        RECORD,
        is_malformed.alias(IS_MALFORMED),
        *(F.col("data").getField(name).alias(name) for name in struct.names),
    )


def readable(frame: DataFrame, observation: str) -> DataFrame:
    """Rows that are not malformed; the others are counted as `malformed` and left out."""
    count = F.count_if(F.col(IS_MALFORMED)).alias("malformed")
    return frame.observe(observation, count).where(~F.col(IS_MALFORMED))


def timed(frame: DataFrame, sql: str | None, watermark: str) -> DataFrame:
    """A column `event_time`, from SQL or the record's own time, and its watermark."""
    text = sql or f"{RECORD}.timestamp"
    with blaming("time", text):
        timed_rows = frame.select("*", F.expr(text).cast("timestamp").alias(EVENT_TIME))
    return timed_rows.withWatermark(EVENT_TIME, interval("watermark", watermark))


def header(headers: Column, key: str) -> Column:
    """The text of the last header of this name, or null."""
    named = F.filter(headers, lambda header: header["key"] == key)
    return F.try_element_at(named, F.lit(-1))["value"].cast("string")


def observed(details: Mapping[str, object], observation: str) -> dict[str, int]:
    """The metrics that a run observed under this name; empty if it saw no rows."""
    metrics = details.get("observed")
    counts = metrics.get(observation) if isinstance(metrics, Mapping) else None
    return {key: int(count) for key, count in counts.items()} if counts else {}


def rows(frame: DataFrame) -> list[dict[str, object]]:
    """A small table as JSON has it: times in ISO 8601, UTC."""
    return [
        {key: _plain(cell) for key, cell in row.asDict(recursive=True).items()}
        for row in frame.collect()
    ]


def _plain(cell: object) -> object:
    # Spark hands out times of the machine's zone, without saying so.
    return cell.astimezone(UTC).isoformat() if isinstance(cell, datetime) else cell


def left_out(details: Mapping[str, object], observation: str) -> dict[str, int]:
    """How many rows a run left out: not JSON of the schema, or later than the watermark."""
    late = details.get("late_rows")
    return {
        "malformed_rows": observed(details, observation).get("malformed", 0),
        "late_rows": late if isinstance(late, int) else 0,
    }


# -- columns to records ----------------------------------------------------------------------------


def with_headers(headers: Column, added: Mapping[str, Column]) -> Column:
    pairs = [
        F.struct(F.lit(key).alias("key"), text.cast("string").cast("binary").alias("value"))
        for key, text in added.items()
    ]
    return F.concat(headers, F.array(*pairs).cast(HEADERS))


def without_headers(headers: Column, prefix: str) -> Column:
    return F.filter(headers, lambda header: ~header["key"].startswith(prefix))


def as_json(frame: DataFrame, keys: Sequence[str], values: Sequence[str]) -> list[Column]:
    """Key and value of the sink: one key as text, several as JSON, none as null."""
    quoted = {name: F.col(f"`{name}`") for name in frame.columns}
    key = F.lit(None).cast("string")
    if len(keys) == 1:
        key = quoted[keys[0]].cast("string")
    elif keys:
        key = _json(quoted[name] for name in keys)
    return [key.alias("key"), _json(quoted[name] for name in values).alias("value")]


def _json(columns: Iterable[Column]) -> Column:
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})


# -- pace ------------------------------------------------------------------------------------------


def paced(frame: DataFrame, rows_per_second: float | None) -> DataFrame:
    """The same rows in one task, no faster than this. None: as they are.

    Rows are held up in the task that writes them, so it works for batches and for streams.
    """
    if rows_per_second is None:
        return frame
    started: list[float] = []  # Each task unpickles its own.
    count = [0]

    def turn(_: object) -> bool:
        if not started:
            started.append(time.monotonic())
        ahead = count[0] / rows_per_second - (time.monotonic() - started[0])
        if ahead > 0:
            time.sleep(ahead)
        count[0] += 1
        return True

    # Not deterministic, so that Spark calls it once for each row and moves nothing past it.
    wait = F.udf(turn, "boolean", useArrow=False).asNondeterministic()
    return frame.coalesce(1).where(wait(F.lit(0)))
