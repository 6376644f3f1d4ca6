"""`millstream.classic.BrokerClient` against a real broker, and against what is none."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from millstream.classic import BrokerClient, Message
from millstream.testing import RunningBroker, run_broker

SECONDS_MAX = 60


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with run_broker() as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[BrokerClient]:
    with BrokerClient(port=broker.classic_port, client_id="tester") as connected:
        yield connected


@pytest.fixture
def arrived() -> "SimpleQueue[Message]":
    return SimpleQueue()


def _bodies(queue: "SimpleQueue[Message]", count: int) -> list[bytes]:
    return [queue.get(timeout=SECONDS_MAX).body for _ in range(count)]


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- what it is asked ------------------------------------------------------------------------------


def test_a_message_says_all_there_is_to_say(
    client: BrokerClient, arrived: "SimpleQueue[Message]"
) -> None:
    assert client.create_topic("orders", partitions=2, retention_hours=1)
    assert client.create_and_subscribe("billing", "orders", handler=arrived.put)
    before = time.time()
    assert client.publish("orders", b"\0\xff", partition=1, colour="red", count=3)

    message = arrived.get(timeout=SECONDS_MAX)

    assert message.message_type.name == "DATA"
    assert (message.body, message.sequence_number) == (b"\0\xff", 0)
    assert before - 1 < message.timestamp < time.time() + 1
    known = {k: v for k, v in message.properties.items() if k not in {"created_at", "version"}}
    assert known == {
        "topic": "orders",
        "partition": "1",
        "subscription_id": "billing",
        "colour": "red",
        "count": "3",
    }


def test_what_is_refused_is_false_and_the_reason_is_kept(client: BrokerClient) -> None:
    assert client.create_topic("orders")
    assert client.create_subscription("billing", "orders")
    refused: dict[str, Callable[[], bool]] = {
        "Topic 'orders' already exists": lambda: client.create_topic("orders"),
        "Topic 'nowhere' does not exist": lambda: client.publish_text("nowhere", "x"),
        "Subscription 'billing' already exists": lambda: client.create_and_subscribe(
            "billing", "orders"
        ),
        "Subscription 'audit' does not exist": lambda: client.subscribe_to_subscription("audit"),
        "not subscribed to orders": lambda: client.unsubscribe("orders"),
    }

    for reason, ask in refused.items():
        assert not ask()
        assert client.last_error == reason
    assert client.unsubscribe_from_subscription("audit")
    assert client.delete_subscription("billing")
    assert not client.delete_subscription("billing")


def test_what_cannot_be_a_property_is_not_sent(client: BrokerClient) -> None:
    client.create_topic("orders")

    for properties in ({"a=b": "c"}, {"a": "\0"}, {"": "a"}):
        with pytest.raises(ValueError, match="cannot be a property"):
            client.publish("orders", b"", **properties)  # type: ignore[arg-type]


def test_a_topic_is_read_through_a_subscription_of_one_s_own(
    client: BrokerClient, arrived: "SimpleQueue[Message]"
) -> None:
    client.create_topic("orders")
    client.publish_text("orders", "left out")
    client.publish_text("orders", "A")

    assert client.subscribe("orders", offset=1, handler=arrived.put)
    message = arrived.get(timeout=SECONDS_MAX)
    assert message.body == b"A"
    assert client.unsubscribe("orders")

    # Nothing is left of it.
    assert not client.delete_subscription(message.properties["subscription_id"])


def test_clients_without_a_name_have_different_ones(
    broker: RunningBroker, client: BrokerClient
) -> None:
    client.create_topic("orders")
    client.create_subscription("billing", "orders")

    with (
        BrokerClient(port=broker.classic_port) as first,
        BrokerClient(port=broker.classic_port) as second,
    ):
        assert first.subscribe_to_subscription("billing")
        assert second.subscribe_to_subscription("billing")


# -- handlers --------------------------------------------------------------------------------------


def test_a_handler_may_ask_the_broker(
    client: BrokerClient, arrived: "SimpleQueue[Message]"
) -> None:
    client.create_topic("orders")
    client.create_topic("invoices")
    client.create_and_subscribe("all", "invoices", handler=arrived.put)

    def bill(message: Message) -> None:
        assert client.publish("invoices", b"for " + message.body)

    client.create_and_subscribe("billing", "orders", handler=bill)
    for n in range(20):
        client.publish("orders", b"%d" % n)

    assert _bodies(arrived, 20) == [b"for %d" % n for n in range(20)]


def test_a_handler_that_fails_does_not_keep_the_next_record_away(
    client: BrokerClient, arrived: "SimpleQueue[Message]", caplog: pytest.LogCaptureFixture
) -> None:
    def handle(message: Message) -> None:
        arrived.put(message)
        if message.body == b"bad":
            raise ZeroDivisionError("a bug")

    client.create_topic("orders")
    client.create_and_subscribe("billing", "orders", handler=handle)
    for body in (b"bad", b"good"):
        client.publish("orders", body)

    assert _bodies(arrived, 2) == [b"bad", b"good"]
    assert "a handler failed at offset 0" in caplog.text


def test_a_handler_may_end_the_connection(client: BrokerClient) -> None:
    handled = threading.Event()

    def handle(_: Message) -> None:
        client.disconnect()
        handled.set()

    client.create_topic("orders")
    client.create_and_subscribe("billing", "orders", handler=handle)
    client.publish_text("orders", "A")

    assert handled.wait(SECONDS_MAX)
    assert not client.is_connected


# -- connections -----------------------------------------------------------------------------------


def test_who_is_not_connected_is_told_so(broker: RunningBroker) -> None:
    client = BrokerClient(port=broker.classic_port)

    with pytest.raises(ConnectionError, match=r"call connect\(\)"):
        client.publish("orders", b"")
    client.disconnect()


def test_it_connects_again_to_a_broker_that_was_lost(
    broker: RunningBroker, client: BrokerClient, arrived: "SimpleQueue[Message]"
) -> None:
    client.create_topic("orders")
    client.create_and_subscribe("billing", "orders", handler=arrived.put)
    broker.kill()
    _until(lambda: not client.is_connected)
    with pytest.raises(ConnectionError, match="no classic broker at"):
        client.connect()
    broker.restart()

    assert client.connect()
    assert client.connect()
    assert client.publish_text("orders", "A")
    assert client.subscribe_to_subscription("billing", arrived.put)
    assert _bodies(arrived, 1) == [b"A"]


def test_a_request_that_the_broker_dies_over_is_an_error(
    broker: RunningBroker, client: BrokerClient
) -> None:
    client.create_topic("orders")
    broker.pause()
    killing = threading.Timer(0.1, broker.kill)
    killing.start()

    with pytest.raises(ConnectionError):
        client.publish_text("orders", "A")
    killing.join()


def test_a_broker_that_does_not_answer_is_waited_for_so_long(
    broker: RunningBroker, client: BrokerClient
) -> None:
    client.request_timeout = 0.1
    broker.pause()

    assert not client.create_topic("orders")
    assert "no answer" in client.last_error
    broker.resume()


@pytest.mark.parametrize(
    ("port", "reason"), [(0, "no classic broker at"), (70_000, "no classic broker at")]
)
def test_what_cannot_be_reached_is_named(port: int, reason: str) -> None:
    with pytest.raises(ConnectionError, match=reason):
        BrokerClient(port=port).connect()


def test_what_speaks_another_protocol_is_lost_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, caplog.at_level(logging.WARNING):
        client = BrokerClient(port=server.getsockname()[1])
        client.connect()
        other, _ = server.accept()
        with other:
            other.sendall(b"-ERR unknown command, try HELP for help\r\n")
            _until(lambda: not client.is_connected)
        client.disconnect()

    assert "parts do not add up" in caplog.text
