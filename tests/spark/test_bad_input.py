"""A mistake is one sentence at the top of the error, with no traceback of a worker under it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

SENTENCE_WITHIN = 400  # Spark puts its own class, and the ids of a query, before it.


def message_of(act: Callable[[], object]) -> str:
    """The beginning of the error."""
    with pytest.raises(PySparkException) as problem:
        act()
    text = str(problem.value)
    assert "Traceback" not in text, text
    return " ".join(text[:SENTENCE_WITHIN].split())


MISTAKES = {
    "an unknown option": ({"startingOfsets": "earliest"}, "did you mean startingOffsets?"),
    "two options that exclude each other": ({"assign": "{}"}, "only one may be used"),
    "an unknown setting": ({"kafka.max.pol.records": "5"}, "did you mean kafka.max.poll.records?"),
    "a topic that is not there": (
        {"subscribe": "nowhere"},
        "there is no topic or partition nowhere",
    ),
}


@pytest.mark.parametrize(("options", "sentence"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_told_at_the_top(
    spark: SparkSession,
    broker: BrokerProcess,
    topics: Topics,
    tmp_path: Path,
    options: dict[str, str],
    sentence: str,
) -> None:
    settings = {"kafka.bootstrap.servers": broker.address, "subscribe": "mistakes", **options}
    if "mistakes" not in topics.names():
        topics.create("mistakes")

    def run_stream() -> None:
        frame = spark.readStream.format("millstream").options(**settings).load()
        writer = frame.writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        query.awaitTermination(60)

    assert sentence in message_of(
        lambda: spark.read.format("millstream").options(**settings).load().count()
    )
    assert sentence in message_of(run_stream)


def test_a_broker_that_is_gone_is_told_at_the_top(spark: SparkSession) -> None:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.default.api.timeout.ms": "1000",
        "fetchOffset.numRetries": "1",
        "subscribe": "x",
    }

    assert "127.0.0.1:1" in message_of(
        lambda: spark.read.format("millstream").options(**options).load().count()
    )


def test_a_mistake_in_a_write_is_told_at_the_top(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    rows = spark.range(1).selectExpr("cast(id as string) value")
    writer = rows.write.format("millstream").option("kafka.bootstrap.servers", broker.address)

    assert "topic option required" in message_of(writer.mode("append").save)
    assert "did you mean topic?" in message_of(writer.option("topik", "x").save)
