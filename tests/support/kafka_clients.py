"""Small words for real clients (librdkafka) in tests that are about something else."""

import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

SECONDS_MAX = 60


def until(condition: Callable[[], bool], claim: str) -> None:
    """Wait until it is so, and say what was waited for if it never is."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"waited {SECONDS_MAX} s for {claim}"
        time.sleep(0.02)


def produce(bootstrap: str, topic: str, *values: bytes, **options: object) -> list[str]:
    """Send to partition 0 and return what went wrong, in the words of the client."""
    problems: list[str] = []

    def note(error: object, _: Message) -> None:
        if error is not None:
            problems.append(str(error))

    settings = {key.replace("_", "."): value for key, value in options.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **settings})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=note)
    assert producer.flush(SECONDS_MAX) == 0
    return problems


def batching_producer(
    bootstrap: str, topic: str, settings: Mapping[str, object] | None = None
) -> Producer:
    """A producer that sends all records before `flush` in one batch, however slow it is.

    It knows the topic from the start: records of a topic that is not known yet wait elsewhere, and
    become a batch of their own.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 30_000, **(settings or {})})
    producer.list_topics(topic, timeout=SECONDS_MAX)
    return producer


def produce_batch(bootstrap: str, topic: str, *values: bytes) -> None:
    """Write one batch to partition 0."""
    producer = batching_producer(bootstrap, topic)
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def consumer(bootstrap: str, group: str = "tests", **options: object) -> Consumer:
    settings = {key.replace("_", "."): value for key, value in options.items()}
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )


def all_values(bootstrap: str, topic: str) -> list[bytes | None]:
    """Every record of partition 0 that is there now."""
    return [message.value() for message in all_messages(bootstrap, topic)]


def all_messages(bootstrap: str, topic: str) -> Sequence[Message]:
    reader = consumer(bootstrap)
    try:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS_MAX)
        if low == high:
            return []
        reader.assign([TopicPartition(topic, 0, low)])
        collected: list[Message] = []
        deadline = time.monotonic() + SECONDS_MAX
        while reader.position([TopicPartition(topic, 0)])[0].offset < high:
            assert time.monotonic() < deadline, f"read {len(collected)} records up to {high}"
            message = reader.poll(0.2)
            if message is not None:
                if message.error() is not None:
                    raise KafkaException(message.error())
                collected.append(message)
        return collected
    finally:
        reader.close()
