"""Kafka-python reads our frames, headers included, and writes the same ones."""

import warnings
from random import Random

import pytest

from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.headers import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tests.support.each import check_each
from tests.unit.protocols.kafka.arbitrary import arbitrary

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # It reads its own schemas in a deprecated way.
    from kafka.protocol import consumer, metadata, producer

SOME = {
    0: producer,
    1: consumer,
    2: consumer,
    3: metadata,
    8: consumer,
    10: metadata,
    11: consumer,
    18: metadata,
    22: producer,
}


def versions(key: int) -> list[tuple[int, int]]:
    return [(key, version) for version in range(APIS[key].first, APIS[key].last + 1)]


@pytest.mark.parametrize("key", SOME)
def test_kafka_python_reads_our_responses(key: int) -> None:
    check_each(versions(key), check_response)


@pytest.mark.parametrize("key", SOME)
def test_we_read_the_requests_of_kafka_python(key: int) -> None:
    check_each(versions(key), check_request)


def check_response(case: tuple[int, int]) -> None:
    key, version = case
    api, random = APIS[key], Random(f"{key} {version}")
    theirs = getattr(SOME[key], api.response.__name__)
    # Kafka-python reads whatever comes with an error code as v0.
    response = arbitrary(api.response, version, random)
    if key == 18:
        response.error_code = 0  # type: ignore[attr-defined]

    frame = b"".join(encode_response(RequestHeader(key, version, 77), response))  # type: ignore[arg-type]
    read = theirs.decode(frame, version=version, header=True, framed=True)
    written = read.encode(header=True, framed=True)

    assert read.header.correlation_id == 77
    assert bytes(written) == frame
    assert decode_response(api, version, frame[4:]) == (77, response)


def check_request(case: tuple[int, int]) -> None:
    key, version = case
    api, random = APIS[key], Random(f"{key} {version}")
    theirs = getattr(SOME[key], api.request.__name__)
    request = arbitrary(api.request, version, random)
    header = RequestHeader(key, version, 77, "tester")

    frame = b"".join(encode_request(header, request))  # type: ignore[arg-type]
    body = theirs.decode(frame, version=version, header=True, framed=True)
    body.with_header(correlation_id=77, client_id="tester")
    written = bytes(body.encode(version=version, header=True, framed=True))

    assert written == frame
    assert decode_request(written[4:]) == (header, request)
