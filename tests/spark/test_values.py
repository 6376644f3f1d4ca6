"""Values with a schema, read by Spark; and what becomes of those that are none."""

import base64
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": [
                "null",
                {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            ],
        },
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
    ],
}
JSON = {"valueFormat": "json", "valueSchema": "id bigint"}


def load(spark: SparkSession, broker: BrokerProcess, **options: str) -> DataFrame:
    reader = spark.read.format("millstream").option("kafka.bootstrap.servers", broker.address)
    return reader.options(**options).load()


def avro_value(row: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), row)
    return out.getvalue()


def avro_order(number: int) -> bytes:
    return avro_value({"id": number, "at": 1_700_000_000_005, "price": None, "tags": {"a": ["x"]}})


def test_avro_is_columns(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.send(topic, [avro_order(1), None, avro_order(2)])
    options = {"valueFormat": "avro", "valueSchema": json.dumps(AVRO)}

    frame = load(spark, broker, subscribe=topic, **options)

    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,at:timestamp,price:decimal(9,2),tags:map<string,array<string>>>"
    )
    rows = frame.orderBy("offset").selectExpr(
        "value.id", "unix_millis(value.at) as at", "value.price", "value.tags", "value is null"
    )
    assert [tuple(row) for row in rows.collect()] == [
        (1, 1_700_000_000_005, None, {"a": ["x"]}, False),
        (None, None, None, None, True),
        (2, 1_700_000_000_005, None, {"a": ["x"]}, False),
    ]


def proto() -> tuple[Any, bytes]:
    """A message, and the descriptor set that protoc would write for it."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="s.proto", package="s", syntax="proto3")
    order = file.message_type.add(name="Order")
    optional = kind.LABEL_OPTIONAL
    order.field.add(name="id", number=1, type=kind.TYPE_UINT64, label=optional)
    order.field.add(name="tags", number=2, type=kind.TYPE_STRING, label=kind.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("s.Order"))
    return made, descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


@pytest.mark.parametrize("is_file", [True, False])
def test_protobuf_is_columns(
    spark: SparkSession,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    is_file: bool,
) -> None:
    order, descriptors = proto()
    topics.send(topic, [order(id=2**64 - 1, tags=["x"]).SerializeToString(), b"\xff"])
    schema = base64.b64encode(descriptors).decode()
    if is_file:
        (tmp_path / "s.desc").write_bytes(descriptors)
        schema = str(tmp_path / "s.desc")

    frame = load(
        spark,
        broker,
        subscribe=topic,
        valueFormat="protobuf",
        valueSchema=schema,
        valueMessage="s.Order",
        onError="null",
    )

    rows = frame.orderBy("offset").selectExpr("cast(value.id as string)", "value.tags").collect()
    assert [tuple(row) for row in rows] == [(str(2**64 - 1), ["x"]), (None, None)]


def test_a_bad_value_fails_the_query_with_its_place(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send(topic, ['{"id": 1}', "oops"])

    with pytest.raises(PySparkException, match=f"the value b'oops' at offset 1 of {topic}-0"):
        load(spark, broker, subscribe=topic, **JSON).collect()


# -- dead letters ----------------------------------------------------------------------------------


def letters(spark: SparkSession, broker: BrokerProcess, topic: str) -> list[dict[str, str]]:
    """The headers of all dead letters of a topic, with the value as one of them."""
    rows = load(spark, broker, subscribe=f"{topic}.dlq", includeHeaders="true").collect()
    return [
        {"value": bytes(row.value).decode()}
        | {pair.key: bytes(pair.value).decode() for pair in row.headers}
        for row in rows
    ]


@pytest.mark.smoke
def test_bad_records_go_to_the_dead_letters_and_good_ones_on(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.send(topic, ['{"id": 1}', "oops", '{"id": 2}'], headers=[("mine", b"x")])

    frame = load(spark, broker, subscribe=topic, onError="dlq", **JSON)

    assert [row[0] for row in frame.selectExpr("value.id").collect()] == [1, 2]
    assert frame.count() == 2  # It is read again, and puts nothing aside again.
    (letter,) = letters(spark, broker, topic)
    assert letter.pop("ms-dlq-error")
    assert letter.pop("ms-dlq-group").startswith("spark-kafka-relation-")
    assert letter == {
        "value": "oops",
        "mine": "x",
        "ms-subject": f"DLQ.{topic}",
        "ms-dlq-topic": topic,
        "ms-dlq-partition": "0",
        "ms-dlq-offset": "1",
        "ms-dlq-reason": "schema",
    }


def test_a_task_that_is_run_again_puts_nothing_aside_twice(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Every batch is run by a task that breaks behind the source, and by one that does not."""
    topics.create(topic, partitions=2)
    for partition in (0, 1):
        values = ["bad" if number % 3 == 0 else f'{{"id": {number}}}' for number in range(30)]
        topics.send(topic, values, partition=partition)

    def break_once(number: int) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if number == 29 and context.attemptNumber() == 0:
            raise ValueError("broken on purpose")
        return number

    stream = (
        spark.readStream.format("millstream")
        .option("kafka.bootstrap.servers", broker.address)
        .options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
        .options(onError="dlq", **JSON)
        .load()
    )
    broken = udf(break_once, "bigint", useArrow=False)
    for _ in range(2):  # The second run finds the first one's checkpoint, short of its last batch.
        query = (
            stream.select(broken("value.id"))
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        last = max(int(p.name) for p in (tmp_path / "commits").iterdir() if p.name.isdecimal())
        (tmp_path / "commits" / str(last)).unlink()
        (tmp_path / "commits" / f".{last}.crc").unlink(missing_ok=True)

    dead_letters = letters(spark, broker, topic)
    places = Counter(
        (item["ms-dlq-partition"], int(item["ms-dlq-offset"])) for item in dead_letters
    )
    assert places == Counter((p, offset) for p in ("0", "1") for offset in range(0, 30, 3))


# -- subjects --------------------------------------------------------------------------------------


def test_subjects_are_read_with_wildcards(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.create(f"{topic}-other")
    for number, subject in enumerate([f"{topic}.eu.new", f"{topic}.us.new", f"{topic}.eu.gone"]):
        headers = [("ms-subject", subject.encode())]
        topics.send(topic, [str(number)], headers=headers)
    topics.send(topic, ["plain"])
    topics.send(f"{topic}-other", ["x"], headers=[("ms-subject", b"other.eu.new")])

    def values(patterns: str) -> list[str]:
        rows = load(spark, broker, subscribeSubjects=patterns).orderBy("offset").collect()
        return [bytes(row.value).decode() for row in rows]

    assert values(f"{topic}.*.new") == ["0", "1"]
    assert values(f"{topic}.eu.>, {topic}") == ["0", "2", "plain"]
    assert values(f"{topic}.>") == ["0", "1", "2"]
