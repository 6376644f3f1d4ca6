"""Replay: an archive back into a topic, in the order of its offsets.

All of it becomes visible at once, or nothing. With a pace it is written at least once instead, as
it comes: a transaction of hours would hold up every reader. Offsets are new, so the old ones travel
as headers, and a replay that is run twice is there twice. Times are the old ones, so a topic that
keeps records for a week does not keep those of last month.
"""

import time
from datetime import datetime

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.

from millstream.names import REPLAY_HEADER_PREFIX
from millstream.spark.errors import InvalidOption
from millstream.spark.pipelines.queries import Context, write
from millstream.spark.pipelines.ready import records
from millstream.spark.pipelines.ready.archive import read_archive
from millstream.spark.pipelines.summaries import Summary


class Parameters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Write an archive, or a range of it, back into a topic."""

    path: str
    topic: str  # As archived.
    to: str | None = None  # The same.
    partitions: list[int] | None = None  # All.
    from_time: datetime | None = None  # Included; a time without a zone is UTC.
    until_time: datetime | None = None  # Excluded.
    from_offset: int | None = None  # Included, in each partition.
    until_offset: int | None = None  # Excluded.
    keeps_partitions: bool = True  # False: partitions by key, for a topic with other ones.
    keeps_times: bool = True  # False: records have the time of the replay, and a header has theirs.
    rows_per_second: float | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        records.name(path=self.path, topic=self.topic, to=self.to)
        records.positive(rows_per_second=self.rows_per_second)
        if self.partitions is not None and not self.partitions:
            raise InvalidOption("partitions is empty, expected numbers such as [0, 1]")
        self.from_time, self.until_time = records.utc(self.from_time), records.utc(self.until_time)
        if self.from_time and self.until_time and self.from_time >= self.until_time:
            raise InvalidOption("from_time is not before until_time")
        start, end = self.from_offset, self.until_offset
        if start is not None and end is not None and start >= end:
            raise InvalidOption("from_offset is not below until_offset")


def chosen(frame: DataFrame, parameters: Parameters) -> DataFrame:
    """The rows of an archive that are asked for."""
    rows = frame.where(F.col("topic") == parameters.topic)
    if parameters.partitions is not None:
        rows = rows.where(F.col("partition").isin(parameters.partitions))
    ranges = {
        "timestamp": (parameters.from_time, parameters.until_time),
        "offset": (parameters.from_offset, parameters.until_offset),
    }
    for name, (start, end) in ranges.items():
        if start is not None:
            rows = rows.where(F.col(name) >= F.lit(start))
        if end is not None:
            rows = rows.where(F.col(name) < F.lit(end))
    return rows


def replayed(frame: DataFrame, parameters: Parameters) -> DataFrame:
    """Rows for the sink, each partition's in the order of their offsets."""
    rows = chosen(frame, parameters).repartition("partition").sortWithinPartitions("offset")
    if parameters.rows_per_second is not None:
        # One task, so that partitions go side by side.
        rows = rows.coalesce(1).sortWithinPartitions("offset", "partition")
    was = {
        f"{REPLAY_HEADER_PREFIX}topic": F.col("topic"),
        f"{REPLAY_HEADER_PREFIX}partition": F.col("partition"),
        f"{REPLAY_HEADER_PREFIX}offset": F.col("offset"),
    }
    if not parameters.keeps_times:
        was[f"{REPLAY_HEADER_PREFIX}timestamp"] = F.unix_millis("timestamp")
    # The headers of an earlier replay do not hold for these.
    own = records.without_headers(
        F.coalesce("headers", F.array().cast(records.HEADERS)), REPLAY_HEADER_PREFIX
    )
    written_rows = rows.select(
        F.lit(parameters.to or parameters.topic).alias("topic"),
        "key",
        "value",
        records.with_headers(own, was).alias("headers"),
        *(["timestamp"] if parameters.keeps_times else []),
        *(["partition"] if parameters.keeps_partitions else []),
    )
    return records.paced(written_rows, parameters.rows_per_second)


def reads(parameters: Parameters) -> list[str]:
    return []


def writes(parameters: Parameters) -> list[str]:
    return [parameters.to or parameters.topic]


def run(context: Context, parameters: Parameters) -> Summary:
    started = time.monotonic()
    archive = read_archive(context.spark, parameters.path)
    by_partition = chosen(archive, parameters).groupBy("partition")
    counts = by_partition.agg(
        F.count(F.lit(1)).alias("rows"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
    )
    partitions = [row.asDict() for row in counts.orderBy("partition").collect()]
    row_count = sum(int(partition["rows"]) for partition in partitions)
    if row_count and not parameters.dry_run:
        is_paced = parameters.rows_per_second is not None
        options = {"deliveryGuarantee": "at_least_once"} if is_paced else {}
        write(context, replayed(archive, parameters), **options)
    return Summary(
        rows_in=row_count,
        rows_out=0 if parameters.dry_run else row_count,
        seconds=time.monotonic() - started,
    ).with_details(
        to=parameters.to or parameters.topic, partitions=partitions, is_dry_run=parameters.dry_run
    )
