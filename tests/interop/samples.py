"""What every client is asked to carry, and the marks that say what a broker must serve for it."""

import time
from typing import NamedTuple

import pytest

from millstream.kafka_wire.apis.table import APIS
from millstream.protocols.kafka.router import HANDLERS

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
INIT_PRODUCER_ID, CREATE_TOPICS, DELETE_TOPICS = 22, 19, 20
DESCRIBE_CONFIGS, CREATE_PARTITIONS = 32, 37
INCREMENTAL_ALTER_CONFIGS = 44
DELETE_RECORDS = 21


class Sample(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp_ms: int


def samples() -> list[Sample]:
    """Every shape of record: repeated and empty headers, empty and absent keys and values."""
    start_ms = int(time.time() * 1000) - 60_000
    shapes: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
        (b"key", b"value", [("trace", b"1"), ("trace", b"2"), ("empty", b"")]),
        (None, b"no key", []),
        (b"tombstone", None, [("why", b"gone")]),
        (b"", b"", []),
        ("schlüssel".encode(), "wert ✓".encode(), [("größe", "naïve".encode())]),
        (b"long", b"abcdefgh" * 4_000, []),
    ]
    return [Sample(*shape, start_ms + at * 1_000) for at, shape in enumerate(shapes)]


def needs(*apis: int) -> pytest.MarkDecorator:
    """Skip, and say why, as long as the broker does not serve these APIs."""
    missing = [APIS[key].name for key in apis if key not in HANDLERS]
    return pytest.mark.skipif(bool(missing), reason=f"not served yet: {', '.join(missing)}")
