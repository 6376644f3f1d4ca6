"""The sink: what is written where, and that every batch of a stream is there once."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming import StreamingQuery

from millstream.kafka_wire.apis.millstream import EndBatchRequest
from millstream.kafka_wire.apis.table import APIS
from tests.interop.forwarder import Forwarder
from tests.spark import cluster_driver
from tests.spark.sink_driver import DEADLY_BATCH, DEATHS, ROWS_PER_BATCH
from tests.spark.sinks import (
    WAIT_SECONDS,
    committed_values,
    counting,
    each_once,
    forget_last_commit,
    logged_batches,
    numbers,
    until,
)
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

# JVMs of drivers that are started here take their time on a busy machine.
pytestmark = pytest.mark.timeout(300)
Process = subprocess.Popen[bytes]

ROWS = 50
ROWS_PER_ARROW_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
END_BATCH = next(api.key for api in APIS.values() if api.request is EndBatchRequest)


def save(rows: DataFrame, address: str, **options: str) -> None:
    writer = rows.write.format("millstream").mode("append")
    writer.option("kafka.bootstrap.servers", address).options(**options).save()


def start(
    rows: DataFrame, address: str, topic: str, checkpoint: Path, **options: str
) -> StreamingQuery:
    writer = rows.writeStream.format("millstream").option("kafka.bootstrap.servers", address)
    writer = writer.option("topic", topic).option("checkpointLocation", str(checkpoint))
    return writer.options(**options).start()


def run_until(query: StreamingQuery, checkpoint: Path, batch_count: int) -> None:
    """Let the query run until Spark's log has so many batches, and stop it."""

    def is_there() -> bool:
        problem = query.exception()
        assert problem is None, problem
        return len(logged_batches(checkpoint)) >= batch_count

    try:
        until(is_there, f"{batch_count} batches in {checkpoint}", 2 * WAIT_SECONDS)
    finally:
        query.stop()


def check_all_once(address: str, topic: str, checkpoint: Path, rows: int = ROWS) -> None:
    """Every batch that Spark has logged is there once; one that it has not, whole or not at all."""
    logged = logged_batches(checkpoint)
    written = numbers(address, topic)
    assert written in (each_once(rows * len(logged)), each_once(rows * (len(logged) + 1)))


# -- batch queries ---------------------------------------------------------------------------------


@pytest.mark.smoke
def test_rows_become_records(spark: SparkSession, broker: BrokerProcess, topics: Topics) -> None:
    topics.create("records", partitions=3)
    rows = spark.sql(
        "select 'records' as topic, 2 as partition, binary('k') as key, 'v' as value, "
        "array(named_struct('key', 'h', 'value', binary('x'))) as headers"
    )

    save(rows, broker.address)

    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    try:
        consumer.assign([TopicPartition("records", 2, 0)])
        message = consumer.poll(WAIT_SECONDS)
    finally:
        consumer.close()
    assert message is not None
    assert (message.key(), message.value(), message.headers()) == (b"k", b"v", [("h", b"x")])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_written_is_read_back(
    spark: SparkSession, broker: BrokerProcess, topic: str, codec: str
) -> None:
    rows = spark.range(2_000).selectExpr(
        "cast(id as string) as value", "if(id % 3 = 0, null, cast(id as string)) as key"
    )

    save(rows, broker.address, topic=topic, **{"kafka.compression.type": codec})

    assert numbers(broker.address, topic) == each_once(2_000)


def test_a_null_value_and_an_empty_one_differ(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    save(spark.sql("select * from values (null), ('') as t(value)"), broker.address, topic=topic)

    assert set(committed_values(broker.address, topic)) == {None, b""}


def test_a_batch_query_that_fails_leaves_nothing_to_see(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    rows = spark.range(0, 40_000, 1, 2).selectExpr(
        "cast(if(id = 39999, raise_error('stop'), id) as string) as value"
    )

    with pytest.raises(PySparkException, match="stop"):
        save(rows, broker.address, topic=topic)
    save(spark.range(3).selectExpr("cast(id as string) as value"), broker.address, topic=topic)

    assert numbers(broker.address, topic) == each_once(3)


def test_at_least_once_needs_no_transaction(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    rows = spark.range(500).selectExpr("cast(id as string) as value")

    save(rows, broker.address, topic=topic, deliveryGuarantee="at_least_once")

    assert numbers(broker.address, topic) == each_once(500)


def test_rows_say_what_time_they_have_and_how_long_they_live(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic, retention_ms=-1)
    rows = spark.sql(
        "select value, timestamp_millis(time) as timestamp, ttl as ttlMs from values "
        "('then', 1000000L, null), ('soon over', 1000000L, 5L), "
        "('lasts', null, 900000L) as t(value, time, ttl)"
    )

    save(rows.coalesce(1), broker.address, topic=topic)

    source = spark.read.format("millstream").option("kafka.bootstrap.servers", broker.address)
    rows_read = source.options(subscribe=topic, includeHeaders="true").load().collect()
    assert [bytes(row.value) for row in rows_read] == [b"then", b"lasts"]
    assert rows_read[0].timestamp.timestamp() == 1_000
    assert rows_read[1].timestamp.timestamp() > 1_700_000_000
    assert [(h.key, bytes(h.value)) for h in rows_read[1].headers] == [("ms-ttl-ms", b"900000")]


def test_rows_are_delivered_when_they_say(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    rows = spark.sql(
        "select 'late' as value, current_timestamp() + interval 3 seconds as deliverAt "
        "union all select 'now', null"
    )

    started = time.time()
    save(rows, broker.address, topic=topic, deliveryGuarantee="at_least_once")

    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        first, second = consumer.poll(WAIT_SECONDS), consumer.poll(WAIT_SECONDS)
    finally:
        consumer.close()
    assert (first.value(), second.value()) == (b"now", b"late")  # type: ignore[union-attr]
    assert time.time() - started >= 3


@pytest.mark.parametrize(
    ("sql", "options", "sentence"),
    [
        ("select 1 as value", {"topic": "t"}, "unsupported type for column value"),
        ("select 'x' as value", {}, "topic option required"),
        ("select 'x' as value, '5' as ttlMs", {"topic": "t"}, "unsupported type for column ttlMs"),
        (
            "select 'x' as value, current_timestamp() as deliverAt",
            {"topic": "t"},
            "set deliveryGuarantee to at_least_once",
        ),
        ("select 'x' as value, -5L as ttlMs", {"topic": "t"}, "-5 ms in column ttlMs"),
        ("select 'x' as value", {"topic": "t", "ackz": "1"}, "there is no option ackz"),
        ("select 'x' as value, 77 as partition", {"topic": "t"}, "asks for partition 77"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(
    spark: SparkSession, broker: BrokerProcess, sql: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException, match=sentence):
        save(spark.sql(sql), broker.address, **options)


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_batch_that_is_run_again_is_there_once(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    rows = counting(spark, ROWS)
    run_until(start(rows, broker.address, topic, tmp_path), tmp_path, 3)

    again = forget_last_commit(tmp_path)
    run_until(start(rows, broker.address, topic, tmp_path), tmp_path, again + 3)

    check_all_once(broker.address, topic, tmp_path)


def test_another_spelling_of_the_checkpoint_is_the_same_query(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    rows = counting(spark, ROWS)
    run_until(start(rows, broker.address, topic, tmp_path), tmp_path, 2)

    again = forget_last_commit(tmp_path)
    spelt = {"checkpointLocation": f"file:{tmp_path.parent}//{tmp_path.name}/"}
    run_until(start(rows, broker.address, topic, tmp_path, **spelt), tmp_path, again + 2)

    check_all_once(broker.address, topic, tmp_path)


def test_a_copy_of_an_older_checkpoint_is_refused_until_it_has_another_name(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    rows, checkpoint, copy = counting(spark, ROWS), tmp_path / "checkpoint", tmp_path / "copy"
    run_until(start(rows, broker.address, topic, checkpoint), checkpoint, 1)
    shutil.copytree(checkpoint, copy)
    logged = len(logged_batches(checkpoint))
    run_until(start(rows, broker.address, topic, checkpoint), checkpoint, logged + 3)
    before = numbers(broker.address, topic)
    shutil.rmtree(checkpoint)
    copy.rename(checkpoint)

    query = start(rows, broker.address, topic, checkpoint)
    with pytest.raises(PySparkException, match="set the option transactionalIdPrefix to a name"):
        query.awaitTermination(WAIT_SECONDS)
    assert numbers(broker.address, topic) == before

    prefix = {"transactionalIdPrefix": f"{topic}-again"}
    logged = len(logged_batches(checkpoint))
    run_until(start(rows, broker.address, topic, checkpoint, **prefix), checkpoint, logged + 1)
    assert sum(numbers(broker.address, topic).values()) > sum(before.values())


def test_a_query_without_its_checkpoint_starts_over(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    rows, prefix = counting(spark, ROWS), {"transactionalIdPrefix": topic}
    run_until(start(rows, broker.address, topic, tmp_path / "a", **prefix), tmp_path / "a", 2)

    before = sum(numbers(broker.address, topic).values())
    run_until(start(rows, broker.address, topic, tmp_path / "b", **prefix), tmp_path / "b", 2)

    after = numbers(broker.address, topic)
    assert sum(after.values()) - before >= 2 * ROWS  # Nothing is taken for written already.
    assert max(after.values()) == 2


@pytest.mark.smoke
def test_a_task_that_fails_while_it_writes_is_tried_again_and_counts_once(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    markers, checkpoint = tmp_path / "attempts", tmp_path / "checkpoint"
    markers.mkdir()
    count = 6_000  # With values of 2 kB each task has sent some of them when it fails.
    rows = failing_once(counting(spark, count), count, markers)
    spark.conf.set(ROWS_PER_ARROW_BATCH, "500")
    try:
        run_until(start(rows, broker.address, topic, checkpoint), checkpoint, 2)
    finally:
        spark.conf.unset(ROWS_PER_ARROW_BATCH)

    check_all_once(broker.address, topic, checkpoint, count)
    assert len(list(markers.iterdir())) >= 2


def failing_once(rows: DataFrame, count: int, markers: Path) -> DataFrame:
    """Long values, behind the last of which each batch fails the first time that it is run."""
    folder = str(markers)

    def failing(text: str) -> str:
        from pathlib import Path as Here

        batch, number = divmod(int(text), count)
        marker = Here(folder) / str(batch)
        if number == count - 1 and not marker.exists():
            marker.touch()
            raise RuntimeError("the first attempt fails")
        return text.zfill(2_000)

    return rows.select(udf(failing, "string", useArrow=False)("value").alias("value"))


# -- commits on a bad line -------------------------------------------------------------------------


class Thief(Forwarder):
    """Steals the first few requests to commit a batch, or the answers to them."""

    def __init__(self, *, steals_answers: bool, count: int) -> None:
        self._steals_answers = steals_answers
        self._left = count
        self._is_answer_next = False
        self._lock = Lock()
        super().__init__()

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def is_question_passed(self, data: bytes) -> bool:
        with self._lock:
            if self._left and int.from_bytes(data[4:6]) == END_BATCH:
                self._is_answer_next = self._steals_answers
                self._left -= 1
                return self._steals_answers
            return True

    def is_answer_passed(self, data: bytes) -> bool:
        with self._lock:
            stolen, self._is_answer_next = self._is_answer_next, False
            return not stolen


@contextmanager
def robbed(tmp_path: Path, thief: Thief) -> Iterator[BrokerProcess]:
    """A broker that sends every client through the thief."""
    broker = BrokerProcess(
        tmp_path, DEFAULT_PARTITIONS=2, ADVERTISED_HOST="127.0.0.1", ADVERTISED_PORT=thief.port
    )
    broker.start()
    thief.target_port = broker.port
    try:
        yield broker
    finally:
        broker.kill()
        thief.close()


@pytest.mark.parametrize("steals_answers", [True, False])
@pytest.mark.smoke
def test_a_commit_whose_request_or_answer_is_lost_counts_once(
    spark: SparkSession, topic: str, tmp_path: Path, steals_answers: bool
) -> None:
    thief = Thief(steals_answers=steals_answers, count=3)
    with robbed(tmp_path, thief):
        address = f"127.0.0.1:{thief.port}"
        query = start(counting(spark, ROWS), address, topic, tmp_path / "c")
        run_until(query, tmp_path / "c", 3)

        assert thief.is_done
        check_all_once(address, topic, tmp_path / "c")


# -- drivers that die, and drivers that meet -------------------------------------------------------


@contextmanager
def driver(address: str, topic: str, checkpoint: Path, death: str) -> Iterator[Process]:
    arguments = [sys.executable, "-m", "tests.spark.sink_driver"]
    process = subprocess.Popen(
        [*arguments, address, topic, str(checkpoint), death],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        # The driver leads a group of its own: its JVM and their workers go with it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("death", DEATHS)
def test_a_driver_that_dies_at_its_commit_is_succeeded_without_loss_or_doubles(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path, death: str
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with driver(broker.address, topic, checkpoint, death) as process:
        assert process.wait(timeout=2 * WAIT_SECONDS) == -signal.SIGKILL
    assert logged_batches(checkpoint) == list(range(DEADLY_BATCH))

    rows = counting(spark, ROWS_PER_BATCH)
    run_until(start(rows, broker.address, topic, checkpoint), checkpoint, DEADLY_BATCH + 2)

    check_all_once(broker.address, topic, checkpoint, ROWS_PER_BATCH)


def test_the_later_of_two_drivers_on_one_checkpoint_wins(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    rows = counting(spark, ROWS_PER_BATCH)
    with driver(broker.address, topic, checkpoint, "never"):
        until(lambda: len(logged_batches(checkpoint)) >= 2, "the first driver", 2 * WAIT_SECONDS)
        # Both go on; the one that is too late with a batch fails, in the broker or in Spark's log.
        # Each may be too late for the other one: the later driver is then started again.
        later = [start(rows, broker.address, topic, checkpoint)]
        seen = len(logged_batches(checkpoint))

        def is_further() -> bool:
            if not later[-1].isActive:
                later.append(start(rows, broker.address, topic, checkpoint))
            return len(logged_batches(checkpoint)) >= seen + 3

        until(is_further, "either of the drivers")
        later[-1].stop()

    run_until(
        start(rows, broker.address, topic, checkpoint),
        checkpoint,
        len(logged_batches(checkpoint)) + 1,
    )

    check_all_once(broker.address, topic, checkpoint, ROWS_PER_BATCH)


def test_a_broker_that_is_killed_and_comes_back_does_not_end_the_query(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    process = BrokerProcess(tmp_path, DEFAULT_PARTITIONS=2)
    process.start()
    try:
        checkpoint = tmp_path / "checkpoint"
        query = start(counting(spark, ROWS), process.address, topic, checkpoint)
        until(lambda: len(logged_batches(checkpoint)) >= 2, "the first batches", 2 * WAIT_SECONDS)
        for _ in range(2):
            process.kill()
            process.start()
            seen = len(logged_batches(checkpoint))
            until(lambda: len(logged_batches(checkpoint)) > seen + 1, "batches after a restart")  # noqa: B023
        run_until(query, checkpoint, 4)

        check_all_once(process.address, topic, checkpoint)
    finally:
        process.kill()


# -- a cluster -------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_an_executor_that_is_killed_while_it_writes_leaves_every_row_once(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    module = "tests.spark.cluster_driver"
    result = subprocess.run(
        [sys.executable, "-m", module, broker.address, topic, str(tmp_path)],
        capture_output=True,
        timeout=540,
        check=False,
    )

    assert result.returncode == 0, result.stderr.decode()
    assert len(list(tmp_path.iterdir())) >= 2, "no task ran twice"
    assert numbers(broker.address, topic) == each_once(cluster_driver.ROWS)
