"""Names as long as the protocol allows are answered, in every API and in old and new versions."""

import pytest

from millstream.kafka_wire.apis.discovery import ApiVersionsRequest
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.headers import RequestHeader, encode_request
from millstream.kafka_wire.schema import NO_ID, Field, Kind, Message, plain_fields
from millstream.protocols.kafka.router import SERVED
from tests.hostile.broker import API_VERSIONS, Broker, Client

STRING_BYTES_MAX = 2**15 - 1
OLD_AND_NEW = [
    (key, version) for key in SERVED for version in sorted({APIS[key].first, APIS[key].last})
]


@pytest.mark.parametrize("length", [257, STRING_BYTES_MAX])
def test_a_client_with_a_long_id_is_served(broker: Broker, length: int) -> None:
    header = RequestHeader(API_VERSIONS, 3, 1, "x" * length)
    with Client(broker) as client:
        client.send(b"".join(map(bytes, encode_request(header, ApiVersionsRequest()))))  # type: ignore[arg-type]

        assert client.frame()[:4] == (1).to_bytes(4)


@pytest.mark.parametrize(("key", "version"), OLD_AND_NEW)
def test_a_request_full_of_long_names_is_answered(broker: Broker, key: int, version: int) -> None:
    api = APIS[key]
    # A flexible version has no limit of its own, and what it leaves behind is read by old ones.
    length = 2 * STRING_BYTES_MAX if api.is_flexible(version) else STRING_BYTES_MAX
    with Client(broker) as client:
        client.ask(key, version, lengthy(api.request, version, "x" * length))

    broker.assert_unharmed()


def test_groups_that_were_refused_for_their_names_do_not_spoil_old_listings(broker: Broker) -> None:
    name = "g" * 2 * STRING_BYTES_MAX
    with Client(broker) as client:
        for key in (8, 11, 22, 28, 68):
            client.ask(key, APIS[key].last, lengthy(APIS[key].request, APIS[key].last, name))

        for key in (16, 66):
            client.ask(key, 0, lengthy(APIS[key].request, 0, ""))


def lengthy(message: type[Message], version: int, text: str) -> Message:
    """A message with `text` in every string and one element in every list."""
    values = {field.name: _value(field, version, text) for field in plain_fields(message, version)}
    return message(**values)


def _value(field: Field, version: int, text: str) -> object:
    element: object
    match field.kind:
        case Kind.BOOLEAN:
            element = False
        case Kind.FLOAT64:
            element = 1.0
        case Kind.UUID:
            element = NO_ID
        case Kind.STRING:
            element = text
        case Kind.BYTES | Kind.RECORDS:
            element = b""
        case Kind.SPLICE:
            element = []
        case Kind.MESSAGE:
            assert field.message is not None
            element = lengthy(field.message, version, text)
        case _:
            element = _number(field)
    return [element] if field.is_array else element


def _number(field: Field) -> int:
    return {"acks": -1, "session_timeout_ms": 6_000, "rebalance_timeout_ms": 1}.get(field.name, 0)
