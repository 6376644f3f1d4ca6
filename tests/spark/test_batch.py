"""Batch queries: every option, on a topic that a Kafka client wrote."""

import json
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millstream.spark.datasource import MillstreamSource
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

# -- a topic that all of these read: ten records in each of two partitions, a second apart ---------

TIME_MS = 1_700_000_000_000
COUNT = 10


@pytest.fixture(scope="module")
def orders(broker: BrokerProcess) -> str:
    topics = Topics(broker)
    # Its records are of 2023: with a time to keep them, the broker deletes them when it looks.
    topics.create("orders", partitions=2, retention_ms=-1)
    for partition in range(2):
        for number in range(COUNT):
            topics.send(
                "orders",
                [f"{partition}.{number}"],
                partition=partition,
                key=b"k%d" % number,
                timestamp=TIME_MS + 1000 * number,
                headers=[("n", str(number).encode())] if number % 2 else [],
            )
    return "orders"


def load(
    spark: SparkSession, broker: BrokerProcess, schema: str | None = None, **options: str
) -> DataFrame:
    reader = spark.read.format("millstream").option("kafka.bootstrap.servers", broker.address)
    reader = reader if schema is None else reader.schema(schema)
    return reader.options(**options).load()


def offsets_of(frame: DataFrame) -> dict[int, list[int]]:
    collected: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").collect():
        collected.setdefault(row.partition, []).append(row.offset)
    return {partition: sorted(collected[partition]) for partition in sorted(collected)}


ALL = {0: list(range(COUNT)), 1: list(range(COUNT))}


def test_a_filter_in_the_broker_leaves_topic_and_offsets_as_they_are(
    spark: SparkSession, broker: BrokerProcess, orders: str
) -> None:
    frame = load(spark, broker, subscribe=orders, brokerFilter="header.n > 4 and key != 'k7'")

    assert offsets_of(frame) == {0: [5, 9], 1: [5, 9]}
    assert {row.topic for row in frame.select("topic").collect()} == {orders}


@pytest.mark.smoke
def test_rows_are_those_of_the_kafka_connector(
    spark: SparkSession, broker: BrokerProcess, orders: str
) -> None:
    frame = load(spark, broker, subscribe=orders, includeHeaders="true")

    assert [(f.name, f.dataType.simpleString()) for f in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    row = frame.where("partition = 1 and offset = 3").collect()[0]
    assert (bytes(row.key), bytes(row.value), row.topic) == (b"k3", b"1.3", "orders")
    assert row.timestamp.timestamp() * 1000 == TIME_MS + 3000
    assert row.timestampType == 0
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("n", b"3")]


def test_the_source_may_be_registered_by_hand(
    spark: SparkSession, broker: BrokerProcess, orders: str
) -> None:
    class Renamed(MillstreamSource):
        @classmethod
        def name(cls) -> str:
            return "renamed"

    spark.dataSource.register(Renamed)

    reader = spark.read.format("renamed").option("kafka.bootstrap.servers", broker.address)
    assert reader.option("subscribe", orders).load().count() == 20


def test_a_view_in_sql_reads_the_same(
    spark: SparkSession, broker: BrokerProcess, orders: str
) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW o USING millstream OPTIONS "
        f"(kafka.bootstrap.servers '{broker.address}', subscribe '{orders}')"
    )

    assert spark.sql("SELECT count(*), max(offset) FROM o").collect()[0][:] == (20, 9)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ALL),
        ({"startingOffsets": '{"orders": {"0": 7, "1": -2}}'}, {0: [7, 8, 9], 1: ALL[1]}),
        ({"endingOffsets": '{"orders": {"0": 2, "1": -1}}'}, {0: [0, 1], 1: ALL[1]}),
        ({"startingTimestamp": str(TIME_MS + 7500)}, {0: [8, 9], 1: [8, 9]}),
        ({"endingTimestamp": str(TIME_MS + 2000)}, {0: [0, 1], 1: [0, 1]}),
        ({"endingTimestamp": str(TIME_MS * 2)}, ALL),
        (
            {
                "startingOffsetsByTimestamp": json.dumps(
                    {"orders": {"0": TIME_MS + 8000, "1": TIME_MS + 9000}}
                )
            },
            {0: [8, 9], 1: [9]},
        ),
        (
            {"startingTimestamp": str(TIME_MS * 2), "startingOffsetsByTimestampStrategy": "latest"},
            {},
        ),
        ({"kafka.isolation.level": "read_uncommitted"}, ALL),
        ({"kafka.max.partition.fetch.bytes": "100"}, ALL),
    ],
    ids=lambda value: next(iter(value), "all") if value and isinstance(value, dict) else "",
)
def test_a_batch_has_what_lies_between_its_places(
    spark: SparkSession,
    broker: BrokerProcess,
    orders: str,
    options: dict[str, str],
    expected: dict[int, list[int]],
) -> None:
    assert offsets_of(load(spark, broker, subscribe=orders, **options)) == expected


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, 2),
        ({"minPartitions": "5"}, 6),
        ({"maxRecordsPerPartition": "4"}, 6),
        ({"minPartitions": "3", "maxRecordsPerPartition": "2"}, 10),
    ],
)
def test_ranges_are_cut_into_tasks(
    spark: SparkSession, broker: BrokerProcess, orders: str, options: dict[str, str], tasks: int
) -> None:
    frame = load(spark, broker, subscribe=orders, **options)

    assert frame.rdd.getNumPartitions() == tasks
    assert offsets_of(frame) == ALL


def test_topics_are_found_by_pattern_and_partitions_by_assignment(
    spark: SparkSession, broker: BrokerProcess, orders: str
) -> None:
    assert offsets_of(load(spark, broker, subscribePattern="ord.*")) == ALL
    assert offsets_of(load(spark, broker, assign='{"orders": [1]}')) == {1: ALL[1]}
    assert load(spark, broker, subscribePattern="nothing.*").count() == 0


def test_a_schema_of_fewer_columns_reads_only_those(
    spark: SparkSession, broker: BrokerProcess, orders: str
) -> None:
    frame = load(spark, broker, "offset bigint, value binary", subscribe=orders)

    assert frame.columns == ["offset", "value"]
    assert frame.where("offset = 9").count() == 2


def test_a_data_frame_keeps_its_end_and_a_new_one_sees_more(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send(topic, [b"a"])
    frame = load(spark, broker, subscribe=topic)
    assert frame.count() == 1

    topics.send(topic, [b"b"])

    assert frame.count() == 1
    assert load(spark, broker, subscribe=topic).count() == 2


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, codec: str
) -> None:
    topics.create(topic)
    values = [b"value-%d" % number * 20 for number in range(500)]
    topics.send_with({"compression.type": codec, "linger.ms": 50}, topic, values)

    rows = load(spark, broker, subscribe=topic).orderBy("offset").collect()

    assert [bytes(row.value) for row in rows] == values


@pytest.mark.smoke
def test_json_values_become_columns_and_bad_ones_null(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send(topic, ['{"id": 1, "who": {"name": "ann"}}', "oops", None, '{"id": 2}'])
    schema = {"valueFormat": "json", "valueSchema": "id bigint, who struct<name: string>"}

    frame = load(spark, broker, subscribe=topic, onError="null", **schema)

    assert [tuple(row) for row in frame.selectExpr("value.id", "value.who.name").collect()] == [
        (1, "ann"),
        (None, None),
        (None, None),
        (2, None),
    ]
    with pytest.raises(PySparkException, match="the value b'oops' at offset"):
        load(spark, broker, subscribe=topic, **schema).collect()


def test_gaps_that_compaction_left_are_no_loss(
    spark: SparkSession, topics: Topics, broker: BrokerProcess, topic: str
) -> None:
    topics.create(
        topic,
        cleanup_policy="compact",
        segment_bytes=1024,
        min_cleanable_dirty_ratio=0,
        min_compaction_lag_ms=0,
    )
    for number in range(60):
        topics.send(topic, [b"%d" % number * 50], key=b"k%d" % (number % 3))

    def has_gaps() -> bool:
        rows = load(spark, broker, subscribe=topic).select("offset").collect()
        offsets = sorted(row.offset for row in rows)
        assert offsets[-1] == 59
        return len(offsets) < 60

    assert eventually(has_gaps)


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.2)
    return False


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "orders", "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "nowhere"}, "there is no topic or partition nowhere"),
        ({"assign": '{"orders": [7]}'}, "there is no topic or partition orders-7"),
        ({"subscribe": "orders", "startingOffsets": '{"orders": {"0": 1}}'}, "must name all"),
        (
            {"subscribe": "orders", "startingTimestamp": "9999999999999"},
            "has no record at or after",
        ),
        (
            {"subscribe": "orders", "endingOffsets": '{"orders": {"0": 99, "1": 0}}'},
            "asks for orders-0 up to 99, it ends at 10",
        ),
        ({"subscribe": "orders", "brokerFilter": "x"}, "brokerFilter: filter, at character 1"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(
    spark: SparkSession,
    broker: BrokerProcess,
    orders: str,
    options: dict[str, str],
    sentence: str,
) -> None:
    with pytest.raises(PySparkException) as problem:
        load(spark, broker, **options).count()

    assert sentence in str(problem.value)


def test_a_start_that_aged_out_fails_or_is_skipped(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send(topic, [b"%d" % number for number in range(10)])
    topics.drop_before(topic, 6)
    start = json.dumps({topic: {"0": 2}})

    with pytest.raises(PySparkException, match="Some data may have been missed"):
        load(spark, broker, subscribe=topic, startingOffsets=start).collect()
    tolerant = load(spark, broker, subscribe=topic, startingOffsets=start, failOnDataLoss="false")
    assert offsets_of(tolerant) == {0: [6, 7, 8, 9]}


def test_a_query_goes_on_from_what_a_group_committed(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send(topic, [b"%d" % number for number in range(10)])
    options = {"kafka.group.id": f"g-{topic}", "startingOffsets": "committed"}
    assert load(spark, broker, subscribe=topic, **options).count() == 10

    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": f"g-{topic}"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    consumer.close()

    assert offsets_of(load(spark, broker, subscribe=topic, **options)) == {0: [7, 8, 9]}
