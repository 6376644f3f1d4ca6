"""aiokafka: short words for what the tests do with it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from tests.interop.samples import Sample

SECONDS_MAX = 20


@asynccontextmanager
async def producing(address: str, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=address, retry_backoff_ms=20, **settings)
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()


async def produce(
    address: str, topic: str, samples: Sequence[Sample], **settings: Any
) -> list[int | None]:
    """Send to partition 0, wait for every answer; offsets are None without acks.

    With acks=all unless told otherwise: this client's own default, acks=1, is answered before
    the record is committed, and until then no reader sees it.
    """
    async with producing(address, **{"linger_ms": 5, "acks": "all", **settings}) as producer:
        futures = [
            await producer.send(
                topic,
                value=item.value,
                key=item.key,
                headers=item.headers,
                partition=0,
                timestamp_ms=item.timestamp_ms,
            )
            for item in samples
        ]
        answers = await asyncio.wait_for(asyncio.gather(*futures), SECONDS_MAX)
    return [answer and answer.offset for answer in answers]


@asynccontextmanager
async def consuming(address: str, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    config = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 50,
        "retry_backoff_ms": 20,
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 200,  # A member learns of a rebalance from its heartbeat.
    }
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=address, **{**config, **settings})
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


async def take(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    async with asyncio.timeout(SECONDS_MAX):
        return [await consumer.getone() for _ in range(count)]


@asynccontextmanager
async def administering(address: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


def as_sample(record: Any) -> Sample:
    return Sample(record.key, record.value, list(record.headers), record.timestamp)
