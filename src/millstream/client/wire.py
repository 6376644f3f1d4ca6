"""ListTransactions, the one Kafka request that librdkafka does not offer.

Owns its few bytes (version 0, flexible, KIP-664) and a blocking exchange with each node. Only plain
connections: logging in and TLS are librdkafka's, so where these are set the call is refused.
"""

import socket
import struct
from collections.abc import Iterable
from typing import Any

from millstream.client.errors import ClientError, NotSupported, Refused, TimedOut, unreachable
from millstream.client.models import BrokerNode, Transaction

API_KEY = 66
CLIENT_ID = b"millstream"
ANSWER_BYTES_MAX = 64 * 2**20
NAMES = {35: "UNSUPPORTED_VERSION", 14: "COORDINATOR_LOAD_IN_PROGRESS", 15: "NOT_AVAILABLE"}
REQUEST = (
    struct.pack(">hhih", API_KEY, 0, 1, len(CLIENT_ID))
    + CLIENT_ID
    + b"\0"  # No tagged fields in the header,
    + b"\x01\x01\0"  # no filter by state, none by producer, no tagged fields.
)


def list_transactions(
    nodes: Iterable[BrokerNode], config: dict[str, Any], *, timeout_s: float
) -> tuple[Transaction, ...]:
    protocol = str(config.get("security.protocol", "plaintext")).lower()
    if protocol != "plaintext":
        raise NotSupported(
            f"cannot list transactions over {protocol}: only plain connections are supported."
        )
    found = [one for node in nodes for one in parse(_ask(node, timeout_s), node.node_id)]
    return tuple(sorted(found, key=lambda one: one.transactional_id))


def parse(answer: bytes, coordinator_id: int) -> list[Transaction]:
    """Read the body after the correlation id. Bytes that end early are refused, not guessed."""
    try:
        return list(_Reader(answer).transactions(coordinator_id))
    except (struct.error, IndexError, UnicodeDecodeError) as problem:
        raise Refused(f"cannot list transactions: the answer makes no sense ({problem})") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def transactions(self, coordinator_id: int) -> Iterable[Transaction]:
        self._tags()  # Of the response header.
        _, code = self._take(">ih")
        if code:
            name = NAMES.get(code, f"error {code}")
            raise ClientError(f"cannot list transactions: {name.lower()}.", code=name)
        for _ in range(self._varint() - 1):
            self._text()
        for _ in range(self._varint() - 1):
            name = self._text()
            (producer_id,) = self._take(">q")
            state = self._text()
            self._tags()
            yield Transaction(
                transactional_id=name,
                producer_id=producer_id,
                state=state,
                coordinator_id=coordinator_id,
            )

    def _take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return values

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 28:
                return value

    def _text(self) -> str:
        return self._bytes(self._varint() - 1).decode()

    def _bytes(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) != size:
            raise IndexError(f"{size} bytes wanted, {len(piece)} left")
        self._at += size
        return piece

    def _tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            self._bytes(self._varint())


def _ask(node: BrokerNode, timeout_s: float) -> bytes:
    address = f"{node.host}:{node.port}"
    try:
        with socket.create_connection((node.host, node.port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(REQUEST)) + REQUEST)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            if not 4 <= size <= ANSWER_BYTES_MAX:
                raise Refused(f"cannot list transactions: an answer of {size} bytes")
            return _exactly(connection, size)[4:]
    except TimeoutError:
        raise TimedOut(f"cannot list transactions: no answer from {address}.") from None
    except OSError as problem:
        raise unreachable(address, "list transactions", str(problem)) from problem


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(size - len(data), 65_536))
        if not piece:
            raise ConnectionError("the broker hung up; it may not serve this request")
        data += piece
    return bytes(data)
