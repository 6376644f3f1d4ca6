"""Columns of the types that are in the broker's schema registry."""

import io
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millstream.spark import register as tables_of
from millstream.spark import registry
from millstream.spark.errors import RegistryFailed
from millstream.spark.options.values import RegistryOptions, ValueFormat
from millstream.spark.registry import Registry
from millstream.spark.values.avro import avro_type
from millstream.spark.values.framing import FRAME
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}],
}
GROWN = {**ORDER, "fields": [*ORDER["fields"], {"name": "kg", "type": "int", "default": 5}]}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"), LISTENERS="kafka,http", DEFAULT_PARTITIONS=2
    )
    process.start()
    yield process
    process.kill()


@pytest.fixture
def url(broker: BrokerProcess) -> str:
    return f"http://{broker.host}:{broker.config.http_port}"


def register(url: str, subject: str, schema: object, **more: object) -> int:
    body = json.dumps({"schema": json.dumps(schema), **more}).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(f"{url}/subjects/{subject}/versions", body, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        number: int = json.load(answer)["id"]
        return number


def value(number: int, schema: Any, **row: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return FRAME.pack(0, number) + out.getvalue()


def load(spark: SparkSession, broker: BrokerProcess, url: str, **options: str) -> DataFrame:
    reader = spark.read.format("millstream").option("kafka.bootstrap.servers", broker.address)
    return reader.options(schemaRegistryUrl=url, **options).load()


def asked(url: str, subject: str, version: str = "latest") -> Registry:
    return Registry(RegistryOptions(url=url, subject=subject, version=version))


def test_values_of_all_versions_are_rows_of_the_latest(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, url: str
) -> None:
    subject = f"{topic}-value"
    first, second = register(url, subject, ORDER), register(url, subject, GROWN)
    values = [value(first, ORDER, id=1), value(second, GROWN, id=2, kg=7), b"\x02", None]
    topics.send(topic, values)

    frame = load(spark, broker, url, subscribe=topic, valueFormat="avro", onError="null")
    older = load(
        spark, broker, url, subscribe=topic, valueFormat="avro", onError="null",
        valueSchemaVersion="1",
    )  # fmt: skip

    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,kg:int>"
    rows = [row.value and row.value.asDict() for row in frame.orderBy("offset").collect()]
    assert rows == [{"id": 1, "kg": 5}, {"id": 2, "kg": 7}, None, None]
    assert older.selectExpr("sum(value.id)").first() == (3,)


def test_a_json_schema_gives_columns_and_a_stream_puts_bad_values_aside(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, url: str, tmp_path: Any
) -> None:
    properties = {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}
    schema = {"type": "object", "properties": properties}
    number = register(url, f"{topic}-value", schema, schemaType="JSON")
    good = FRAME.pack(0, number) + b'{"id": 4, "tags": ["x"]}'
    topics.send(topic, [good, b'{"id": 5}'])
    reader = spark.readStream.format("millstream").options(
        **{
            "kafka.bootstrap.servers": broker.address,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "schemaRegistryUrl": url,
            "valueFormat": "json",
            "onError": "dlq",
        }
    )

    query = (
        reader.load()
        .select("value.*")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert [(row.id, row.tags) for row in rows] == [(4, ["x"])]
    assert topics.size(f"{topic}.dlq") == 1


def test_a_subject_that_is_not_there_is_one_sentence(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, url: str
) -> None:
    topics.create(topic)

    with pytest.raises(PySparkException, match=f"has no version latest of subject {topic}-value"):
        load(spark, broker, url, subscribe=topic, valueFormat="avro").count()


def test_the_registry_is_asked_for_the_kind_that_the_options_name(url: str, topic: str) -> None:
    register(url, f"{topic}-value", ORDER)

    with pytest.raises(RegistryFailed, match="is AVRO, and valueFormat is json"):
        asked(url, f"{topic}-value").subject_schema(ValueFormat.JSON)


def test_schemas_that_refer_to_others_stand_alone(url: str, topic: str) -> None:
    address = {
        "type": "record",
        "name": "Address",
        "namespace": "shop",
        "fields": [{"name": "city", "type": "string"}],
    }
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "to", "type": "Address"}],
    }
    register(url, f"{topic}-address", address)
    reference = {"name": "shop.Address", "subject": f"{topic}-address", "version": 1}
    number = register(url, f"{topic}-value", order, references=[reference])

    client = asked(url, f"{topic}-value")

    assert (
        avro_type(client.subject_schema(ValueFormat.AVRO)) == "struct<`to`:struct<`city`:string>>"
    )
    assert "city" in client.schema(number)
    with pytest.raises(LookupError):
        client.schema(1_000_000)


def test_a_registry_that_does_not_answer_is_asked_again_and_named(
    monkeypatch: pytest.MonkeyPatch, broker: BrokerProcess
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(registry.time, "sleep", waits.append)

    with pytest.raises(RegistryFailed, match="no schema registry answers at"):
        asked("http://127.0.0.1:1", "s").subject_schema(ValueFormat.AVRO)
    assert len(waits) == registry.TRIES_MAX - 1


def test_a_password_is_sent_and_not_shown() -> None:
    options = RegistryOptions(url="http://r", subject="s", version="1", user_info="ann:secret")

    assert "secret" not in repr(options)
    assert Registry(options)._headers["Authorization"] == "Basic YW5uOnNlY3JldA=="


def test_topics_with_a_registered_schema_are_tables_of_its_columns(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, url: str
) -> None:
    others = (f"{topic}_bytes", f"{topic}_odd")
    number = register(url, f"{topic}-value", GROWN)
    union = {**ORDER, "fields": [{"name": "x", "type": ["string", "long"]}]}
    register(url, f"{topic}_odd-value", union)
    topics.send(topic, [value(number, GROWN, id=3, kg=4)])
    for other in others:
        topics.send(other, [b"x"])

    tables = tables_of(
        spark, broker.address, database="typed", topics=[topic, *others], schema_registry=url
    )

    names = {of: name for name, of in tables.items()}
    (row,) = spark.sql(f"SELECT value.id, value.kg FROM typed.`{names[topic]}`").collect()
    assert (row.id, row.kg) == (3, 4)
    for other in others:
        assert spark.table(f"typed.`{names[other]}`").first().value == b"x"  # type: ignore[union-attr]
    spark.sql("DROP DATABASE typed CASCADE")
