"""Creates topics and verifies stored records over the Kafka protocol."""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka.client_librdkafka import CONSUMER, QUIET
from benchmarks.kafka.job import Broken, Go, Stopwatch, deadline
from benchmarks.protocols.wire import value

if TYPE_CHECKING:
    from benchmarks.protocols.client import Task

SECONDS_MAX = 30.0
READ_COUNT = 10_000


class Topics:
    """Makes, proves and removes topics. Use it as a context."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._admin = AdminClient({"bootstrap.servers": address, **QUIET})

    def __enter__(self) -> "Topics":
        return self

    def __exit__(self, *_: object) -> None:
        del self._admin

    def create(self, topic: str, settings: Mapping[str, str] | None = None) -> None:
        made = NewTopic(topic, num_partitions=1, replication_factor=1, config=dict(settings or {}))
        self._admin.create_topics([made])[topic].result(SECONDS_MAX)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(SECONDS_MAX)

    def check(self, topic: str, *, size: int, count: int, samples: Iterable[int]) -> None:
        """Prove that a topic holds `count` records: by its end, and by the value of some."""
        consumer = Consumer(_settings(self._address))
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS_MAX)
            if end != count:
                raise Broken(f"{topic} holds {end} records, {count} were acknowledged")
            for number in samples:
                consumer.assign([TopicPartition(topic, 0, number)])
                message = consumer.poll(SECONDS_MAX)
                if message is None or message.error() or message.value() != value(number, size):
                    raise Broken(f"record {number} of {topic} was not read back")
        finally:
            consumer.close()


def read_topic(task: "Task", go: Go) -> dict[str, object]:
    """Read a topic or a view of one to its end; the clock stops at the last record.

    That there are no more is known when a fetch was waited for in vain.
    """
    consumer = Consumer(_settings(f"{task.host}:{task.port}") | {"enable.partition.eof": True})
    consumer.list_topics(task.topic, timeout=SECONDS_MAX)  # So that the connection is open.
    until = deadline()
    go()
    watch = Stopwatch()
    consumer.assign([TopicPartition(task.topic, 0, 0)])
    usage, received, is_end = watch.stop(), 0, False
    while not is_end:
        messages = consumer.consume(READ_COUNT, timeout=0.02)
        errors = [error for message in messages if (error := message.error()) is not None]
        if len(messages) > len(errors):
            usage = watch.stop()
            received += len(messages) - len(errors)
        for error in errors:
            if error.code() != KafkaError._PARTITION_EOF:
                raise Broken(str(error))
            is_end = True
        if time.monotonic() > until:
            raise Broken(f"the end of {task.topic} was not reached")
    consumer.close()
    return usage | {"found": received}


def _settings(address: str) -> dict[str, str | int | bool]:
    known = {"bootstrap.servers": address, "group.id": "bench", "auto.offset.reset": "error"}
    return known | QUIET | CONSUMER
