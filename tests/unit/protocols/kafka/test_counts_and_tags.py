"""No count and no tag of any request takes memory that its bytes do not (CVE-2022-34917)."""

import tracemalloc
from random import Random

import pytest

from millstream.errors import ProtocolError
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.headers import RequestHeader, decode_request, encode_request
from tests.unit.protocols.kafka.arbitrary import arbitrary

# 2^31 - 1 as a number and as a varint.
COUNTS = {False: b"\x7f\xff\xff\xff", True: b"\xff\xff\xff\xff\x07"}
PLACES_MAX = 12  # Where a count is put into one request.
TAGS = 2**16
TAGS_MANY = b"\x80\x80\x40"  # 2^20, as a varint.
SMALL_BYTES_MAX = 64 * 1024  # What decoding a small request may take.
FLEXIBLE = sorted(key for key, api in APIS.items() if api.is_flexible(api.last))


def peak_of(frame: bytes) -> int:
    """The memory that decoding takes; only `ProtocolError` may come of it."""
    tracemalloc.start()
    try:
        decode_request(frame)
    except ProtocolError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("key", sorted(APIS))
def test_no_count_takes_memory_that_its_bytes_do_not(key: int) -> None:
    """In every version, at many places: at those of counts, too."""
    api, random = APIS[key], Random(key)
    for version in range(api.first, api.last + 1):
        message = arbitrary(api.request, version, random)
        header = RequestHeader(key, version, 1, "c")
        frame = b"".join(bytes(part) for part in encode_request(header, message))[4:]  # type: ignore[arg-type]
        decode_request(frame)  # Makes the reader of this version.
        count, inside = COUNTS[api.is_flexible(version)], range(8, len(frame))
        for at in random.sample(inside, min(PLACES_MAX, len(inside))):
            spoiled = frame[:at] + count + frame[at + len(count) :]

            assert peak_of(spoiled) < 2 * len(spoiled) + SMALL_BYTES_MAX, (version, at)


@pytest.mark.parametrize("key", FLEXIBLE)
def test_no_tagged_field_takes_memory(key: int) -> None:
    """Tags that are announced and not there, and many that are there."""
    version = APIS[key].last
    head = key.to_bytes(2) + version.to_bytes(2) + bytes(4) + b"\xff\xff"
    there = b"".join(bytes([n & 127 | 128, n >> 7 & 127 | 128, n >> 14, 0]) for n in range(TAGS))
    for tags in (TAGS_MANY, TAGS_MANY + there):
        frame = head + tags

        assert peak_of(frame) < 2 * len(frame) + SMALL_BYTES_MAX
