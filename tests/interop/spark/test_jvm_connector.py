"""Spark's own Kafka connector on our broker: it reads the same rows as our source, and writes."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from tests.interop.spark.queries import (
    BETWEEN_MS,
    FIRST_MS,
    SECOND_MS,
    WAIT_SECONDS,
    check,
    finish,
    read,
    read_stream,
    rows,
    save,
    start,
    values,
)
from tests.spark.sinks import committed_values, each_once, numbers, until
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

OURS, THEIRS = "millstream", "kafka"
EARLIEST = {"startingOffsets": "earliest"}


def texts(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


@pytest.fixture(scope="module")
def orders(broker: BrokerProcess) -> str:
    """Two topics of two partitions: keys, headers, nulls, two times, compressed and not."""
    topics = Topics(broker)
    for name in ("orders-eu", "orders-us"):
        topics.create(name, partitions=2)
        for partition in range(2):
            first = {"partition": partition, "timestamp": FIRST_MS, "key": b"k"}
            second = {"partition": partition, "timestamp": SECOND_MS, "headers": [("h", b"x")]}
            topics.send_with({"compression.type": "lz4"}, name, texts(0, 20), **first)
            topics.send_with({}, name, [*texts(20, 9), None], **second)
    return "orders-eu"


ONE_WORD = {
    "all of a topic": {"subscribe": "orders-eu"},
    "two topics, with headers": {"subscribe": "orders-eu,orders-us", "includeHeaders": "true"},
    "a pattern": {"subscribePattern": "orders-.*"},
    "a partition": {"assign": json.dumps({"orders-eu": [1]})},
    "offsets": {
        "subscribe": "orders-eu",
        "startingOffsets": json.dumps({"orders-eu": {"0": 5, "1": -2}}),
        "endingOffsets": json.dumps({"orders-eu": {"0": 25, "1": -1}}),
    },
    "a time": {"subscribe": "orders-eu", "startingTimestamp": BETWEEN_MS},
    "times of partitions": {
        "subscribe": "orders-eu",
        "startingOffsetsByTimestamp": json.dumps({"orders-eu": {"0": BETWEEN_MS, "1": FIRST_MS}}),
        "endingOffsetsByTimestamp": json.dumps({"orders-eu": {"0": SECOND_MS, "1": SECOND_MS}}),
    },
    "until a time": {"subscribe": "orders-eu", "endingTimestamp": BETWEEN_MS},
    "more tasks than partitions": {"subscribe": "orders-eu", "minPartitions": 5},
}


@pytest.mark.parametrize("options", ONE_WORD.values(), ids=ONE_WORD.keys())
def test_both_read_the_same_rows_with_the_same_options(
    spark: SparkSession, broker: BrokerProcess, orders: str, options: dict[str, object]
) -> None:
    ours, theirs = (rows(read(spark, form, broker.address, options)) for form in (OURS, THEIRS))

    assert theirs
    # Only the connector knows no headers where there are none; ours has an empty array.
    assert [_without_null(row) for row in ours] == [_without_null(row) for row in theirs]


def _without_null(row: tuple[object, ...]) -> tuple[object, ...]:
    return (*row[:7], (row[7] or []) if len(row) > 7 else None)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_both_see_the_same_of_transactions(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, level: str
) -> None:
    topics.create(topic)
    for number, is_committed in enumerate([True, False, True, False]):
        topics.send_in_transaction(topic, texts(number * 10, 10), is_committed=is_committed)
    options = {"subscribe": topic, "kafka.isolation.level": level}

    ours, theirs = (rows(read(spark, form, broker.address, options)) for form in (OURS, THEIRS))

    assert len(theirs) == {"read_committed": 20, "read_uncommitted": 40}[level]
    assert ours == theirs


def test_a_stream_reads_what_is_available_in_pieces_and_a_restart_goes_on(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, checkpoint: Path
) -> None:
    topics.create(topic, partitions=2)
    for partition in range(2):
        topics.send(topic, texts(partition * 30, 30), partition=partition)
    options = {"subscribe": topic, "maxOffsetsPerTrigger": 40, **EARLIEST}
    frame = read_stream(spark, THEIRS, broker.address, options).select("key", "value")
    to: dict[str, Any] = {"once": True, "topic": f"{topic}-out"}

    assert finish(start(frame, THEIRS, broker.address, checkpoint, **to)) == [40, 20]
    topics.send(topic, texts(60, 5))
    assert finish(start(frame, THEIRS, broker.address, checkpoint, **to)) == [5]

    assert numbers(broker.address, f"{topic}-out") == each_once(65)


def test_a_stream_over_a_pattern_sees_new_records_partitions_and_topics(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, checkpoint: Path
) -> None:
    topics.create(f"{topic}-a")
    # Without the default of five minutes: how long the client believes what topics there are.
    options = {"subscribePattern": f"{topic}-[ab]", "kafka.metadata.max.age.ms": 200, **EARLIEST}
    frame = read_stream(spark, THEIRS, broker.address, options).select("key", "value")
    query = start(frame, THEIRS, broker.address, checkpoint, once=False, topic=f"{topic}.out")

    def wait_for(count: int, claim: str) -> None:
        def is_there() -> bool:
            check(query)
            return numbers(broker.address, f"{topic}.out") == each_once(count)

        until(is_there, claim, WAIT_SECONDS)

    try:
        topics.send(f"{topic}-a", texts(0, 5))
        wait_for(5, "records")
        topics.grow(f"{topic}-a", 2)
        topics.send(f"{topic}-a", texts(5, 5), partition=1)
        wait_for(10, "records of a partition that is new")
        topics.create(f"{topic}-b")
        topics.send(f"{topic}-b", texts(10, 5))
        wait_for(15, "records of a topic that is new")
    finally:
        query.stop()


def test_continuous_processing_which_no_python_source_has_works_with_the_connector(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, checkpoint: Path
) -> None:
    topics.create(topic)
    topics.create(f"{topic}-out")
    frame = read_stream(spark, THEIRS, broker.address, {"subscribe": topic, **EARLIEST})
    writer = frame.select("value").writeStream.format(THEIRS).option("topic", f"{topic}-out")
    writer = writer.option("kafka.bootstrap.servers", broker.address)
    query = (
        writer.option("checkpointLocation", str(checkpoint)).trigger(continuous="1 second").start()
    )
    try:
        topics.send(topic, texts(0, 20))
        until(
            lambda: numbers(broker.address, f"{topic}-out") == each_once(20),
            "records on their way without batches",
            WAIT_SECONDS,
        )
    finally:
        query.stop()


def test_the_sink_writes_keys_headers_and_chosen_partitions(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic, partitions=3)
    frame = spark.sql(
        f"select '{topic}' as topic, 2 as partition, binary('k') as key, 'v' as value, "
        "array(named_struct('key', 'h', 'value', binary('x'))) as headers"
    )

    save(frame, THEIRS, broker.address, includeHeaders="true")

    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    try:
        consumer.assign([TopicPartition(topic, 2, 0)])
        message = consumer.poll(WAIT_SECONDS)
    finally:
        consumer.close()
    assert message is not None
    assert (message.key(), message.value(), message.headers()) == (b"k", b"v", [("h", b"x")])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_sink_writes_with_every_codec(
    spark: SparkSession, broker: BrokerProcess, topic: str, codec: str
) -> None:
    frame = spark.range(2_000).selectExpr("cast(id as string) as value")

    save(frame, THEIRS, broker.address, topic=topic, **{"kafka.compression.type": codec})

    assert numbers(broker.address, topic) == each_once(2_000)


@pytest.mark.parametrize(("source", "sink"), [(OURS, THEIRS), (THEIRS, OURS)])
def test_one_connector_reads_what_the_other_writes(
    spark: SparkSession,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    checkpoint: Path,
    source: str,
    sink: str,
) -> None:
    topics.create(topic, partitions=2)
    for partition in range(2):
        topics.send(topic, texts(partition * 500, 500), partition=partition, key=b"k")
    options = {"subscribe": topic, "maxOffsetsPerTrigger": 300, **EARLIEST}
    frame = read_stream(spark, source, broker.address, options).select("key", "value")

    to: dict[str, Any] = {"once": True, "topic": f"{topic}-out"}
    finish(start(frame, sink, broker.address, checkpoint, **to))

    assert numbers(broker.address, f"{topic}-out") == each_once(1_000)
    # What ours committed in transactions has gaps in its offsets, which the connector must bear.
    for form in (OURS, THEIRS):
        written = {"subscribe": f"{topic}-out", "kafka.isolation.level": "read_committed"}
        assert _counted(read(spark, form, broker.address, written)) == each_once(1_000)


def _counted(frame: DataFrame) -> Counter[int]:
    return Counter(int(value) for value in values(frame))


def test_a_batch_that_ours_aborted_is_not_read_by_the_connector(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    failing = spark.range(0, 40_000, 1, 2).selectExpr(
        "cast(if(id = 39999, raise_error('stop'), id) as string) as value"
    )
    with pytest.raises(Exception, match="stop"):
        save(failing, OURS, broker.address, topic=topic)
    save(
        spark.range(3).selectExpr("cast(id as string) as value"), OURS, broker.address, topic=topic
    )

    options = {"subscribe": topic, "kafka.isolation.level": "read_committed"}

    assert values(read(spark, THEIRS, broker.address, options)) == texts(0, 3)
    assert sorted(committed_values(broker.address, topic)) == texts(0, 3)
