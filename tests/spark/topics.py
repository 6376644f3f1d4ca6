"""Topics of a test: created, filled, changed and deleted with a Kafka client that is not ours."""

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.broker_process import BrokerProcess

WAIT_SECONDS = 60


class Topics:
    """What users do to topics while a query reads them."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self._admin = AdminClient({"bootstrap.servers": broker.address})

    def create(self, topic: str, *, partitions: int = 1, **settings: object) -> None:
        """Create; settings are Kafka's with `_` for `.`."""
        named = {name.replace("_", "."): str(value) for name, value in settings.items()}
        _done(self._admin.create_topics([NewTopic(topic, partitions, 1, config=named)]))

    def names(self) -> list[str]:
        return sorted(self._admin.list_topics(timeout=WAIT_SECONDS).topics)

    def size(self, topic: str) -> int:
        """How many records readers of committed ones see, in all partitions."""
        reader = Consumer(
            {
                "bootstrap.servers": self.broker.address,
                "group.id": "size",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        partitions = self._admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions
        reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        count, ended = 0, set[int]()
        while len(ended) < len(partitions):
            message = reader.poll(WAIT_SECONDS)
            assert message is not None
            if message.error():
                ended.add(message.partition())  # type: ignore[arg-type]
            else:
                count += 1
        reader.close()
        return count

    def delete(self, topic: str) -> None:
        _done(self._admin.delete_topics([topic]))

    def grow(self, topic: str, partitions: int) -> None:
        _done(self._admin.create_partitions([NewPartitions(topic, partitions)]))

    def drop_before(self, topic: str, offset: int, partition: int = 0) -> None:
        """Do what retention does: the log starts at `offset` from now on."""
        _done(self._admin.delete_records([TopicPartition(topic, partition, offset)]))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """What a lag tool sees of a group."""
        asked = [ConsumerGroupTopicPartitions(group)]
        (future,) = self._admin.list_consumer_group_offsets(asked).values()
        described = future.result(WAIT_SECONDS).topic_partitions
        return {p.partition: p.offset for p in described if p.topic == topic and p.offset >= 0}

    def count(self, topic: str) -> int:
        """How many records partition 0 still has, as a consumer counts them."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.address,
                "group.id": "c",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        count = 0
        while (message := consumer.poll(WAIT_SECONDS)) is not None and not message.error():
            count += 1
        consumer.close()
        return count

    def send_in_transaction(
        self, topic: str, values: Iterable[bytes], *, is_committed: bool
    ) -> None:
        """Write to partition 0 in a transaction and end it in one way or the other."""
        producer = Producer(
            {"bootstrap.servers": self.broker.address, "transactional.id": f"writer-of-{topic}"}
        )
        producer.init_transactions(WAIT_SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_SECONDS) == 0  # An abort would drop what was not sent yet.
        if is_committed:
            producer.commit_transaction(WAIT_SECONDS)
        else:
            producer.abort_transaction(WAIT_SECONDS)

    def send(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        **fields: Any,  # What confluent's produce takes: timestamp, headers.
    ) -> None:
        self.send_with({}, topic, values, partition=partition, key=key, **fields)

    def send_with(
        self,
        settings: dict[str, object],
        topic: str,
        values: Iterable[bytes | str | None],
        **fields: Any,
    ) -> None:
        """Send by a producer with these settings of librdkafka; returns when all is durable."""
        problems: list[object] = []
        producer = Producer({"bootstrap.servers": self.broker.address, **settings})
        for value in values:
            producer.produce(
                topic,
                value,
                on_delivery=lambda problem, _: problems.append(problem) if problem else None,
                **fields,
            )
        assert producer.flush(WAIT_SECONDS) == 0
        assert problems == []


def _done(futures: dict[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(WAIT_SECONDS)
