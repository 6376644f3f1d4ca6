"""Set and read client quotas of a running broker: confluent-kafka has no words for them."""

import socket

from millstream.kafka_wire.apis.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaEntity,
)
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.frames import LENGTH
from millstream.kafka_wire.headers import RequestHeader, decode_response, encode_request
from millstream.kafka_wire.schema import Message

SECONDS_MAX = 20
DESCRIBE, ALTER = 48, 49


def set_quotas(address: str, client_id: str, **rates: float) -> None:
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.Entry(
                entity=[QuotaEntity(entity_type="client-id", entity_name=client_id)],
                ops=[
                    AlterClientQuotasRequest.Entry.Operation(key=key, value=rate, remove=False)
                    for key, rate in rates.items()
                ],
            )
        ]
    )
    answer = _ask(address, ALTER, request)
    assert isinstance(answer, AlterClientQuotasResponse)
    assert [entry.error_code for entry in answer.entries] == [0]


def quotas_of(address: str) -> dict[str | None, dict[str, float]]:
    """All quotas, by client id."""
    answer = _ask(address, DESCRIBE, DescribeClientQuotasRequest(components=[], strict=False))
    assert isinstance(answer, DescribeClientQuotasResponse)
    assert answer.entries is not None
    return {
        entry.entity[0].entity_name: {value.key: value.value for value in entry.values}
        for entry in answer.entries
    }


def _ask(address: str, key: int, request: Message) -> Message:
    host, _, port = address.rpartition(":")
    chunks = encode_request(RequestHeader(key, APIS[key].last, 7, "administrator"), request)
    with (
        socket.create_connection((host, int(port)), timeout=SECONDS_MAX) as client,
        client.makefile("rb") as replies,
    ):
        client.sendall(b"".join(bytes(chunk) for chunk in chunks if not hasattr(chunk, "read")))
        (size,) = LENGTH.unpack(replies.read(LENGTH.size))
        _, answer = decode_response(APIS[key], APIS[key].last, replies.read(size))
    return answer
