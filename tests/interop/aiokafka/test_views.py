"""aiokafka reads a view: over long gaps, to the end, committed records only if it wants."""

import asyncio
import time

import pytest
from aiokafka.admin import NewTopic
from aiokafka.structs import TopicPartition

from tests.interop.aiokafka.clients import (
    SECONDS_MAX,
    administering,
    consuming,
    produce,
    take,
)
from tests.interop.samples import Sample
from tests.support.broker_process import BrokerProcess


async def make(broker: BrokerProcess, topic: str) -> str:
    """A topic, and a view of it."""
    view = f"errors-of-{topic}"
    configs = {"view.of": topic, "view.where": "value contains 'ERROR'"}
    async with administering(broker.address) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1)])
        await admin.create_topics([NewTopic(view, 1, 1, topic_configs=configs)])
    return view


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_position_moves_over_what_does_not_match(
    broker: BrokerProcess, topic: str, isolation: str
) -> None:
    texts = ["ERROR 1", *["x" * 500] * 3_000, "ERROR 2", *["ok"] * 9]
    now_ms = int(time.time() * 1000)
    expected = [Sample(None, text.encode(), [], now_ms) for text in texts]

    async def story() -> None:
        view = await make(broker, topic)
        await produce(broker.address, topic, expected)
        settings = {"max_partition_fetch_bytes": 20_000, "isolation_level": isolation}
        async with consuming(broker.address, **settings) as consumer:
            at = TopicPartition(view, 0)
            consumer.assign([at])
            consumer.seek(at, 0)

            taken = await take(consumer, 2)
            async with asyncio.timeout(SECONDS_MAX):
                while await consumer.position(at) < len(texts):
                    assert await consumer.getmany(timeout_ms=100) == {}

            assert [(record.offset, record.value) for record in taken] == [
                (0, b"ERROR 1"),
                (3_001, b"ERROR 2"),
            ]
            assert (await consumer.end_offsets([at]))[at] == len(texts)

    asyncio.run(story())
