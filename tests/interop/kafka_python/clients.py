"""kafka-python: short words for what the tests do with it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from tests.interop.samples import Sample

SECONDS_MAX = 20
QUICK = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 200, "retry_backoff_ms": 20}


@contextmanager
def producing(address: str, **settings: Any) -> Iterator[KafkaProducer]:
    """Not idempotent unless told so: that needs more of the broker than writing does."""
    config = {"enable_idempotence": False, "max_block_ms": SECONDS_MAX * 1000, **QUICK, **settings}
    producer = KafkaProducer(bootstrap_servers=address, **config)
    try:
        yield producer
    finally:
        producer.close(timeout=SECONDS_MAX)


def produce(address: str, topic: str, samples: Sequence[Sample], **settings: Any) -> list[int]:
    """Send to partition 0, wait for every answer, return the offsets."""
    with producing(address, **settings) as producer:
        futures = [
            producer.send(
                topic,
                value=item.value,
                key=item.key,
                headers=item.headers,
                partition=0,
                timestamp_ms=item.timestamp_ms,
            )
            for item in samples
        ]
        producer.flush(timeout=SECONDS_MAX)
        return [future.get(timeout=SECONDS_MAX).offset for future in futures]


@contextmanager
def consuming(address: str, *topics: str, **settings: Any) -> Iterator[KafkaConsumer]:
    config = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 50,
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 200,  # A member learns of a rebalance from its heartbeat.
    }
    consumer = KafkaConsumer(*topics, bootstrap_servers=address, **{**config, **QUICK, **settings})
    try:
        yield consumer
    finally:
        consumer.close()


def poll(consumer: KafkaConsumer) -> list[Any]:
    batches = consumer.poll(timeout_ms=50)
    return [record for batch in batches.values() for record in batch]


def take(consumer: KafkaConsumer, count: int) -> list[Any]:
    taken: list[Any] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(taken) < count:
        assert time.monotonic() < deadline, f"{len(taken)} of {count} records came"
        taken += poll(consumer)
    return taken


@contextmanager
def administering(address: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=address, **QUICK)) as admin:
        yield admin


def as_sample(record: Any) -> Sample:
    return Sample(record.key, record.value, list(record.headers), record.timestamp)
