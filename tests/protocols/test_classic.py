"""The classic listener of a real broker: what a script of requests and answers cannot say.

Those scripts are `tests/golden/classic`.
"""

import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from millstream.classic import BrokerClient, Message
from millstream.protocols.classic.wire import Frame, Kind, encode
from millstream.testing import RunningBroker, run_broker
from tests.support.classic import SECONDS_MAX, ClassicSocket

JOINED: dict[str, Any] = {"subscription_id": "billing", "subscriber_id": "me"}


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with run_broker() as running:
        running.create_topic("orders")
        yield running


@pytest.fixture
def bare(broker: RunningBroker) -> Iterator[ClassicSocket]:
    with _connect(broker) as connection:
        assert connection.ask(Kind.CREATE_SUBSCRIPTION, subscription_id="billing", topic="orders")
        yield connection


def _connect(broker: RunningBroker) -> ClassicSocket:
    return ClassicSocket((broker.host, broker.classic_port))


def test_the_broker_sends_heartbeats_of_its_own(broker: RunningBroker) -> None:
    with _connect(broker) as silent:
        for _ in range(3):
            assert silent.next()[:2] == (Kind.HEARTBEAT, 0)
            broker.advance_clock(30_000)


def test_a_name_is_free_again_once_its_connection_has_ended(
    broker: RunningBroker, bare: ClassicSocket
) -> None:
    with _connect(broker) as other:
        assert other.ask(Kind.SUBSCRIBE, **JOINED)["status"] == "success"
        assert bare.ask(Kind.SUBSCRIBE, **JOINED)["error"] == "Subscriber 'me' already exists"

    deadline = time.monotonic() + SECONDS_MAX
    while bare.ask(Kind.SUBSCRIBE, **JOINED)["status"] != "success":
        assert time.monotonic() < deadline


def test_a_frame_may_come_in_any_pieces(bare: ClassicSocket) -> None:
    frame = encode(Frame(Kind.PUBLISH, 7, 0, {"topic": "orders", "colour": "red"}, b"body"))

    for at in range(len(frame)):
        bare.send(frame[at : at + 1])
    assert bare.next_but_greetings().properties["offset"] == "0"
    for at in range(len(frame)):
        bare.send(frame[:at])
        bare.send(frame[at:])
        assert bare.next_but_greetings().properties["offset"] == str(at + 1)


def test_a_frame_that_is_cut_off_anywhere_is_not_carried_out(
    broker: RunningBroker, bare: ClassicSocket
) -> None:
    frame = encode(Frame(Kind.PUBLISH, 7, 0, {"topic": "orders"}, b"body"))

    for at in range(len(frame)):
        with _connect(broker) as cut_off:
            cut_off.send(frame[:at])

    assert bare.ask(Kind.PUBLISH, topic="orders")["offset"] == "0"


def test_a_subscriber_that_reads_nothing_holds_up_no_other(
    broker: RunningBroker, bare: ClassicSocket
) -> None:
    count, body = 900, bytes(64 * 1024)
    with _connect(broker) as deaf, _connect(broker) as other:
        deaf.ask(Kind.SUBSCRIBE, subscription_id="billing", subscriber_id="deaf")
        other.ask(Kind.SUBSCRIBE, subscription_id="billing", subscriber_id="other")

        for _ in range(count):
            assert bare.ask(Kind.PUBLISH, body, topic="orders")["status"] == "success"

        # What its connection had no room for is more than what it had.
        heard = [other.next_but_greetings().sequence for _ in range(count * 2 // 3)]
        assert len(set(heard)) == count * 2 // 3


def test_a_subscription_survives_that_the_broker_is_killed() -> None:
    arrived: SimpleQueue[Message] = SimpleQueue()
    with run_broker(mode="subprocess", storage="disk") as broker:
        with BrokerClient(port=broker.classic_port) as client:
            client.create_topic("orders")
            client.create_subscription("billing", "orders", start_offset=1)
            assert all(client.publish_text("orders", text) for text in "ABC")
        broker.kill()
        broker.restart()

        with BrokerClient(port=broker.classic_port) as client:
            assert client.subscribe_to_subscription("billing", arrived.put)
            messages = [arrived.get(timeout=SECONDS_MAX) for _ in range(2)]

    assert [(message.sequence_number, message.body) for message in messages] == [
        (1, b"B"),
        (2, b"C"),
    ]


def test_a_record_of_a_kafka_client_arrives_here_and_the_other_way_round(
    broker: RunningBroker,
) -> None:
    arrived: SimpleQueue[Message] = SimpleQueue()
    with BrokerClient(port=broker.classic_port) as client:
        client.create_and_subscribe("billing", "orders", handler=arrived.put)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        headers = {"colour": b"red", "raw": b"\xff", "zero": b"\0", "a=b": b"c"}
        producer.produce("orders", b"from kafka", key=b"k", headers=headers)  # type: ignore[arg-type]
        producer.flush(SECONDS_MAX)
        message = arrived.get(timeout=SECONDS_MAX)
        client.publish("orders", b"from classic", shape="round", **{"ms-key": "z"})  # type: ignore[arg-type]

    # What cannot be spelt as a property is left out here, and in the record all the same.
    assert message.body == b"from kafka"
    assert message.properties.keys() == {
        *("colour", "ms-key", "topic", "partition", "subscription_id", "created_at", "version")
    }
    assert (message.properties["colour"], message.properties["ms-key"]) == ("red", "k")
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    records = consumer.consume(2, SECONDS_MAX)
    consumer.close()
    assert [(record.value(), record.key(), dict(record.headers())) for record in records] == [  # type: ignore[arg-type]
        (b"from kafka", b"k", headers),
        (b"from classic", b"z", {"shape": b"round"}),
    ]
