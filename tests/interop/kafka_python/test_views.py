"""kafka-python, whose consumer is Java's retold, reads a view: over gaps, to the end, in groups."""

import time

from kafka.admin import NewTopic
from kafka.structs import TopicPartition

from tests.interop.kafka_python.clients import (
    SECONDS_MAX,
    administering,
    consuming,
    poll,
    produce,
    take,
)
from tests.interop.samples import Sample
from tests.support.broker_process import BrokerProcess


def make(broker: BrokerProcess, topic: str) -> str:
    """A topic, and a view of it."""
    view = f"errors-of-{topic}"
    configs = {"view.of": topic, "view.where": "value contains 'ERROR'"}
    with administering(broker.address) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
        admin.create_topics([NewTopic(view, 1, 1, topic_configs=configs)])
    return view


def values(*texts: str) -> list[Sample]:
    now_ms = int(time.time() * 1000)
    return [Sample(None, text.encode(), [], now_ms) for text in texts]


def test_the_position_moves_over_what_does_not_match(broker: BrokerProcess, topic: str) -> None:
    view = make(broker, topic)
    produce(broker.address, topic, values("ERROR 1", *["x" * 500] * 3_000, "ERROR 2", *["ok"] * 9))

    with consuming(broker.address, max_partition_fetch_bytes=20_000) as consumer:
        at = TopicPartition(view, 0)
        consumer.assign([at])
        consumer.seek(at, 0)
        taken = take(consumer, 2)
        deadline = time.monotonic() + SECONDS_MAX
        while consumer.position(at) < 3_011 and time.monotonic() < deadline:
            assert poll(consumer) == []
        position, end = consumer.position(at), consumer.end_offsets([at])[at]

    assert [(record.offset, record.value) for record in taken] == [
        (0, b"ERROR 1"),
        (3_001, b"ERROR 2"),
    ]
    assert position == end == 3_011


def test_a_group_commits_where_it_stands_in_a_view(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    view = make(broker, topic)
    produce(broker.address, topic, values("ERROR 1", "ok", "ok"))

    with consuming(broker.address, view, group_id=group) as consumer:
        first = take(consumer, 1)
        at = TopicPartition(view, 0)
        deadline = time.monotonic() + SECONDS_MAX
        while consumer.position(at) < 3 and time.monotonic() < deadline:
            poll(consumer)
        consumer.commit()
        committed = consumer.committed(at)
    produce(broker.address, topic, values("ok", "ERROR 2"))
    with consuming(broker.address, view, group_id=group) as consumer:
        second = take(consumer, 1)

    assert committed == 3
    assert [record.value for record in (*first, *second)] == [b"ERROR 1", b"ERROR 2"]
