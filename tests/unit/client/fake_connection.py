"""A broker that answers requests of our own with the bytes that a test gives it."""

import struct

import pytest

from millstream.client import BrokerNode, own
from millstream.client._librdkafka.link import Link
from millstream.client.own import OwnRequests

NODE = BrokerNode(node_id=1, host="localhost", port=9092)
API_VERSIONS = 18
FINE = b"\0" + b"\0\0" + b"\0"  # No tags in the header, no error, no message.


def api_versions(*keys: int) -> bytes:
    rows = b"".join(struct.pack(">hhh", key, 0, 0) + b"\0" for key in keys)
    return b"\0\0" + bytes([len(keys) + 1]) + rows + b"\0\0\0\0\0"


OURS = api_versions(0, 1, 18, *range(10_000, 10_011))


class FakeConnection:
    """Answers by api key, from a list where one is given, and keeps what was asked."""

    def __init__(self, answers: dict[int, bytes | list[bytes]]) -> None:
        self.answers = answers
        self.asked: list[tuple[int, bytes]] = []

    def __call__(self, *_: object, **__: object) -> "FakeConnection":
        return self

    def __enter__(self) -> "FakeConnection":
        return self

    def __exit__(self, *_: object) -> None:
        return

    def ask(self, api_key: int, version: int, body: bytes, *, is_flexible: bool) -> bytes:
        assert is_flexible
        self.asked.append((api_key, body))
        answer = self.answers[api_key]
        return answer.pop(0) if isinstance(answer, list) else answer


def asked_of(
    monkeypatch: pytest.MonkeyPatch, answers: dict[int, bytes | list[bytes]]
) -> tuple[OwnRequests, FakeConnection]:
    """What asks such a broker, and the connection that remembers it."""
    connection = FakeConnection({API_VERSIONS: OURS, **answers})
    monkeypatch.setattr(own, "Connection", connection)
    return OwnRequests(Link("localhost:9092", {}), lambda: NODE), connection
