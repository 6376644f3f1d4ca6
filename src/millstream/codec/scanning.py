"""Finding the records in a batch: decompressed, in bounds, one after the other.

Owns the reading of what lies behind the header; `records` makes something of it. The one thing to
know: every length and count is checked against the bytes that are there before anything is made of
it, and what comes out of a batch never outgrows `decompressed_bytes_max`.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from millstream.codec.batch import HEADER_BYTES, Header, verify
from millstream.codec.compression import Codec, decompress, decompress_small, unpacked_bytes_max
from millstream.codec.primitives import ZIGZAG, read_varint, read_varlong
from millstream.errors import CorruptBatch, InvalidBatch, ProtocolError
from millstream.model import Buffer

RECORD_BYTES_MIN = 7  # Length, attributes, two deltas, key, value, header count: a byte each.
RECORD_HEADER_BYTES_MIN = 2  # Two lengths.
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record. Null and empty differ: a null value is a tombstone in a compacted topic."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: _Headers = ()


class RequiredSubstrings(NamedTuple):
    """Texts of which at least one is in the bytes of every wanted record; empty: unknown."""

    texts: tuple[bytes, ...] = ()
    folds_case: bool = False  # Searched in the ASCII lower case of the bytes.

    def any_in(self, data: bytes) -> bool:
        searched = self.searched(data)
        return any(text in searched for text in self.texts)

    def searched(self, data: bytes) -> bytes:
        """The bytes to search, of the same length."""
        return data.lower() if self.folds_case else data


NO_REQUIRED_SUBSTRINGS = RequiredSubstrings()

# A record, where its bytes start, where those behind the timestamp delta start, where all end.
Found: TypeAlias = tuple[Record, int, int, int]


Opened: TypeAlias = tuple[Header, bytes]


def open_batch(buffer: Buffer, at: int, decompressed_bytes_max: int) -> Opened:
    """Verify the batch at `at` and unpack its records, up to what its size and the limit allow."""
    header = verify(buffer, at)
    payload = memoryview(buffer)[at + HEADER_BYTES : at + header.size]
    if header.count == 0 and not payload:
        return header, b""
    size_max = unpacked_bytes_max(len(payload), decompressed_bytes_max)
    data = decompress(header.codec, payload, size_max=size_max)
    if len(data) < header.count * RECORD_BYTES_MIN:
        raise CorruptBatch(f"{header.count} records in {len(data)} bytes")
    return header, data


def open_small(buffer: Buffer, at: int, decompressed_bytes_max: int) -> Opened | None:
    """The same within a millisecond or so; None for a batch that must be opened on a thread."""
    header = verify(buffer, at)
    payload = memoryview(buffer)[at + HEADER_BYTES : at + header.size]
    if header.count == 0 and not payload:
        return header, b""
    if header.codec is Codec.NONE:
        data: bytes | None = bytes(payload)
    else:
        data = decompress_small(header.codec, payload, size_max=decompressed_bytes_max)
    if data is None:
        return None
    if len(data) < header.count * RECORD_BYTES_MIN:
        raise CorruptBatch(f"{header.count} records in {len(data)} bytes")
    return header, data


def scan(
    header: Header,
    data: bytes,
    *,
    utf8_errors: str,
    required: RequiredSubstrings = NO_REQUIRED_SUBSTRINGS,
) -> Iterator[Found]:
    """Find the records in `data`; their offsets rise and stay within the header's last one.

    With `required` only records that contain one of the substrings; all others are skipped without
    decoding, in a fraction of the time.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    is_stamped, append_time = header.has_log_append_time, header.max_timestamp
    last_delta = header.last_offset_delta
    new_record = tuple.__new__  # What Record(...) does in the end, in less than half the time.
    texts, searched = required.texts, required.searched(data)
    previous = -1
    at = 0
    try:
        for _ in range(header.count):
            start = at
            length, at = read_varint(data, at)
            end = at + length
            if length < 0 or end > len(data):
                raise CorruptBatch(f"record of {length} bytes, {len(data) - at} are there")
            if texts:
                for text in texts:
                    if searched.find(text, at, end) >= 0:
                        break
                else:
                    at = end
                    continue
            timestamp, rest_at = read_varlong(data, at + 1)
            delta, at = read_varint(data, rest_at)
            key, at = _read_field(data, at)
            value, at = _read_field(data, at)
            if data[at] == 0:
                headers: _Headers = ()
                at += 1
            else:
                headers, at = read_headers(data, at, end, utf8_errors)
            # A field that reaches too far shows here: nothing above moves back.
            if at != end:
                raise CorruptBatch(f"record at {start} should end at {end}, not {at}")
            if not previous < delta <= last_delta:
                raise InvalidBatch(f"offset delta {delta} after {previous}, last is {last_delta}")
            previous = delta
            timestamp = append_time if is_stamped else wrap_int64(base_timestamp + timestamp)
            fields = (base_offset + delta, timestamp, key, value, headers)
            yield new_record(Record, fields), start, rest_at, end
    except IndexError:
        raise CorruptBatch("the data ends inside a record") from None
    except ProtocolError as problem:
        raise CorruptBatch(str(problem)) from None
    if at != len(data):
        raise CorruptBatch(f"{len(data) - at} bytes behind the last record")


def oldest_timestamp(header: Header, data: bytes) -> int:
    """The least timestamp of all records in `data`, found without reading the rest of them."""
    if header.has_log_append_time:
        return header.max_timestamp
    least, at = INT64_MAX, 0
    try:
        for _ in range(header.count):
            length, at = read_varint(data, at)
            delta, _ = read_varlong(data, at + 1)
            least = min(least, delta)
            at += length
    except IndexError:
        raise CorruptBatch("the data ends inside a record") from None
    except ProtocolError as problem:
        raise CorruptBatch(str(problem)) from None
    return wrap_int64(header.base_timestamp + least)


def _read_field(data: bytes, at: int) -> tuple[bytes | None, int]:
    if (byte := data[at]) < 0x80:
        size, at = ZIGZAG[byte], at + 1
    else:
        size, at = read_varint(data, at)
    if size >= 0:
        return data[at : at + size], at + size
    if size != -1:
        raise CorruptBatch(f"field of {size} bytes")
    return None, at


def read_headers(data: bytes, at: int, end: int, utf8_errors: str) -> tuple[_Headers, int]:
    """Read a record's headers, from their count on; they may reach up to `end`."""
    count, at = read_varint(data, at)
    if not 0 <= count <= (end - at) // RECORD_HEADER_BYTES_MIN:
        raise CorruptBatch(f"{count} headers in {end - at} bytes")
    headers = []
    for _ in range(count):
        name, at = _read_field(data, at)
        value, at = _read_field(data, at)
        if name is None:
            raise InvalidBatch("a header needs a key")
        try:
            headers.append((str(name, "utf-8", utf8_errors), value))
        except UnicodeDecodeError:
            raise InvalidBatch("a header's key is not UTF-8") from None
    return tuple(headers), at


def wrap_int64(value: int) -> int:
    """Wrap like Java's long, so that a time and its delta fit whatever a producer made up."""
    if INT64_MIN <= value <= INT64_MAX:
        return value
    return (value - INT64_MIN) % 2**64 + INT64_MIN
