"""The options of the sink: Kafka's names, and a sentence for every mistake."""

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millstream.codec.compression import Codec
from millstream.spark.datasource import MillstreamSource
from millstream.spark.errors import InvalidOption
from millstream.spark.options import sink as sink_options_module
from millstream.spark.options.sink import Guarantee, SinkOptions, sink_options
from millstream.spark.write.spark_writers import check_rows


def options(*, is_streaming: bool = True, **more: str) -> SinkOptions:
    """Options with `_` for `.` and what every sink needs."""
    named = {name.replace("_", "."): text for name, text in more.items()}
    needed = {"kafka.bootstrap.servers": "host:9092"}
    if is_streaming:
        needed["checkpointLocation"] = "/checkpoints/q"
    return sink_options(needed | named, is_streaming=is_streaming)


def refused(**more: Any) -> str:
    with pytest.raises(InvalidOption) as problem:
        options(**more)
    return str(problem.value)


def test_a_sink_writes_exactly_once_unless_it_is_asked_for_less() -> None:
    assert options().guarantee is Guarantee.EXACTLY_ONCE
    assert options(is_streaming=False).guarantee is Guarantee.EXACTLY_ONCE
    assert options(deliveryGuarantee="at_least_once").guarantee is Guarantee.AT_LEAST_ONCE


def test_exactly_once_needs_an_identity_that_lasts() -> None:
    assert "checkpointLocation" in refused(checkpointLocation="")
    relaxed = options(checkpointLocation="", deliveryGuarantee="at_least_once")
    assert (relaxed.checkpoint, relaxed.transactional_id_prefix) == (None, None)


def test_kafkas_producer_settings_are_taken() -> None:
    chosen = options(
        kafka_compression_type="zstd",
        kafka_batch_size="1000",
        kafka_transaction_timeout_ms="5000",
        kafka_delivery_timeout_ms="7000",
        kafka_max_in_flight_requests_per_connection="1",
        kafka_acks="all",
        kafka_enable_idempotence="true",
    )

    assert chosen.codec is Codec.ZSTD
    assert (chosen.batch_bytes_max, chosen.transaction_timeout_ms) == (1000, 5000)
    assert (chosen.client.patience_ms, chosen.in_flight_max) == (7000, 1)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("deliverAt", "now", "use a column of this name"),
        ("ttlMs", "5", "use a column of this name"),
        ("path", "x", "use the option topic"),
        ("topik", "x", "did you mean topic?"),
        ("subscribe", "x", "there is no option subscribe in the sink"),
        ("topic", " ", "option topic is empty"),
        ("deliveryGuarantee", "twice", "expected one of exactly_once, at_least_once"),
        ("assumeDeterministicTasks", "yes", "expected one of true, false"),
        ("kafka_max_in_flight_requests_per_connection", "6", "at most 5"),
        ("kafka_compression_type", "rar", "expected one of none, gzip"),
        ("kafka_key_serializer", "x", "DataFrame operations"),
        ("kafka_value_serializer", "x", "DataFrame operations"),
        ("kafka_transactional_id", "x", "use transactionalIdPrefix"),
        (
            "kafka_lingr_ms",
            "5",
            "there is no setting kafka.lingr.ms; did you mean kafka.linger.ms?",
        ),
        ("kafka_batch_size", "0", "must be positive"),
    ],
)
def test_a_mistake_is_a_sentence(name: str, text: str, sentence: str) -> None:
    assert sentence in refused(**{name: text})


def test_the_former_name_of_an_option_is_taken_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink_options_module._warn_of_former_name.cache_clear()

    collected = [options(allowNonDeterministic="true") for _ in range(3)]

    assert all(sink_options.assumes_deterministic_tasks for sink_options in collected)
    assert [record.getMessage() for record in caplog.records] == [
        "option allowNonDeterministic is now called assumeDeterministicTasks"
    ]
    assert "set only assumeDeterministicTasks" in refused(
        allowNonDeterministic="true", assumeDeterministicTasks="true"
    )


@pytest.mark.parametrize("name", ["kafka_queue_buffering_max", "kafka_sasl_kerberos_service_name"])
def test_a_name_that_resembles_none_is_not_guessed_at(name: str) -> None:
    assert "did you mean" not in refused(**{name: "5"})


def test_a_batch_query_is_written_once_by_a_name_and_a_number() -> None:
    chosen = options(is_streaming=False, transactionalIdPrefix="x", batchId="7")

    assert (chosen.transactional_id_prefix, chosen.batch_id) == ("x", 7)


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ({"transactionalIdPrefix": "x"}, "option batchId is missing"),
        ({"batchId": "1"}, "option transactionalIdPrefix is missing"),
        ({"transactionalIdPrefix": "x", "batchId": "-1"}, "batchId is '-1', expected"),
        ({"transactionalIdPrefix": "x", "batchId": "one"}, "batchId is 'one', expected"),
    ],
)
def test_a_name_without_a_number_is_refused(named: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        options(is_streaming=False, **named)


def test_a_stream_numbers_its_batches_itself() -> None:
    assert "a stream numbers its batches itself" in refused(batchId="1")


# -- rows ------------------------------------------------------------------------------------------

PAIR = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "array<string>": ArrayType(StringType()),
    "array<struct<key:string,value:binary>>": ArrayType(PAIR),
}


def schema(ddl: str) -> StructType:
    """What Spark's own parser makes of it, without a JVM."""
    fields = [field.split(" ", 1) for field in ddl.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def check(ddl: str, **more: Any) -> None:
    check_rows(schema(ddl), options(**more))


def test_the_rows_of_kafkas_connector_can_be_written() -> None:
    check("value string", topic="t")
    check("key binary, value binary, topic string, partition int")
    check("key string, value string, headers array<struct<key:string,value:binary>>", topic="t")


def test_rows_may_say_when_and_for_how_long() -> None:
    check("value binary, timestamp timestamp, ttlMs bigint", topic="t")
    check("value binary, deliverAt timestamp", topic="t", deliveryGuarantee="at_least_once")


def test_further_columns_are_left_out_as_ever() -> None:
    check("value binary, offset bigint, timestampType int", topic="t")


@pytest.mark.parametrize(
    ("ddl", "sentence"),
    [
        ("key binary", "'value' not found"),
        ("value int", "unsupported type for column value"),
        ("value binary, key int", "unsupported type for column key"),
        ("value binary, partition bigint", "unsupported type for column partition"),
        ("value binary, headers array<string>", "unsupported type for column headers"),
        ("value binary, topic binary", "unsupported type for column topic"),
        ("value binary, timestamp bigint", "unsupported type for column timestamp"),
        ("value binary, deliverAt bigint", "unsupported type for column deliverAt"),
        ("value binary, deliverAt timestamp", "set deliveryGuarantee to at_least_once"),
        ("value binary, ttlMs string", "unsupported type for column ttlMs"),
        ("value binary, ttlms bigint", "no column ttlms; did you mean ttlMs?"),
    ],
)
def test_rows_that_are_no_records_are_refused(ddl: str, sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        check(ddl, topic="t")


def test_rows_need_a_topic_from_somewhere() -> None:
    with pytest.raises(InvalidOption, match="topic option required"):
        check("value binary")


def test_a_topic_is_not_overwritten() -> None:
    source = MillstreamSource({"kafka.bootstrap.servers": "host:1", "topic": "t"})

    with pytest.raises(InvalidOption, match="overwrite is not allowed"):
        source.writer(schema("value binary"), True)
