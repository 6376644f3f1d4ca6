"""The Java client reads a view: over long gaps, and its position comes to the end."""

import time

import pytest

from tests.interop.java.clients import Java
from tests.interop.samples import Sample
from tests.support.broker_process import BrokerProcess

GAP = 3_000


def make(java: Java, broker: BrokerProcess, topic: str) -> str:
    """A topic with two records that match and many that do not, and a view of it."""
    view = f"errors-of-{topic}"
    now_ms = int(time.time() * 1000)
    with java.admin(broker.address) as admin:
        admin.ask("create_topic", topic=topic, partitions=1)
        config = {"view.of": topic, "view.where": "value contains 'ERROR'"}
        admin.ask("create_topic", topic=view, partitions=1, config=config)
    texts = ["ERROR 1", "ok", *["x" * 2_000] * GAP, "ERROR 2", "ok"]
    sent = [Sample(None, text.encode(), [], now_ms) for text in texts]
    java.write(broker.address, topic, sent, acks="all")
    return view


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_view_is_read_over_what_does_not_match_and_to_the_end(
    java: Java, broker: BrokerProcess, topic: str, isolation: str
) -> None:
    view = make(java, broker, topic)

    with java.consumer(broker.address, isolation_level=isolation) as consumer:
        consumer.assign(view)
        taken = consumer.drain()  # Until its position is where the log ends.

    assert [record.sample.value for record in taken] == [b"ERROR 1", b"ERROR 2"]
    assert [record.offset for record in taken] == [0, GAP + 2]
    assert {record.topic for record in taken} == {view}
