"""One log, four protocols: a record written over any of them is read over every other."""

import socket
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer

from millstream.classic import BrokerClient, Message
from millstream.testing import RunningBroker, run_broker
from tests.support.flymq import FlymqClient

SECONDS_MAX = 20
VALUE = b"\x00\xff\r\n+OK\r\n" + "grüße".encode()


class Written(NamedTuple):
    """The parts of a record that a protocol can write."""

    key: bytes | None
    headers: dict[str, bytes]
    subject: str


class Seen(NamedTuple):
    """The parts of a record that a protocol shows; None for those it cannot express."""

    value: bytes
    key: bytes | None = None
    headers: dict[str, bytes] | None = None
    subject: str | None = None


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with run_broker() as broker:
        yield broker


@pytest.fixture
def topic(running: RunningBroker, request: pytest.FixtureRequest) -> str:
    """A topic of its own; dots would split it into a subject."""
    name = f"orders{abs(hash(request.node.name))}"
    running.create_topic(name, partitions=1)
    return name


# -- writers ---------------------------------------------------------------------------------------


def by_kafka(broker: RunningBroker, topic: str) -> Written:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    headers = {"Colour": b"red", "ms-subject": f"{topic}.us.created".encode()}
    producer.produce(topic, VALUE, key=b"k", headers=headers)  # type: ignore[arg-type]
    assert producer.flush(SECONDS_MAX) == 0
    return Written(b"k", {"Colour": b"red"}, f"{topic}.us.created")


def by_flux(broker: RunningBroker, topic: str) -> Written:
    subject, headers = f"{topic}.us.created", b"Colour: red\r\n\r\n"
    with socket.create_connection((broker.host, broker.flux_port), SECONDS_MAX) as flux:
        line = f"HPUB {subject} {len(headers)} {len(headers) + len(VALUE)}\r\n".encode()
        flux.sendall(line + headers + VALUE + b"\r\n")
        assert flux.recv(99) == b"+OK\r\n"
    return Written(subject.encode(), {"Colour": b"red"}, subject)


def by_flymq(broker: RunningBroker, topic: str) -> Written:
    with FlymqClient(broker.host, broker.port) as flymq:
        flymq.produce(topic, VALUE, key=b"k")
    return Written(b"k", {}, topic)


def by_classic(broker: RunningBroker, topic: str) -> Written:
    with BrokerClient(broker.host, broker.classic_port) as classic:
        properties: dict[str, Any] = {
            "Colour": "red",
            "ms-key": "k",
            "ms-subject": f"{topic}.us.created",
        }
        assert classic.publish(topic, VALUE, **properties), classic.last_error
    return Written(b"k", {"Colour": b"red"}, f"{topic}.us.created")


# -- readers ---------------------------------------------------------------------------------------


def through_kafka(broker: RunningBroker, topic: str) -> Seen:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    (record,) = consumer.consume(1, SECONDS_MAX)
    consumer.close()
    headers = dict(record.headers() or [])
    subject = headers.pop("ms-subject", topic.encode()).decode()  # type: ignore[union-attr]
    return Seen(record.value(), record.key(), headers, subject)  # type: ignore[arg-type]


def through_flux(broker: RunningBroker, topic: str) -> Seen:
    with socket.create_connection((broker.host, broker.flux_port), SECONDS_MAX) as flux:
        stream = flux.makefile("rb")
        # A record without a subject has the name of its topic; `>` needs a token more.
        flux.sendall(f"HEADERS ON\r\nPULL {topic} 1\r\nPULL {topic}.> 1\r\n".encode())
        assert stream.readline() == b"+OK\r\n"
        line = stream.readline()
        if line.startswith(b"+OK 0"):
            line = stream.readline()
        _, subject, _, header_bytes, size, _ = line.split()
        block = stream.read(int(header_bytes))
        value = stream.read(int(size) - int(header_bytes))
    pairs = (piece.split(b": ") for piece in block.split(b"\r\n") if piece)
    return Seen(value, None, {name.decode(): text for name, text in pairs}, subject.decode())


def through_flymq(broker: RunningBroker, topic: str) -> Seen:
    with FlymqClient(broker.host, broker.port) as flymq:
        (record,) = flymq.fetch(topic).records
    return Seen(record.value, record.key or None)


def through_classic(broker: RunningBroker, topic: str) -> Seen:
    arrived: SimpleQueue[Message] = SimpleQueue()
    with BrokerClient(broker.host, broker.classic_port, f"c-{topic}") as classic:
        assert classic.create_and_subscribe(f"s-{topic}", topic, handler=arrived.put)
        message = arrived.get(timeout=SECONDS_MAX)
    own = {"topic", "partition", "subscription_id", "created_at", "version"}
    known = {name: text.encode() for name, text in message.properties.items() if name not in own}
    key = known.pop("ms-key", None)
    subject = known.pop("ms-subject", topic.encode()).decode()
    return Seen(message.body, key, known, subject)


WRITERS: dict[str, Callable[[RunningBroker, str], Written]] = {
    "kafka": by_kafka,
    "flux": by_flux,
    "flymq": by_flymq,
    "classic": by_classic,
}
READERS: dict[str, Callable[[RunningBroker, str], Seen]] = {
    "kafka": through_kafka,
    "flux": through_flux,
    "flymq": through_flymq,
    "classic": through_classic,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_record_of_one_protocol_is_read_by_every_protocol(
    running: RunningBroker, topic: str, writer: str, reader: str
) -> None:
    written = WRITERS[writer](running, topic)

    seen = READERS[reader](running, topic)

    assert seen.value == VALUE
    if reader != "flux":  # Which has no word for keys.
        assert seen.key == written.key
    if seen.headers is not None:
        assert seen.headers == written.headers
    if seen.subject is not None:
        assert seen.subject == written.subject
