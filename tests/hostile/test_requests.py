"""Frames and requests that break the rules close their connection, at no other client's cost."""

import struct
from random import Random
from select import select

import pytest

from millstream.kafka_wire.apis.discovery import ApiVersionsRequest, ApiVersionsResponse
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.headers import decode_response
from millstream.protocols.kafka.router import SERVED
from tests.hostile.broker import (
    API_VERSIONS,
    METADATA,
    TOPIC,
    Broker,
    Client,
    batch,
    framed,
    spell,
)
from tests.unit.protocols.kafka.arbitrary import arbitrary

HEADER = struct.Struct(">hhih")  # Key, version, number, length of the client id.
MIB = 2**20
CUTS_MAX = 12


@pytest.mark.parametrize("size", [2**31 - 1, -1, -(2**31), 0, 3, 100 * MIB + 1])
def test_a_frame_of_impossible_length_is_the_end_before_it_is_sent(
    broker: Broker, size: int
) -> None:
    before = broker.resident_bytes()
    with Client(broker) as client:
        client.send(struct.pack(">i", size))

        assert client.is_closed()

    assert broker.resident_bytes() - before < 8 * MIB


def test_a_large_frame_that_is_only_announced_takes_no_memory(broker: Broker) -> None:
    before = broker.resident_bytes()
    clients = [Client(broker) for _ in range(20)]
    for client in clients:
        client.send(struct.pack(">i", 100 * MIB) + b"some of it")

    with Client(broker) as other:
        assert other.produce(batch(b"a")).error_code == 0

    assert broker.resident_bytes() - before < 8 * MIB
    for client in clients:
        client.reset()


def test_a_request_may_come_one_byte_at_a_time(broker: Broker) -> None:
    request = spell(API_VERSIONS, 0, ApiVersionsRequest(), number=41)
    with Client(broker) as client:
        for byte in request:
            client.send(bytes([byte]))

        assert client.frame()[:4] == (41).to_bytes(4)


@pytest.mark.parametrize("key", SERVED)
def test_a_truncated_request_is_the_end(broker: Broker, key: int) -> None:
    api = APIS[key]
    random = Random(key)
    for version in {api.first, api.last}:
        body = spell(key, version, arbitrary(api.request, version, random))[4:]
        inside = range(8, len(body))
        for cut in random.sample(inside, min(CUTS_MAX, len(inside))):
            with Client(broker) as client:
                client.send(framed(body[:cut]))

                assert client.is_closed(), f"{api.name} v{version} cut at {cut}: {body.hex()}"


@pytest.mark.parametrize("count", [2**31 - 1, 10**6, -2, -(2**31)])
def test_counts_beyond_the_bytes_are_the_end_before_anything_is_made(
    broker: Broker, count: int
) -> None:
    before = broker.resident_bytes()
    for version in (1, 4, 8):
        with Client(broker) as client:
            body = HEADER.pack(METADATA, version, 1, -1) + struct.pack(">i", count) + bytes(1000)
            client.send(framed(body))

            assert client.is_closed()

    assert broker.resident_bytes() - before < 8 * MIB


def test_millions_of_tagged_fields_are_the_end(broker: Broker) -> None:
    before = broker.resident_bytes()
    many = b"\xc0\x84\x3d"  # A million, as a varint.
    tags = many + b"".join(bytes([n & 127 | 128, n >> 7 & 127, 0]) for n in range(100_000))
    for body in (
        HEADER.pack(API_VERSIONS, 3, 1, -1) + tags,
        HEADER.pack(API_VERSIONS, 3, 1, -1) + b"\0\2a\2b" + tags,
        HEADER.pack(METADATA, 12, 1, -1) + b"\0" + b"\2" + bytes(16) + b"\2a" + tags,
    ):
        with Client(broker) as client:
            client.try_send(framed(body))

            assert client.is_closed()

    assert broker.resident_bytes() - before < 16 * MIB


def test_many_requests_of_many_small_parts_do_not_add_up_behind_one_that_waits(
    broker: Broker,
) -> None:
    before = broker.resident_bytes()
    names = 200_000
    many = HEADER.pack(METADATA, 1, 1, -1) + struct.pack(">i", names) + b"\0\1a" * names
    # A fetch of a topic that is there, waiting for more than ever comes.
    fetch = struct.pack(">iiiib", -1, 10**6, 2**30, 2**30, 0)
    fetch += struct.pack(">ih6s", 1, 6, TOPIC.encode()) + struct.pack(">iiqi", 1, 0, 0, 2**30)
    with Client(broker) as client:
        client.send(framed(HEADER.pack(1, 4, 1, -1) + fetch))
        for _ in range(40):
            client.send(framed(many))
        with Client(broker) as other:
            assert other.produce(batch(b"a")).error_code == 0

        assert broker.resident_bytes() - before < 100 * MIB
        assert not select([client.socket], [], [], 0)[0]
        client.reset()


@pytest.mark.parametrize("version", [5, 99, 2**15 - 1, -1])
def test_api_versions_from_the_future_is_answered_in_v0_and_the_client_may_go_on(
    broker: Broker, version: int
) -> None:
    with Client(broker) as client:
        client.send(framed(HEADER.pack(API_VERSIONS, version, 9, -1) + b"who knows what"))

        number, refusal = decode_response(APIS[API_VERSIONS], 0, client.frame())

        assert number == 9
        assert isinstance(refusal, ApiVersionsResponse)
        assert refusal.error_code == 35
        assert [key.api_key for key in refusal.api_keys] == [API_VERSIONS]
        answer = client.ask(API_VERSIONS, 0, ApiVersionsRequest())
        assert isinstance(answer, ApiVersionsResponse)
        assert answer.error_code == 0


@pytest.mark.parametrize("key", [-1, -(2**15), 4, 5, 6, 7, 77, 999, 2**15 - 1])
def test_an_unknown_api_is_the_end(broker: Broker, key: int) -> None:
    with Client(broker) as client:
        client.send(framed(HEADER.pack(key, 0, 1, -1) + bytes(50)))

        assert client.is_closed()


@pytest.mark.parametrize("key", [key for key in SERVED if key != API_VERSIONS])
def test_an_unknown_version_is_the_end(broker: Broker, key: int) -> None:
    for version in (APIS[key].last + 1, APIS[key].first - 1, 2**15 - 1):
        with Client(broker) as client:
            client.send(framed(HEADER.pack(key, version, 1, -1) + bytes(50)))

            assert client.is_closed()


def test_a_client_id_longer_than_its_frame_is_the_end(broker: Broker) -> None:
    with Client(broker) as client:
        client.send(framed(HEADER.pack(API_VERSIONS, 0, 1, 30_001) + b"x" * 30_000))

        assert client.is_closed()


TLS_ALERT = 21


def test_another_protocol_is_the_end(broker: Broker) -> None:
    with Client(broker) as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n")

        assert client.is_closed()


def test_tls_is_the_end_after_an_alert(broker: Broker) -> None:
    with Client(broker) as client:
        client.send(b"\x16\x03\x01\x02\x00\x01" * 40)

        assert client.last_words()[:1] == bytes([TLS_ALERT])
