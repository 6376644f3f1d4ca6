"""What tests of the sink need: rows that can be told apart, and readers of what was committed."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

WAIT_SECONDS = 60


def committed_values(address: str, topic: str) -> list[bytes]:
    """Every committed value of a topic, read by a client that is not ours."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        values, left = [], set(partitions)
        deadline = time.monotonic() + WAIT_SECONDS
        while left:
            assert time.monotonic() < deadline, f"partitions {left} did not end"
            for message in consumer.consume(1000, timeout=0.1):
                if message.error() is not None:
                    left.discard(message.partition())
                else:
                    values.append(message.value())
        return values  # type: ignore[return-value]
    finally:
        consumer.close()


def numbers(address: str, topic: str) -> Counter[int]:
    """How often each number was committed; each stands for an offset of the source."""
    return Counter(int(value) for value in committed_values(address, topic))


def each_once(count: int) -> Counter[int]:
    return Counter(range(count))


def counting(spark: SparkSession, rows_per_batch: int, tasks: int = 2) -> DataFrame:
    """A stream of numbers: `rows_per_batch` in every batch, the same again when it is run again."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows_per_batch)
        .option("numPartitions", tasks)
        .load()
        .selectExpr("cast(value as string) as value", "cast(value % 7 as string) as key")
    )


def until(is_true: Callable[[], bool], claim: str, seconds: float = WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, f"waited in vain: {claim}"
        time.sleep(0.02)


def logged_batches(checkpoint: Path) -> list[int]:
    """The batches that Spark's own log has as committed."""
    folder = checkpoint / "commits"
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return sorted(int(name) for name in names if name.isdecimal())


def forget_last_commit(checkpoint: Path) -> int:
    """Have Spark's log as if the driver had died before writing it; the batch is run again."""
    last = logged_batches(checkpoint)[-1]
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    return last
