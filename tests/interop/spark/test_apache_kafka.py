"""Our source and sink on Apache Kafka, which knows nothing of batches of transactions."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks.kafka.peers import Server
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millstream.spark.errors import DataLoss
from tests.interop.spark.queries import (
    BETWEEN_MS,
    FIRST_MS,
    SECOND_MS,
    check,
    finish,
    read,
    read_stream,
    rows,
    save,
    start,
    values,
)
from tests.spark.played_queries import Query, fill, hang_up
from tests.spark.sinks import (
    counting,
    each_once,
    forget_last_commit,
    logged_batches,
    numbers,
    until,
)
from tests.spark.topics import Topics

OURS = "millstream"
EARLIEST = {"startingOffsets": "earliest"}
BY_TASK = {"assumeDeterministicTasks": "true"}  # The tasks of these tests get the same rows again.
WAIT_SECONDS = 120


@pytest.fixture
def topics(kafka: Server) -> Topics:
    return Topics(kafka)  # type: ignore[arg-type]


def texts(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec_become_rows(
    spark: SparkSession, kafka: Server, topics: Topics, topic: str, codec: str
) -> None:
    topics.create(topic)
    sent = {"key": b"k", "headers": [("h", b"x"), ("h", None)], "timestamp": FIRST_MS}
    topics.send_with({"compression.type": codec}, topic, [b"a" * 200, None, b""], **sent)

    frame = read(spark, OURS, kafka.address, {"subscribe": topic, "includeHeaders": "true"})

    collected = rows(frame.selectExpr("*", "unix_millis(timestamp) as ms").drop("timestamp"))
    headers = [("h", b"x"), ("h", None)]
    assert collected == [
        (b"k", value, topic, 0, offset, 0, headers, FIRST_MS)
        for offset, value in enumerate([b"a" * 200, None, b""])
    ]


def test_what_is_available_is_read_in_pieces_and_the_group_shows_it(
    spark: SparkSession, kafka: Server, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, partitions=2)
    for partition in range(2):
        topics.send(topic, texts(0, 30), partition=partition)
    group = f"group-of-{topic}"
    options = {"subscribe": topic, "maxOffsetsPerTrigger": 40, "kafka.group.id": group, **EARLIEST}
    frame = read_stream(spark, OURS, kafka.address, options).select("key", "value")

    def run() -> list[int]:
        to: dict[str, Any] = {"once": True, "topic": f"{topic}-out", **BY_TASK}
        return finish(start(frame, OURS, kafka.address, tmp_path, **to))

    topics.create(f"{topic}-out", partitions=2)
    assert run() == [40, 20]
    topics.send(topic, texts(30, 5))
    assert run() == [5]
    written = read(spark, OURS, kafka.address, {"subscribe": f"{topic}-out"})
    assert values(written) == sorted([*texts(0, 35), *texts(0, 30)])
    assert run() == []  # The group is committed at the start of the trigger that follows.
    assert topics.committed(group, topic) == {0: 35, 1: 30}


def test_a_batch_starts_at_what_a_group_has_committed(
    spark: SparkSession, kafka: Server, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.create(f"{topic}-out")
    topics.send(topic, texts(0, 10))
    group = {"kafka.group.id": f"group-of-{topic}"}
    frame = read_stream(spark, OURS, kafka.address, {"subscribe": topic, **EARLIEST, **group})
    sink = {"topic": f"{topic}-out", "deliveryGuarantee": "at_least_once"}
    for _ in range(2):
        finish(start(frame, OURS, kafka.address, tmp_path, once=True, **sink))
    topics.send(topic, texts(10, 4))

    options = {"subscribe": topic, "startingOffsets": "committed", **group}
    records = read(spark, OURS, kafka.address, options)

    assert values(records) == texts(10, 4)


def test_aborted_transactions_are_not_read(
    spark: SparkSession, kafka: Server, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    for number, is_committed in enumerate([True, False, True, False]):
        topics.send_in_transaction(topic, texts(number * 10, 10), is_committed=is_committed)
    options = {"subscribe": topic}

    committed = read(spark, OURS, kafka.address, options)
    all_of_it = read(
        spark, OURS, kafka.address, {**options, "kafka.isolation.level": "read_uncommitted"}
    )

    assert values(committed) == sorted([*texts(0, 10), *texts(20, 10)])
    assert len(values(all_of_it)) == 40


def test_topics_by_pattern_and_offsets_by_time(
    spark: SparkSession, kafka: Server, topics: Topics, topic: str
) -> None:
    for name in (f"{topic}-a", f"{topic}-b"):
        topics.create(name)
        topics.send(name, texts(0, 5), timestamp=FIRST_MS)
        topics.send(name, texts(5, 5), timestamp=SECOND_MS)
    options = {"subscribePattern": f"{topic}-[ab]", "startingTimestamp": BETWEEN_MS}

    records = read(spark, OURS, kafka.address, options)

    assert values(records) == sorted(2 * texts(5, 5))


def test_a_running_query_sees_what_comes(
    spark: SparkSession, kafka: Server, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.create(f"{topic}-out")
    options = {"subscribe": topic, **EARLIEST}
    # Without the column partition, which the sink would take for where to write to.
    frame = read_stream(spark, OURS, kafka.address, options).select("value")
    to = {"topic": f"{topic}-out", **BY_TASK}
    query = start(frame, OURS, kafka.address, tmp_path, once=False, **to)

    def wait_for(count: int, claim: str) -> None:
        def is_there() -> bool:
            check(query)
            return numbers(kafka.address, f"{topic}-out") == each_once(count)

        until(is_there, claim, WAIT_SECONDS)

    try:
        topics.send(topic, texts(0, 5))
        wait_for(5, "records")
        topics.send(topic, texts(5, 5))
        wait_for(10, "records that came later")
        topics.grow(topic, 2)
        topics.send(topic, texts(10, 5), partition=1)
        wait_for(15, "records of a partition that is new")
    finally:
        query.stop()


@pytest.mark.parametrize("way", [{"deliveryGuarantee": "at_least_once"}, BY_TASK])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_batch_is_written(
    spark: SparkSession,
    kafka: Server,
    topics: Topics,
    topic: str,
    way: dict[str, str],
    codec: str,
) -> None:
    topics.create(topic, partitions=3)
    frame = spark.range(2_000).selectExpr("cast(id as string) as value", "binary('k') as key")

    save(frame, OURS, kafka.address, topic=topic, **way, **{"kafka.compression.type": codec})

    assert numbers(kafka.address, topic) == each_once(2_000)


def test_exactly_once_of_whole_batches_is_refused_with_the_ways_out(
    spark: SparkSession, kafka: Server, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    frame = spark.sql("select 'x' as value")

    with pytest.raises(PySparkException, match="set assumeDeterministicTasks to true"):
        save(frame, OURS, kafka.address, topic=topic)

    assert not numbers(kafka.address, topic)


def test_a_batch_of_a_stream_that_is_run_again_is_there_once(
    spark: SparkSession, kafka: Server, topics: Topics, topic: str, checkpoint: Path
) -> None:
    topics.create(topic, partitions=2)
    frame = counting(spark, 50, tasks=3)  # More tasks than the topic has partitions.

    def run_to(batches: int) -> None:
        to = {"topic": topic, **BY_TASK}
        query = start(frame, OURS, kafka.address, checkpoint, once=False, **to)
        try:
            until(
                lambda: len(logged_batches(checkpoint)) >= batches or not query.isActive,
                f"{batches} batches",
                WAIT_SECONDS,
            )
            check(query)
        finally:
            query.stop()

    run_to(3)
    again = forget_last_commit(checkpoint)
    run_to(again + 3)

    written, logged = numbers(kafka.address, topic), len(logged_batches(checkpoint))
    # What the stop cut off is there task by task, each of them once.
    assert set(written.values()) == {1}
    assert set(written) >= set(range(50 * logged))
    assert set(written) <= set(range(50 * (logged + 1)))


def test_a_topic_that_was_created_anew_is_noticed_by_kafkas_ids(topics: Topics, topic: str) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic)
    assert query.batch() == [0, 1, 2]
    topics.delete(topic)
    # Kafka ends a deletion some time after it has answered for it.
    until(lambda: topic not in topics.names(), "the topic to be gone")
    fill(topics, topic, range(100, 105))

    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and created anew"):
        query.batch()
    again = Query(topics, topic, query.checkpoint, failOnDataLoss="false")
    assert again.batch() == [100, 101, 102, 103, 104]
    assert again.batch() == []
    hang_up()
