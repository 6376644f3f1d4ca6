"""Queries by format: the same words for both connectors, and what they read or write."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

WAIT_SECONDS = 120
# Of an hour ago: retention would take what is older than a week.
FIRST_MS = int(time.time() * 1000) - 3_600_000
SECOND_MS = FIRST_MS + 60_000
BETWEEN_MS = FIRST_MS + 30_000

Options = Mapping[str, object]


def read(spark: SparkSession, form: str, address: str, options: Options) -> DataFrame:
    return _opened(spark.read.format(form), address, options).load()


def read_stream(spark: SparkSession, form: str, address: str, options: Options) -> DataFrame:
    return _opened(spark.readStream.format(form), address, options).load()


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Rows as values that compare, in the order of topic, partition and offset."""
    ordered = frame.orderBy("topic", "partition", "offset").collect()
    return [tuple(_plain(value) for value in row) for row in ordered]


def values(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def save(frame: DataFrame, form: str, address: str, **options: str) -> None:
    _opened(frame.write.format(form).mode("append"), address, options).save()


def start(
    frame: DataFrame, form: str, address: str, checkpoint: Path, *, once: bool, **options: str
) -> StreamingQuery:
    """A stream into a topic: over what is there now, or going on."""
    writer = _opened(frame.writeStream.format(form), address, options)
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "0 seconds"}
    return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


def finish(query: StreamingQuery) -> list[int]:
    """Wait for the end of a query over what is there now; how many rows its batches had."""
    assert query.awaitTermination(WAIT_SECONDS)
    counts = [progress.numInputRows for progress in query.recentProgress]
    return [rows for rows in counts if rows]


def check(query: StreamingQuery) -> None:
    """Raise what the query failed with, if it did."""
    problem = query.exception()
    if problem is not None:
        raise problem


def _opened(reader: Any, address: str, options: Options) -> Any:  # Spark's readers and writers.
    texts = {name: str(value) for name, value in options.items()}
    return reader.option("kafka.bootstrap.servers", address).options(**texts)


def _plain(value: Any) -> Any:  # Whatever a column holds.
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [tuple(_plain(part) for part in row) for row in value]
    return value
