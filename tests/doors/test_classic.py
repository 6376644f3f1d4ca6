"""The classic door of a real broker, spoken to by its client and by bare frames."""

import socket
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from millstream.classic import BrokerClient, Message
from millstream.protocols.classic.wire import Frame, Frames, Kind, decode, encode
from millstream.testing import RunningBroker, run_broker

SECONDS_MAX = 20


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with run_broker() as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[BrokerClient]:
    with BrokerClient(port=broker.classic_port, client_id="tester") as connected:
        yield connected


class Bare:
    """A connection that says what it is told to, and remembers every frame in order."""

    def __init__(self, broker: RunningBroker) -> None:
        self._socket = socket.create_connection((broker.host, broker.classic_port), SECONDS_MAX)
        self._frames = Frames(frame_bytes_max=2**20)
        self._arrived: list[Frame] = []

    def send(self, *frames: Frame) -> None:
        self._socket.sendall(b"".join(map(encode, frames)))

    def next(self) -> Frame:
        """The next frame that is no greeting."""
        while not self._arrived:
            data = self._socket.recv(2**16)
            assert data, "the broker closed the connection"
            found = [decode(one) for one in self._frames.feed(data)]
            self._arrived += [one for one in found if one.sequence or one.kind != Kind.HEARTBEAT]
        return self._arrived.pop(0)

    def ask(self, kind: int, body: bytes = b"", **properties: str) -> dict[str, str]:
        self.send(Frame(kind, 7, 0, properties, body))
        answer = self.next()
        assert (answer.kind, answer.sequence) == (Kind.ACK, 7)
        return {k: v for k, v in answer.properties.items() if k not in {"created_at", "version"}}

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def bare(broker: RunningBroker) -> Iterator[Bare]:
    connection = Bare(broker)
    yield connection
    connection.close()


def _bodies(queue: "SimpleQueue[Message]", count: int) -> list[bytes]:
    return [queue.get(timeout=SECONDS_MAX).body for _ in range(count)]


# -- requests and their answers --------------------------------------------------------------------


def test_every_request_is_answered_as_the_original_answers_it(bare: Bare) -> None:
    joined = {"subscription_id": "s", "subscriber_id": "me"}

    assert bare.ask(Kind.CREATE_TOPIC, topic="t") == {"status": "success", "topic": "t"}
    assert bare.ask(Kind.PUBLISH, b"a", topic="t", client_id="c") == {
        "status": "success",
        "topic": "t",
        "offset": "0",
        "delivered_to": "0",
    }
    assert bare.ask(Kind.CREATE_SUBSCRIPTION, subscription_id="s", topic="t", start_offset="1") == {
        "status": "success",
        "subscription_id": "s",
        "topic": "t",
        "start_offset": "1",
    }
    assert bare.ask(Kind.SUBSCRIBE, **joined) == {"status": "success", "topic": "t", **joined}
    assert bare.ask(Kind.PUBLISH, b"b", topic="t")["delivered_to"] == "1"
    assert bare.next().body == b"b"
    assert bare.ask(Kind.UNSUBSCRIBE, **joined) == {"status": "success", "subscriber_id": "me"}
    assert bare.ask(Kind.UNSUBSCRIBE, **joined)["status"] == "success"
    assert bare.ask(Kind.DELETE_SUBSCRIPTION, subscription_id="s") == {
        "status": "success",
        "subscription_id": "s",
    }


@pytest.mark.parametrize(
    ("kind", "properties", "error"),
    [
        (Kind.CREATE_TOPIC, {}, "Missing 'topic' property"),
        (Kind.CREATE_TOPIC, {"topic": "there"}, "Topic 'there' already exists"),
        (Kind.CREATE_TOPIC, {"topic": "a/b"}, "not a topic name"),
        (Kind.CREATE_TOPIC, {"topic": "t", "partitions": "many"}, "not a whole number"),
        (Kind.CREATE_TOPIC, {"topic": "t", "partitions": "99999999"}, "partitions"),
        (Kind.PUBLISH, {}, "Missing 'topic' property"),
        (Kind.PUBLISH, {"topic": "none"}, "Topic 'none' does not exist"),
        (Kind.PUBLISH, {"topic": "there", "partition": "9"}, "there-9"),
        (Kind.PUBLISH, {"topic": "there", "ms-delay-ms": "soon"}, "ms-delay-ms"),
        (Kind.CREATE_SUBSCRIPTION, {"topic": "there"}, "Missing 'subscription_id' property"),
        (Kind.CREATE_SUBSCRIPTION, {"subscription_id": "s"}, "Missing 'topic' property"),
        (
            Kind.CREATE_SUBSCRIPTION,
            {"subscription_id": "known", "topic": "there"},
            "Subscription 'known' already exists",
        ),
        (Kind.DELETE_SUBSCRIPTION, {"subscription_id": "s"}, "Subscription 's' does not exist"),
        (
            Kind.SUBSCRIBE,
            {"subscription_id": "s", "subscriber_id": "me"},
            "Subscription 's' does not exist",
        ),
        (Kind.SUBSCRIBE, {"subscription_id": "known"}, "Missing 'subscriber_id' property"),
        (Kind.DATA, {}, "Unknown message type"),
        (77, {}, "Unknown message type"),
    ],
)
def test_a_mistake_is_answered_with_a_sentence(
    bare: Bare, kind: int, properties: dict[str, str], error: str
) -> None:
    bare.ask(Kind.CREATE_TOPIC, topic="there")
    bare.ask(Kind.CREATE_SUBSCRIPTION, subscription_id="known", topic="there")

    answer = bare.ask(kind, **properties)

    assert answer["status"] == "error"
    assert error in answer["error"]
    assert bare.ask(Kind.PUBLISH, topic="there")["status"] == "success"


def test_a_heartbeat_is_answered_with_a_heartbeat_of_its_number(bare: Bare) -> None:
    bare.send(Frame(Kind.HEARTBEAT, 3, 0, {}))

    assert bare.next()[:2] == (Kind.HEARTBEAT, 3)


def test_a_subscriber_s_name_is_taken_until_it_goes(broker: RunningBroker, bare: Bare) -> None:
    other = Bare(broker)
    bare.ask(Kind.CREATE_TOPIC, topic="t")
    bare.ask(Kind.CREATE_SUBSCRIPTION, subscription_id="s", topic="t")
    name = {"subscription_id": "s", "subscriber_id": "me"}
    assert bare.ask(Kind.SUBSCRIBE, **name)["status"] == "success"

    assert other.ask(Kind.SUBSCRIBE, **name)["error"] == "Subscriber 'me' already exists"
    bare.close()
    deadline = time.monotonic() + SECONDS_MAX
    while other.ask(Kind.SUBSCRIBE, **name)["status"] != "success":
        assert time.monotonic() < deadline
    other.close()


# -- what unmodified clients trip over -------------------------------------------------------------


def test_nothing_is_pushed_before_the_answer_to_a_request(bare: Bare) -> None:
    bare.ask(Kind.CREATE_TOPIC, topic="t")
    bare.ask(Kind.CREATE_SUBSCRIPTION, subscription_id="s", topic="t")
    bare.ask(Kind.SUBSCRIBE, subscription_id="s", subscriber_id="me")
    bare.send(*(Frame(Kind.PUBLISH, n, 0, {"topic": "t"}, b"%d" % n) for n in range(1, 9)))

    arrived = [bare.next() for _ in range(16)]

    acks = [at for at, frame in enumerate(arrived) if frame.kind == Kind.ACK]
    for at, frame in enumerate(arrived):
        if frame.kind == Kind.DATA:
            # The record with this number as its offset was not confused with an open request.
            assert all(arrived[ack].sequence != frame.sequence or ack < at for ack in acks)
    assert [f.body for f in arrived if f.kind == Kind.DATA] == [b"%d" % n for n in range(1, 9)]


def test_a_backlog_comes_a_moment_after_the_answer_to_subscribe(bare: Bare) -> None:
    bare.ask(Kind.CREATE_TOPIC, topic="t")
    bare.ask(Kind.CREATE_SUBSCRIPTION, subscription_id="s", topic="t")
    bare.ask(Kind.PUBLISH, b"early", topic="t")
    bare.ask(Kind.SUBSCRIBE, subscription_id="s", subscriber_id="me")
    answered_at = time.monotonic()

    assert bare.next().body == b"early"
    assert time.monotonic() - answered_at > 0.03


# -- delivery --------------------------------------------------------------------------------------


def test_a_record_arrives_with_its_properties(client: BrokerClient) -> None:
    arrived: SimpleQueue[Message] = SimpleQueue()
    assert client.create_topic("t", partitions=2)
    assert client.create_and_subscribe("s", "t", handler=arrived.put)
    assert client.publish("t", b"\0\xff", partition=1, colour="red", **{"ms-key": "k"})

    message = arrived.get(timeout=SECONDS_MAX)

    assert (message.body, message.sequence_number) == (b"\0\xff", 0)
    known = {k: v for k, v in message.properties.items() if k not in {"created_at", "version"}}
    assert known == {
        "topic": "t",
        "partition": "1",
        "subscription_id": "s",
        "colour": "red",
        "ms-key": "k",
    }


def test_members_of_a_subscription_share_its_records(
    broker: RunningBroker, client: BrokerClient
) -> None:
    queues: list[SimpleQueue[Message]] = [SimpleQueue(), SimpleQueue()]
    client.create_topic("t")
    client.create_subscription("s", "t")
    with (
        BrokerClient(port=broker.classic_port, client_id="one") as one,
        BrokerClient(port=broker.classic_port, client_id="two") as two,
    ):
        one.subscribe_to_subscription("s", queues[0].put)
        two.subscribe_to_subscription("s", queues[1].put)
        time.sleep(0.1)  # Both have had their pause after joining.
        for n in range(20):
            client.publish("t", b"%d" % n)
        _until(lambda: sum(queue.qsize() for queue in queues) == 20)

    bodies = [_bodies(queue, queue.qsize()) for queue in queues]
    assert sorted(int(body) for some in bodies for body in some) == list(range(20))
    assert [len(some) for some in bodies] == [10, 10]


def test_a_subscription_keeps_its_place_over_restart_and_kill(broker: RunningBroker) -> None:
    arrived: SimpleQueue[Message] = SimpleQueue()
    with BrokerClient(port=broker.classic_port) as client:
        client.create_topic("t")
        client.create_subscription("s", "t")
        client.publish_text("t", "before")
        client.subscribe_to_subscription("s", arrived.put)
        assert _bodies(arrived, 1) == [b"before"]
        client.unsubscribe_from_subscription("s")
        client.publish_text("t", "between")
    broker.restart()
    with BrokerClient(port=broker.classic_port) as client:
        client.publish_text("t", "after")
        client.subscribe_to_subscription("s", arrived.put)
        assert _bodies(arrived, 2) == [b"between", b"after"]
    broker.kill()
    broker.restart()
    with BrokerClient(port=broker.classic_port) as client:
        assert not client.create_subscription("s", "t")
        assert client.last_error == "Subscription 's' already exists"


def test_a_record_of_a_kafka_client_arrives_here_and_the_other_way_round(
    broker: RunningBroker, client: BrokerClient
) -> None:
    from confluent_kafka import Consumer, Producer

    arrived: SimpleQueue[Message] = SimpleQueue()
    client.create_topic("t")
    client.create_and_subscribe("s", "t", handler=arrived.put)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("t", b"from kafka", key=b"k", headers={"colour": b"red", "raw": b"\xff"})
    producer.flush(SECONDS_MAX)
    message = arrived.get(timeout=SECONDS_MAX)
    assert (message.body, message.properties["colour"], message.properties["ms-key"]) == (
        b"from kafka",
        "red",
        "k",
    )
    assert "raw" not in message.properties

    client.publish("t", b"from classic", shape="round", **{"ms-key": "z"})
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    records = consumer.consume(2, SECONDS_MAX)
    consumer.close()
    assert [(one.value(), one.key(), one.headers()) for one in records] == [
        (b"from kafka", b"k", [("colour", b"red"), ("raw", b"\xff")]),
        (b"from classic", b"z", [("shape", b"round")]),
    ]


# -- bad connections -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nonsense", [b"\xff" * 64, b"\0" * 64, b"GET / HTTP/1.1\r\n\r\n" + b" " * 64], ids=repr
)
def test_nonsense_ends_the_connection_and_nobody_else_s(
    broker: RunningBroker, bare: Bare, nonsense: bytes
) -> None:
    with socket.create_connection((broker.host, broker.classic_port), SECONDS_MAX) as hostile:
        hostile.sendall(nonsense)
        while data := hostile.recv(2**16):
            assert data  # A greeting may come before the end.

    assert bare.ask(Kind.CREATE_TOPIC, topic="t")["status"] == "success"


def test_a_client_that_is_not_connected_says_so(broker: RunningBroker) -> None:
    client = BrokerClient(port=broker.classic_port)
    with pytest.raises(ConnectionError, match="call connect"):
        client.publish("t", b"")
    client.connect()
    broker.kill()
    with pytest.raises(ConnectionError):
        _until(lambda: client.publish("t", b"") is None)
    client.disconnect()
    with pytest.raises(ConnectionError, match="no classic broker"):
        client.connect()


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
