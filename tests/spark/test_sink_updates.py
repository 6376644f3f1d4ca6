"""Output mode update, and foreachBatch: each batch is written once, also when it is run again."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from millstream.spark import write_once
from tests.spark.sinks import committed_values, counting, each_once, forget_last_commit, numbers
from tests.spark.standalone import wait_until
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

ROWS = 20
HOLD_SECONDS_MAX = 240


def run_to_its_end(query: StreamingQuery) -> None:
    assert query.awaitTermination(240)


def word_count(spark: SparkSession, address: str, words: str) -> DataFrame:
    lines = (
        spark.readStream.format("millstream")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", words)
        .option("startingOffsets", "earliest")
        .load()
    )
    return (
        lines.selectExpr("explode(split(cast(value as string), ' ')) as word")
        .groupBy("word")
        .count()
        .selectExpr("word as key", "concat(word, ' ', count) as value")
    )


@pytest.mark.smoke
def test_a_word_count_in_output_mode_update_writes_what_changed_once(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    words, checkpoint = f"{topic}-words", tmp_path / "checkpoint"
    topics.create(words)

    def count_words() -> None:
        # The lines of Spark's guide, with another format.
        query = (
            word_count(spark, broker.address, words)
            .writeStream.format("millstream")
            .outputMode("update")
            .option("kafka.bootstrap.servers", broker.address)
            .option("topic", topic)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        run_to_its_end(query)

    topics.send(words, [b"flour salt flour"])
    count_words()
    topics.send(words, [b"salt"])
    count_words()
    forget_last_commit(checkpoint)
    count_words()

    values = sorted(value.decode() for value in committed_values(broker.address, topic))
    assert values == ["flour 2", "salt 1", "salt 2"]


def test_a_batch_of_foreachbatch_that_is_run_again_is_not_written_again(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    stop_after = 2

    def write_to_two_topics(batch: DataFrame, batch_id: int) -> None:
        for target in (topic, f"{topic}-copy"):
            write_once(batch, batch_id, topic=target, bootstrap=broker.address)
        if batch_id == stop_after:
            raise RuntimeError("the driver is lost before Spark's log has the batch")

    for _ in range(2):
        query = (
            counting(spark, ROWS)
            .writeStream.foreachBatch(write_to_two_topics)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        with pytest.raises(PySparkException, match="the driver is lost"):
            query.awaitTermination(240)

    for target in (topic, f"{topic}-copy"):
        assert numbers(broker.address, target) == each_once(ROWS * (stop_after + 1))


def test_two_writes_of_a_batch_under_one_name_are_refused(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    def write_twice(batch: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            write_once(batch, batch_id, topic=topic, bootstrap=broker.address)

    query = (
        counting(spark, ROWS)
        .writeStream.foreachBatch(write_twice)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    with pytest.raises(PySparkException, match="give each write of a batch a name of its own"):
        query.awaitTermination(240)


def test_outside_of_a_query_a_name_is_needed_and_a_number_that_went_back_is_refused(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    with pytest.raises(ValueError, match="does not know which query this is"):
        write_once(rows, 0, topic=topic, bootstrap=broker.address)

    for batch_id in (4, 4, 5):
        write_once(rows, batch_id, topic=topic, bootstrap=broker.address, name="nightly")

    assert sorted(numbers(broker.address, topic).values()) == [2, 2, 2]
    with pytest.raises(PySparkException, match=r"runs batch 4, but .* up to 5"):
        write_once(rows, 4, topic=topic, bootstrap=broker.address, name="nightly")


def test_a_mistake_in_the_options_of_an_update_query_is_told_when_it_is_started(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="did you mean topic"):
        (
            counting(spark, ROWS)
            .groupBy("value")
            .count()
            .writeStream.format("millstream")
            .outputMode("update")
            .option("topik", "t")
            .option("kafka.bootstrap.servers", "localhost:9")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )


def test_a_query_that_is_stopped_in_the_middle_of_a_batch_ends_without_an_error(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Spark searches the text of the error, and its search in a long text overflows the stack."""
    source, begun, released = f"{topic}-source", tmp_path / "begun", tmp_path / "released"
    topics.create(source)
    topics.send(source, [b"first"])

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deadline = time.monotonic() + HOLD_SECONDS_MAX
        for batch in batches:
            begun.touch()
            while not released.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            yield batch

    query = (
        spark.readStream.format("millstream")
        .option("kafka.bootstrap.servers", broker.address)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("value")
        .mapInArrow(hold, "value binary")
        .writeStream.format("millstream")
        .outputMode("update")
        .option("kafka.bootstrap.servers", broker.address)
        .option("topic", topic)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait_until(lambda: begun.exists() or not query.isActive)
        assert begun.exists(), query.exception()
    finally:
        query.stop()
        released.touch()

    assert query.exception() is None
    assert query.status["message"] == "Stopped"  # Else Spark did not know its own interruption.
