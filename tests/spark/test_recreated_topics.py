"""Topics that are deleted and created anew under a query. Spark's part is played here: no JVM."""

import json
import logging
from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from millstream.spark.batch import BatchReader
from millstream.spark.client_options import ClientSettings
from millstream.spark.cluster import Cluster, cluster_for
from millstream.spark.errors import DataLoss
from millstream.spark.offsets import Json, from_json
from millstream.spark.options import SourceOptions, source_options
from millstream.spark.stream import StreamReader
from tests.spark.topics import Topics

SCHEMA = StructType([StructField("value", BinaryType()), StructField("offset", LongType())])

_used: set[ClientSettings] = set()


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    """Close the connections that Spark's workers would keep for the next task."""
    yield
    for client in _used:
        cluster_for(client).forget()
    _used.clear()


def options(topics: Topics, topic: str, *, is_streaming: bool, **given: str) -> SourceOptions:
    needed = {
        "kafka.bootstrap.servers": topics.broker.address,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.retry.backoff.ms": "10",
    }
    made = source_options(needed | given, is_streaming=is_streaming)
    _used.add(made.client)
    return made


class Query:
    """A run of a streaming query; `checkpoint` is what Spark would have written last."""

    def __init__(self, topics: Topics, topic: str, checkpoint: str | None = None, **given: str):
        made = options(topics, topic, is_streaming=True, **given)
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
        found = self.read(start, end)
        self.checkpoint = json.dumps(end)
        return found

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


@pytest.mark.parametrize("count", [0, 2, 3, 5])
def test_a_new_topic_fails_the_query_whatever_its_length(
    topics: Topics, topic: str, count: int
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic)
    assert query.batch() == [0, 1, 2]
    recreate(topics, topic, range(100, 100 + count))

    for run in (query, Query(topics, topic, query.checkpoint)):
        with pytest.raises(DataLoss, match=f"topic {topic} was deleted and created anew"):
            run.batch()


@pytest.mark.parametrize("count", [0, 2, 3, 5])
def test_a_new_topic_is_read_from_its_start_where_loss_is_accepted(
    topics: Topics, topic: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic, failOnDataLoss="false")
    query.batch()
    recreate(topics, topic, range(100, 100 + count))

    with caplog.at_level(logging.WARNING):
        again = Query(topics, topic, query.checkpoint, failOnDataLoss="false")
        assert again.batch() == list(range(100, 100 + count))
    assert f"topic {topic} was deleted and created anew" in caplog.text
    assert again.batch() == []
    send(topics, topic, range(200, 202))
    assert again.batch() == [200, 201]


def test_a_checkpoint_without_ids_goes_on_and_has_them_after_its_next_batch(
    topics: Topics, topic: str
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic, json.dumps({topic: {"0": 3}}))

    assert query.batch() == []  # Ids alone are no news.
    send(topics, topic, range(3, 5))
    assert query.batch() == [3, 4]
    recreate(topics, topic, range(100, 110))
    with pytest.raises(DataLoss, match="created anew"):
        query.batch()


def test_a_run_over_what_is_available_now_ends_with_a_checkpoint_without_ids(
    topics: Topics, topic: str
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic, json.dumps({topic: {"0": 3}}))
    query.reader.prepareForTriggerAvailableNow()

    start, end = query.plan()

    assert end == start


def test_a_batch_that_was_planned_for_the_topic_before_is_not_read_from_the_new_one(
    topics: Topics, topic: str
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic)
    start, end = query.plan()
    recreate(topics, topic, range(100, 105))

    with pytest.raises(DataLoss, match="was deleted and created anew meanwhile"):
        query.read(start, end)
    assert Query(topics, topic, failOnDataLoss="false").read(start, end) == []


def test_a_topic_that_is_created_anew_while_a_task_reads_fails_the_task(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic, failOnDataLoss="false")
    start, end = query.plan()
    begin = Cluster.begin_fetch

    def late(*arguments: object) -> object:
        recreate(topics, topic, range(100, 105))
        return begin(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Cluster, "begin_fetch", late)

    with pytest.raises(DataLoss, match="was deleted and created anew meanwhile"):
        query.read(start, end)


def test_a_batch_query_is_of_the_topic_that_was_there_when_it_was_planned(
    topics: Topics, topic: str
) -> None:
    fill(topics, topic, range(3))
    reader = BatchReader(options(topics, topic, is_streaming=False), SCHEMA)
    (partition,) = reader.partitions()
    assert sum(rows.num_rows for rows in reader.read(partition)) == 3
    recreate(topics, topic, range(100, 105))

    with pytest.raises(DataLoss, match="was deleted and created anew meanwhile"):
        list(reader.read(partition))


def test_a_broker_that_has_not_heard_of_the_new_topic_yet_does_not_turn_the_query_back(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic, failOnDataLoss="false")
    query.batch()
    former = from_json(json.loads(query.checkpoint)).topic_ids
    recreate(topics, topic, range(100, 105))
    assert query.batch() == list(range(100, 105))

    monkeypatch.setattr(Cluster, "last_topic_ids", lambda *_: dict(former))

    assert query.batch() == []


def test_brokers_without_ids_are_read_as_before(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "last_topic_ids", lambda *_: {})
    fill(topics, topic, range(3))
    query = Query(topics, topic, failOnDataLoss="false")

    assert query.batch() == [0, 1, 2]
    assert json.loads(query.checkpoint) == {topic: {"0": 3}}
    recreate(topics, topic, range(100, 102))
    assert query.batch() == [100, 101]
