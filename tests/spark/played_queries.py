"""A streaming query without a JVM: what Spark asks of a reader is asked here, batch after batch."""

import json

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from millstream.kafka_client.cluster import cluster_for
from millstream.kafka_client.settings import ClientSettings
from millstream.spark.options.source import SourceOptions, source_options
from millstream.spark.read.offset_ranges import Json
from millstream.spark.read.stream import StreamReader
from tests.spark.topics import Topics

SCHEMA = StructType([StructField("value", BinaryType()), StructField("offset", LongType())])

_used: set[ClientSettings] = set()


def hang_up() -> None:
    """Close the connections that Spark's workers would keep for the next task."""
    for client in _used:
        cluster_for(client).forget()
    _used.clear()


def options(topics: Topics, topic: str, *, is_streaming: bool, **more: str) -> SourceOptions:
    needed = {
        "kafka.bootstrap.servers": topics.broker.address,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.retry.backoff.ms": "10",
    }
    made = source_options(needed | more, is_streaming=is_streaming)
    _used.add(made.client)
    return made


class Query:
    """A run of a streaming query; `checkpoint` is what Spark would have written last."""

    def __init__(self, topics: Topics, topic: str, checkpoint: str | None = None, **more: str):
        made = options(topics, topic, is_streaming=True, **more)
        self.reader = StreamReader(made, SCHEMA)
        self.checkpoint = checkpoint or json.dumps(self.reader.initialOffset())

    def plan(self) -> tuple[Json, Json]:
        start = json.loads(self.checkpoint)
        return start, self.reader.latestOffset(start, ReadAllAvailable())

    def batch(self) -> list[int]:
        """Run one batch and return its values; nothing if Spark would not have begun one."""
        start, end = self.plan()
        if json.dumps(start) == json.dumps(end):
            return []
        records = self.read(start, end)
        self.checkpoint = json.dumps(end)
        return records

    def read(self, start: Json, end: Json) -> list[int]:
        return [
            int(row["value"])
            for partition in self.reader.partitions(start, end)
            for rows in self.reader.read(partition)
            for row in rows.to_pylist()
        ]


def send(topics: Topics, topic: str, numbers: range) -> None:
    topics.send(topic, [b"%d" % number for number in numbers])


def fill(topics: Topics, topic: str, numbers: range) -> None:
    topics.create(topic)
    send(topics, topic, numbers)


def recreate(topics: Topics, topic: str, numbers: range) -> None:
    topics.delete(topic)
    fill(topics, topic, numbers)
