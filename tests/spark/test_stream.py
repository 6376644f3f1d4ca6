"""Streaming queries: what is read once and only once, how much at a time, and what is lost."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from millstream.spark.source_environment import NAMES, add_names
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

WAIT_SECONDS = 90


class Stream:
    """A query over a topic that keeps every batch it sees. May be stopped and started again."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, checkpoint: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._checkpoint = checkpoint
        self.batches: dict[int, list[tuple[int, int, bytes]]] = {}
        self.query: StreamingQuery | None = None

    def start(self, *, available_now: bool = False, **options: str) -> StreamingQuery:
        frame = (
            self._spark.readStream.format("millstream")
            .option("kafka.bootstrap.servers", self._broker.address)
            .options(**options)
            .load()
        )
        trigger: dict[str, Any] = (
            {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        )
        writer = frame.select("partition", "offset", "value").writeStream.foreachBatch(self._keep)
        self.query = (
            writer.option("checkpointLocation", str(self._checkpoint)).trigger(**trigger).start()
        )
        return self.query

    def run(self, **options: str) -> None:
        """Read what is there, and stop."""
        query = self.start(available_now=True, **options)
        assert query.awaitTermination(WAIT_SECONDS)

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    @property
    def rows(self) -> list[tuple[int, int, bytes]]:
        return sorted(row for rows in list(self.batches.values()) for row in rows)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return [(partition, offset) for partition, offset, _ in self.rows]

    @property
    def end_offsets(self) -> dict[str, dict[str, int]]:
        """Where the last batch ended, by Spark's own account."""
        assert self.query is not None
        parsed: dict[str, dict[str, int]] = json.loads(
            self.query.recentProgress[-1].sources[0].endOffset
        )
        return {topic: ends for topic, ends in parsed.items() if ends}  # Ids of topics have none.

    def sees(self, count: int) -> bool:
        """Wait until this many rows came; fails with the query's own error if it ended."""
        assert self.query is not None
        query = self.query
        return wait_until(lambda: len(self.rows) >= count or not query.isActive) and (
            len(self.rows) >= count or _raise(query)
        )

    def _keep(self, frame: DataFrame, batch_id: int) -> None:
        # A batch that is run again replaces what its first run left.
        self.batches[batch_id] = [
            (row.partition, row.offset, bytes(row.value)) for row in frame.collect()
        ]


def _raise(query: StreamingQuery) -> bool:
    problem = query.exception()
    if problem is not None:
        raise problem
    return False


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


@pytest.fixture
def stream(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> Iterator[Stream]:
    stream = Stream(spark, broker, tmp_path / "checkpoint")
    yield stream
    stream.stop()


def values(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


EARLIEST: dict[str, Any] = {"startingOffsets": "earliest"}


@pytest.mark.smoke
def test_what_is_available_is_read_in_pieces_and_a_restart_goes_on(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic, partitions=2)
    topics.send(topic, values(0, 30))
    topics.send(topic, values(0, 10), partition=1)
    options = {"subscribe": topic, "maxOffsetsPerTrigger": "20", **EARLIEST}

    stream.run(**options)

    assert [len(stream.batches[number]) for number in sorted(stream.batches)] == [20, 20]
    assert [len({row[0] for row in rows}) for rows in stream.batches.values()] == [2, 2]
    topics.send(topic, values(30, 5))
    stream.run(**options)
    assert stream.offsets == [(0, n) for n in range(35)] + [(1, n) for n in range(10)]


def test_a_running_query_sees_new_records_new_partitions_and_shows_where_it_stands(
    stream: Stream, topics: Topics, topic: str
) -> None:
    group = f"group-of-{topic}"
    topics.create(topic)
    query = stream.start(subscribe=topic, **EARLIEST, **{"kafka.group.id": group})  # type: ignore[arg-type]
    topics.send(topic, values(0, 3))
    assert stream.sees(3)

    topics.grow(topic, 2)
    topics.send(topic, values(0, 2), partition=1)

    assert stream.sees(5)
    assert stream.offsets == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    # No further batch is needed for the group to be where the query is.
    assert wait_until(lambda: topics.committed(group, topic) == {0: 3, 1: 2})
    assert json.loads(query.lastProgress.sources[0].latestOffset) == {topic: {"0": 3, "1": 2}}  # type: ignore[union-attr]


def test_a_query_begins_at_the_end_unless_told_otherwise(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send(topic, values(0, 3))
    query = stream.start(subscribe=topic)
    assert wait_until(lambda: query.lastProgress is not None)

    topics.send(topic, values(3, 2))

    assert stream.sees(2)
    assert stream.offsets == [(0, 3), (0, 4)]


def test_topics_that_match_are_found_while_the_query_runs(
    stream: Stream, topics: Topics, topic: str
) -> None:
    stream.start(subscribePattern=f"{topic}-.*", **EARLIEST)
    topics.create(f"{topic}-a")
    topics.send(f"{topic}-a", values(0, 1))
    assert stream.sees(1)

    topics.create(f"{topic}-b")
    topics.send(f"{topic}-b", values(7, 1))

    assert stream.sees(2)
    assert [row[2] for row in stream.rows] == [b"0", b"7"]


def test_a_broker_that_restarts_is_waited_for(stream: Stream, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.send(topic, values(0, 3))
    stream.start(subscribe=topic, **EARLIEST)
    assert stream.sees(3)

    topics.broker.kill()
    topics.broker.start()
    topics.send(topic, values(3, 3))

    assert stream.sees(6)
    assert stream.offsets == [(0, n) for n in range(6)]


def test_a_batch_waits_for_enough_records_but_not_for_ever(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send(topic, values(0, 3))
    stream.start(subscribe=topic, minOffsetsPerTrigger="5", maxTriggerDelay="1h", **EARLIEST)
    topics.send(topic, values(3, 2))
    assert stream.sees(5)
    assert len(stream.batches) == 1
    stream.stop()

    topics.send(topic, values(5, 1))
    stream.start(subscribe=topic, minOffsetsPerTrigger="5", maxTriggerDelay="1s", **EARLIEST)

    assert stream.sees(6)


def test_a_limit_of_bytes_is_kept_about(stream: Stream, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.send_with({"batch.size": 4_000}, topic, [b"x" * 1000] * 200)

    stream.run(subscribe=topic, maxBytesPerTrigger="50000", **EARLIEST)

    assert len(stream.rows) == 200
    assert 4 <= len(stream.batches) <= 6


def test_retention_that_passes_the_query_fails_it_or_is_skipped(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send(topic, values(0, 3))
    stream.run(subscribe=topic, **EARLIEST)
    topics.send(topic, values(3, 7))
    topics.drop_before(topic, 6)

    with pytest.raises(StreamingQueryException, match="Some data may have been missed"):
        stream.run(subscribe=topic, **EARLIEST)
    stream.run(subscribe=topic, failOnDataLoss="false", **EARLIEST)

    assert [offset for _, offset in stream.offsets] == [0, 1, 2, 6, 7, 8, 9]


def test_a_deleted_topic_fails_the_query_or_is_left_out_and_read_anew_when_it_is_back(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send(topic, values(0, 3))
    stream.run(subscribe=topic, **EARLIEST)
    topics.delete(topic)

    with pytest.raises(StreamingQueryException, match="is gone, the query stood at offset 3"):
        stream.run(subscribe=topic, **EARLIEST)
    stream.run(subscribe=topic, failOnDataLoss="false", **EARLIEST)

    topics.create(topic)
    topics.send(topic, values(100, 2))
    stream.run(subscribe=topic, failOnDataLoss="false", **EARLIEST)
    assert sorted(row[2] for row in stream.rows) == [b"0", b"1", b"100", b"101", b"2"]


def test_a_topic_that_was_created_anew_fails_the_query_or_is_read_from_its_start(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send(topic, values(0, 3))
    stream.run(subscribe=topic, **EARLIEST)
    topics.delete(topic)
    topics.create(topic)
    topics.send(topic, values(100, 2))

    with pytest.raises(
        StreamingQueryException, match=f"topic {topic} was deleted and created anew"
    ):
        stream.run(subscribe=topic, **EARLIEST)
    stream.run(subscribe=topic, failOnDataLoss="false", **EARLIEST)

    assert sorted(row[2] for row in stream.rows) == [b"0", b"1", b"100", b"101", b"2"]


def test_a_topic_that_was_created_anew_and_has_outgrown_the_query_is_noticed(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send(topic, values(0, 3))
    stream.run(subscribe=topic, **EARLIEST)
    topics.delete(topic)
    topics.create(topic)
    topics.send(topic, values(100, 5))

    with pytest.raises(StreamingQueryException, match=f"topic {topic} was deleted and created"):
        stream.run(subscribe=topic, **EARLIEST)
    stream.run(subscribe=topic, failOnDataLoss="false", **EARLIEST)
    topics.send(topic, values(105, 1))
    stream.run(subscribe=topic, **EARLIEST)

    assert sorted(int(row[2]) for row in stream.rows) == [0, 1, 2, *range(100, 106)]


def test_a_query_over_a_compacted_topic_passes_its_gaps(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic, cleanup_policy="compact", segment_bytes=1024, min_cleanable_dirty_ratio=0)
    for number in range(60):
        topics.send(topic, [b"%d" % number * 50], key=b"k%d" % (number % 3))
    assert wait_until(lambda: topics.count(topic) < 60)

    stream.run(subscribe=topic, maxOffsetsPerTrigger="17", minPartitions="3", **EARLIEST)

    assert stream.rows[-1][1] == 59
    assert len(stream.rows) < 60
    assert stream.end_offsets == {topic: {"0": 60}}


@pytest.mark.smoke
def test_what_a_transaction_aborted_is_not_read_and_its_markers_are_no_loss(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send_in_transaction(topic, values(0, 2), is_committed=True)
    topics.send_in_transaction(topic, values(100, 3), is_committed=False)
    topics.send_in_transaction(topic, values(2, 2), is_committed=True)

    stream.run(subscribe=topic, maxOffsetsPerTrigger="4", **EARLIEST)

    # Two records and a marker, three records and a marker, two records and a marker.
    assert [(offset, value) for _, offset, value in stream.rows] == [
        (0, b"0"),
        (1, b"1"),
        (7, b"2"),
        (8, b"3"),
    ]
    assert stream.end_offsets == {topic: {"0": 10}}


def test_a_mistake_ends_the_query_with_a_sentence(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic)

    with pytest.raises(PySparkException, match="endingOffsets is not supported in streaming"):
        stream.run(subscribe=topic, endingOffsets="latest")


def test_a_query_goes_on_from_its_checkpoint_with_another_filter_for_the_broker(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send(topic, ["a1", "b1", "a2"])
    stream.run(subscribe=topic, startingOffsets="earliest", brokerFilter="value ~ '^a'")
    topics.send(topic, ["a3", "b2"])

    stream.run(subscribe=topic, startingOffsets="earliest", brokerFilter="value ~ '^b'")

    assert [value for _, _, value in stream.rows] == [b"a1", b"a2", b"b2"]
    assert stream.end_offsets == {topic: {"0": 5}}


def test_real_time_mode_takes_no_python_source(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """When this fails, `versions.REAL_TIME_MODE` and docs/spark/versions.md can be reconsidered."""
    topics.create(topic)
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": topic}
    frame = spark.readStream.format("millstream").options(**options).load()
    writer = frame.writeStream.format("console").outputMode("update")
    trigger: dict[str, Any] = {"realTime": "5 seconds"}  # Not in the types of every Spark.
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(**trigger)

    with pytest.raises(PySparkException, match="INPUT_STREAM_NOT_SUPPORTED"):
        writer.start().awaitTermination(WAIT_SECONDS)


@pytest.fixture
def source_environment(spark: SparkSession) -> Any:  # A map of the JVM.
    """The environment variables of the source, as they are in a JVM without a query so far."""
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    environment = sources.lookupDataSource("millstream").dataSourceCls().envVars()
    for name in NAMES:
        environment.remove(name)
    return environment


def test_no_query_adds_to_the_environment_that_it_shares_with_others(
    spark: SparkSession, stream: Stream, topics: Topics, topic: str, source_environment: Any
) -> None:
    """Two that add at the same time break it: no task can be serialized any more."""
    topics.create(topic)
    topics.send(topic, values(0, 1))
    add_names(spark)
    before = sorted(source_environment.keySet())

    stream.run(subscribe=topic, **EARLIEST)

    assert len(stream.rows) == 1
    assert sorted(source_environment.keySet()) == before


@pytest.mark.parametrize("to_table", [False, True], ids=["start", "toTable"])
def test_the_names_are_there_before_a_query_starts(
    spark: SparkSession, tmp_path: Path, topic: str, source_environment: Any, to_table: bool
) -> None:
    """Any query: one that has no part of the source adds no name by itself."""
    writer = spark.readStream.format("rate").load().writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    name = topic.replace("-", "_")
    query = writer.toTable(name) if to_table else writer.format("noop").start()

    assert query.awaitTermination(WAIT_SECONDS)
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    assert set(NAMES) <= set(source_environment.keySet())
