"""Rows as the source gives them, made by hand, and rows for the sink as plain values."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millstream.spark.pipelines.ready.records import HEADERS

START = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    f"timestampType int, headers {HEADERS}"
)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def record(
    value: object,
    *,
    key: str | None = "k",
    topic: str = "orders",
    partition: int = 0,
    offset: int = 0,
    seconds: float = 0,
    headers: Sequence[tuple[str, str]] = (),
) -> tuple[object, ...]:
    """A row of the source. A value that is no text and no bytes is spelt as JSON."""
    if isinstance(value, dict | list):
        value = json.dumps(value)
    raw = value.encode() if isinstance(value, str) else value
    pairs = [(name, text.encode()) for name, text in headers]
    return (key and key.encode(), raw, topic, partition, offset, at(seconds), 0, pairs)


def frame_of(spark: SparkSession, rows: Sequence[tuple[object, ...]]) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA)


def written(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows for the sink: bytes as text, headers as a dict, in any order."""
    return [_plain(row.asDict()) for row in frame.collect()]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    collected = {
        name: bytes(cell).decode() if isinstance(cell, bytes | bytearray) else cell
        for name, cell in row.items()
    }
    if "headers" in collected:
        headers: Any = collected["headers"]
        collected["headers"] = {pair.key: bytes(pair.value).decode() for pair in headers}
    return collected


class Arrivals:
    """A stream that gets its rows batch by batch, from files."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory

    def frame(self) -> DataFrame:
        path = str(self._directory / "in")
        Path(path).mkdir(exist_ok=True)
        reader = self._spark.readStream.schema(SCHEMA)
        return reader.option("maxFilesPerTrigger", 1).parquet(path)

    def run(
        self, made: DataFrame, batches: Sequence[Sequence[tuple[object, ...]]]
    ) -> tuple[list[dict[str, Any]], list[Any]]:
        """What comes out of all batches, and Spark's progress of them."""
        collected: list[dict[str, Any]] = []
        progress: list[Any] = []
        for rows in batches:
            whole = frame_of(self._spark, rows).coalesce(1)
            whole.write.mode("append").parquet(str(self._directory / "in"))
            query = (
                made.writeStream.foreachBatch(lambda frame, _: collected.extend(written(frame)))
                .option("checkpointLocation", str(self._directory / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            progress += [json.loads(report.json) for report in query.recentProgress]
        return collected, progress


def values(rows: Sequence[dict[str, Any]]) -> Iterator[Any]:
    """The JSON values of rows for the sink."""
    return (json.loads(row["value"]) for row in rows)
