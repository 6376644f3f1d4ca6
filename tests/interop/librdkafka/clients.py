"""librdkafka through confluent-kafka: short words for what the tests do with it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.interop.samples import Sample

SECONDS_MAX = 20
# Noise of a client that loses its broker on purpose does not belong in a test report.
QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


def produce(
    address: str, topic: str, samples: Sequence[Sample], **settings: Any
) -> list[tuple[int, int]]:
    """Send to partition 0 and wait for every report; return partition and offset of each."""
    reports: list[tuple[KafkaError | None, Message]] = []
    config = {dotted(key): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, **QUIET, **config})
    for item in samples:
        producer.produce(
            topic,
            key=item.key,
            value=item.value,
            headers=item.headers,  # type: ignore[arg-type]
            timestamp=item.timestamp_ms,
            partition=0,
            on_delivery=lambda error, message: reports.append((error, message)),
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert [error for error, _ in reports if error is not None] == []
    return [(message.partition(), message.offset()) for _, message in reports]  # type: ignore[misc]


@contextmanager
def consuming(address: str, **settings: Any) -> Iterator[Consumer]:
    config: dict[str, Any] = {
        "group.id": "none",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,  # A consumer that closes waits for its last fetch.
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 200,  # A member learns of a rebalance from its heartbeat.
    }
    config |= {dotted(key): value for key, value in settings.items()}
    consumer = Consumer({"bootstrap.servers": address, **QUIET, **config})
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: Consumer, count: int) -> list[Message]:
    """Poll until `count` records came; an error, or no record for long, is a failure."""
    taken: list[Message] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(taken) < count:
        assert time.monotonic() < deadline, f"{len(taken)} of {count} records came"
        message = consumer.poll(0.2)
        if message is None:
            continue
        assert message.error() is None, message.error()
        taken.append(message)
    return taken


def as_sample(message: Message) -> Sample:
    return Sample(
        message.key(),
        message.value(),
        list(message.headers() or []),  # type: ignore[arg-type]
        message.timestamp()[1],
    )


def dotted(name: str) -> str:
    return name.replace("_", ".")
