"""FlyMQ clients that send nonsense, bombs, and frames that never end."""

import gzip
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import (
    HEAD,
    MAGIC,
    OPERATIONS,
    PAYLOAD_BYTES_MAX,
    VERSION,
    Opcode,
    encode_request,
)
from tests.hostile.broker import TOPIC, Broker, serving
from tests.hostile.mutants import mutated
from tests.support.flymq import FlymqClient, Refused, asking, payload_of
from tests.unit.protocols.flymq import arbitrary as arbitrary_module
from tests.unit.protocols.flymq.arbitrary import arbitrary

SEED = 31
MUTANTS = 2_000
REQUESTS = 1_000
GZIP = 0x03
MIB = 2**20
# What does no harm to the other tests of this broker.
HARMLESS = [opcode for opcode in OPERATIONS if opcode != Opcode.DELETE_TOPIC]


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    path: Path = tmp_path_factory.mktemp("flymq") / "log"
    with serving(path, MILLSTREAM_LIMITS__REQUEST_BYTES_MAX=str(48 * MIB)) as running:
        yield running


def connect(broker: Broker) -> FlymqClient:
    return FlymqClient(*broker.address)


def assert_serves(client: FlymqClient) -> None:
    assert client.produce(TOPIC, b"still here") >= 0


@pytest.mark.parametrize(
    "head",
    [
        HEAD.pack(MAGIC - 1, VERSION, 1, 1, 0),
        HEAD.pack(MAGIC, VERSION + 1, 1, 1, 0),
        HEAD.pack(MAGIC, VERSION, 1, 1, PAYLOAD_BYTES_MAX + 1),
        HEAD.pack(MAGIC, VERSION, 1, 1, 2**32 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_head_that_is_none_ends_the_connection_after_what_came_before(
    broker: Broker, head: bytes
) -> None:
    with connect(broker) as client:
        client.socket.sendall(asking(Opcode.WHOAMI, bodies.Nothing()) + head)

        assert client.frame()[2] == Opcode.WHOAMI
        assert client.is_closed()


def test_a_body_that_is_none_ends_nothing(broker: Broker) -> None:
    with connect(broker) as client:
        for opcode in OPERATIONS:
            for payload in (b"\xff", b"\xff\xff\xff\xff", b"\0\1\xff" * 20):
                client.socket.sendall(encode_request(opcode, payload))
                client.frame()
        for opcode in set(range(256)) - set(OPERATIONS):  # type: ignore[assignment]
            client.socket.sendall(encode_request(opcode, b""))
            assert client.frame()[2] == Opcode.ERROR

        assert_serves(client)


def test_requests_with_changed_bytes_do_no_harm(broker: Broker) -> None:
    random = Random(SEED)
    client = connect(broker)
    for number in range(MUTANTS):
        opcode = random.choice(HARMLESS)
        payload = payload_of(arbitrary(random.choice(OPERATIONS[opcode].requests), random))
        client.socket.sendall(encode_request(opcode, mutated(payload, random)))
        client.frame()
        if number % 100 == 0:
            client.socket.close()
            client = connect(broker)
    with client:
        assert_serves(client)


def test_any_request_that_can_be_spelled_is_answered(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arbitrary_module, "_ALPHABET", "abc")
    random = Random(SEED)
    with connect(broker) as client:
        for _ in range(REQUESTS):
            opcode = random.choice(HARMLESS)
            request = arbitrary(random.choice(OPERATIONS[opcode].requests), random)
            if "topic" in request._fields and random.random() < 0.7:
                request = request._replace(topic=TOPIC)
            client.socket.sendall(asking(opcode, request))
            client.frame()
        assert_serves(client)


def test_a_gzip_bomb_costs_no_more_than_a_frame(broker: Broker) -> None:
    bomb = encode_request(Opcode.PRODUCE, gzip.compress(bytes(64 * MIB)), flags=GZIP)
    before = broker.resident_bytes("VmHWM")
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(broker)) for _ in range(4)]
        good = stack.enter_context(connect(broker))
        for client in clients:
            client.socket.sendall(bomb)
        assert_serves(good)
        for client in clients:
            assert client.frame()[2] == Opcode.ERROR

    # Each unpacks to one byte more than a frame may have, and no two at the same time for long.
    assert broker.resident_bytes("VmHWM") - before < 4 * 3 * PAYLOAD_BYTES_MAX


def test_frames_that_are_announced_and_never_sent_take_no_memory(broker: Broker) -> None:
    before = broker.resident_bytes()
    with ExitStack() as stack:
        for _ in range(200):
            client = stack.enter_context(connect(broker))
            client.socket.sendall(HEAD.pack(MAGIC, VERSION, 1, 1, PAYLOAD_BYTES_MAX) + b"x" * 100)
        with connect(broker) as good:
            assert_serves(good)
        assert broker.resident_bytes() - before < 32 * MIB


def test_a_request_byte_by_byte_is_served(broker: Broker) -> None:
    with connect(broker) as client:
        for byte in asking(Opcode.PRODUCE, bodies.Produce(TOPIC, b"", b"slow", -1)):
            client.socket.sendall(bytes([byte]))

        assert client.frame()[2] == Opcode.PRODUCE


def test_who_sends_and_never_reads_is_stopped(broker: Broker) -> None:
    with connect(broker) as writer:
        writer.produce(TOPIC, bytes(100_000))
    before = broker.resident_bytes()
    with connect(broker) as deaf:
        deaf.socket.settimeout(2)
        # Far more than all buffers between us can hold, of requests or of replies.
        requests = asking(Opcode.FETCH, bodies.Fetch(TOPIC, 0, 0, 10_000, "")) * 1_000_000
        with pytest.raises(TimeoutError):
            deaf.socket.sendall(requests)
        assert broker.resident_bytes() - before < 100 * MIB
        with connect(broker) as good:
            assert_serves(good)


@pytest.mark.parametrize("topic", ["", "..", "../x", "a/b", "x" * 250, "ä", "__consumer_offsets"])
def test_no_name_gets_out_of_the_data_directory_or_into_the_brokers_books(
    broker: Broker, topic: str
) -> None:
    with connect(broker) as client:
        with pytest.raises(Refused):
            client.produce(topic, b"x")
        assert_serves(client)


def test_numbers_at_the_edge_are_refused_or_served(broker: Broker) -> None:
    with connect(broker) as client:
        for offset in (2**63 - 1, 2**63, 2**64 - 1):
            for partition in (-(2**31), -1, 2**31 - 1):
                raw = struct.pack(">iQ", partition, offset)
                for opcode in (Opcode.CONSUME, Opcode.FETCH, Opcode.COMMIT):
                    middle = b"\0\1g" if opcode == Opcode.COMMIT else b""
                    number = b"\x7f\xff\xff\xff" if opcode == Opcode.FETCH else b""
                    name = payload_of(bodies.TopicOnly(TOPIC))
                    client.socket.sendall(encode_request(opcode, name + middle + raw + number))
                    client.frame()
        assert_serves(client)
