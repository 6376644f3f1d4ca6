"""Delayed records through the client: listed, looked at, cancelled."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from millstream.client import Client, NotFound, Refused, aconnect
from tests.client.conftest import TIMEOUT_S
from tests.support.broker_process import BrokerProcess

HOUR = timedelta(hours=1)


def ids(client: Client, topic: str) -> list[str]:
    return [record.id for record in client.delayed.list(topic).records]


def test_those_that_wait_are_listed_by_topic_in_pages(client: Client, topic: str) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + HOUR
    client.produce(f"{topic}.other", b"x", delay=HOUR)
    for _ in range(3):
        client.produce(topic, b"x", delay=at, partition=2)

    first = client.delayed.list(topic, limit=2)
    second = client.delayed.list(topic, after=first.next_after)

    assert [(record.topic, record.partition, record.due) for record in first.records] == [
        (topic, 2, at)
    ] * 2
    assert first.next_after == first.records[-1].id
    assert (len(second.records), second.next_after) == (1, None)
    everything = {record.topic for record in client.delayed.list(limit=1_000).records}
    assert everything >= {topic, f"{topic}.other"}


def test_one_is_shown_with_what_will_be_delivered(client: Client, topic: str) -> None:
    client.produce(topic, b"late", key=b"k", headers={"a": "1"}, delay=HOUR)

    (name,) = ids(client, topic)
    described = client.delayed.describe(name)

    assert (described.id, described.topic, described.key, described.value) == (
        name,
        topic,
        b"k",
        b"late",
    )
    assert ("a", b"1") in described.headers


def test_one_that_is_cancelled_never_comes_and_frees_its_message_id(
    client: Client, topic: str
) -> None:
    client.produce(topic, b"first", delay=HOUR, message_id="m", partition=0)
    (name,) = ids(client, topic)

    cancelled = client.delayed.cancel(name)

    assert (cancelled.id, cancelled.topic) == (name, topic)
    assert ids(client, topic) == []
    for call in (client.delayed.cancel, client.delayed.describe):
        with pytest.raises(NotFound, match="is waiting"):
            call(name)
    assert client.produce(topic, b"second", message_id="m", partition=0).offset >= 0
    with client.consumer(topic) as consumer:
        assert next(consumer).value == b"second"


@pytest.mark.parametrize("name", ["", "x", "~", "nowhere~1", "a b~1"])
def test_an_id_of_nothing_is_not_found(client: Client, name: str) -> None:
    with pytest.raises(NotFound):
        client.delayed.cancel(name)


def test_delayed_records_of_one_batch_have_no_offsets(client: Client, topic: str) -> None:
    with client.producer(linger_ms=200) as producer:
        sent = [producer.send(topic, b"x", delay=HOUR, partition=0) for _ in range(3)]
        past = producer.send(topic, b"y", delay=datetime(2020, 1, 1, tzinfo=UTC), partition=0)

    assert [sample.result().offset for sample in sent] == [-1, -1, -1]
    assert past.result().offset >= 0


def test_a_delay_beyond_the_bound_says_what_is_wrong(client: Client, topic: str) -> None:
    with pytest.raises(Refused, match=r"asks for delay.*limits\.delay_ms_max") as caught:
        client.produce(topic, b"x", delay=timedelta(days=365))

    assert caught.value.code == "INVALID_RECORD"


def test_asyncio_has_it_too(broker: BrokerProcess, client: Client, topic: str) -> None:
    async def story() -> None:
        async with aconnect(broker.address, timeout_s=TIMEOUT_S) as other:
            await other.produce(topic, b"x", delay=HOUR)
            (delayed,) = (await other.delayed.list(topic)).records
            await other.delayed.cancel(delayed.id)

    asyncio.run(story())
    assert ids(client, topic) == []
