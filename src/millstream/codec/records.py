"""Decodes the records of a batch, each way at its own cost.

| function | decodes | reads of the other records |
|---|---|---|
| `decode_all` | every record into a list, the fastest way to get all | |
| `decode_each` | every record, one at a time: a list takes many times the bytes of the batch | |
| `decode_range` | some records from an offset on | the lengths of those before, nothing behind |
| `decode_selected` | the records at selected offsets | the lengths, a tenth of decoding |
| `decode_containing` | the chunks in which some bytes occur | the lengths, and one search |
| `scan_records` | every record with its position, to rewrite a batch | |
| `verify_records` | nothing: proves that a produced batch holds what its header says | |

A header costs a thousandth of its records: code that needs no record uses `batch` alone.

Invariant: every function verifies the checksum first, unless the caller passes the batch unpacked.
Every length and count is compared with the bytes that are there before anything is allocated, and
the records of a batch never outgrow `decompressed_bytes_max`.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias

from millstream.codec.batch import HEADER_BYTES, RECORD_BYTES_MIN, Header, verify_batch
from millstream.codec.compression import Codec, decompress, decompress_small, unpacked_bytes_max
from millstream.codec.primitives import ZIGZAG, read_varint, read_varlong
from millstream.errors import CorruptBatch, InvalidBatch, ProtocolError
from millstream.model import Buffer

STEP_BYTES = 8 * 2**10  # Of records: a fraction of a millisecond's worth, whatever their size.
NULL_KEYS_LISTED_MAX = 1_000  # Of one batch, in a refusal.
RECORD_HEADER_BYTES_MIN = 2  # Two lengths.
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record. Null and empty differ: a null value is a tombstone in a compacted topic."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RequiredSubstrings(NamedTuple):
    """Texts of which every matching record contains at least one; empty: unknown."""

    texts: tuple[bytes, ...] = ()
    folds_case: bool = False  # Searched in the ASCII lower case of the bytes.

    def any_in(self, data: bytes) -> bool:
        searched = self.searched(data)
        return any(text in searched for text in self.texts)

    def searched(self, data: bytes) -> bytes:
        """The bytes to search, of the same length."""
        return data.lower() if self.folds_case else data


NO_REQUIRED_SUBSTRINGS = RequiredSubstrings()

# A verified header, and the uncompressed bytes of the records behind it.
Unpacked: TypeAlias = tuple[Header, bytes]

# A record, where its bytes start, where those behind the timestamp delta start, where all end.
ScannedRecord: TypeAlias = tuple[Record, int, int, int]


# -- unpacking -------------------------------------------------------------------------------------


def verify_and_unpack(buffer: Buffer, at: int, decompressed_bytes_max: int) -> Unpacked:
    """Verify the batch at `at` and decompress its records, to what its size and the limit allow."""
    header = verify_batch(buffer, at)
    payload = memoryview(buffer)[at + HEADER_BYTES : at + header.size]
    if header.count == 0 and not payload:
        return header, b""
    size_max = unpacked_bytes_max(len(payload), decompressed_bytes_max)
    data = decompress(header.codec, payload, size_max=size_max)
    if len(data) < header.count * RECORD_BYTES_MIN:
        raise CorruptBatch(f"{header.count} records in {len(data)} bytes")
    return header, data


def verify_and_unpack_small(
    buffer: Buffer, at: int, decompressed_bytes_max: int
) -> Unpacked | None:
    """The same within a millisecond or so; None for a batch that must be unpacked on a thread."""
    header = verify_batch(buffer, at)
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


# -- decoding --------------------------------------------------------------------------------------


def decode_all(
    buffer: Buffer, at: int = 0, *, decompressed_bytes_max: int, unpacked: Unpacked | None = None
) -> list[Record]:
    """Verify the batch at `at` and decode all its records; `unpacked` if that was done before."""
    header, data = unpacked or verify_and_unpack(buffer, at, decompressed_bytes_max)
    if not header.has_log_append_time:
        try:
            return _decode_usual(header, data)
        except (_Unusual, IndexError, CorruptBatch, InvalidBatch, ProtocolError):
            pass  # The complete decoder below reads the batch, or raises the exact error.
    return [record for record, _, _, _ in scan_records(header, data)]


def decode_each(buffer: Buffer, at: int = 0, *, decompressed_bytes_max: int) -> Iterator[Record]:
    """Verify the batch at `at` and decode its records one by one.

    The checksum is verified before the first record; an error inside is raised at its record.
    """
    header, data = verify_and_unpack(buffer, at, decompressed_bytes_max)
    for record, _, _, _ in scan_records(header, data):
        yield record


def decode_range(
    buffer: Buffer,
    at: int,
    offset: int,
    count_max: int,
    *,
    decompressed_bytes_max: int,
    unpacked: Unpacked | None = None,
) -> list[Record]:
    """Verify the batch at `at` and decode at most `count_max` of its records from `offset` on.

    For readers that return for the next records of the same batch. An error behind the last
    decoded record is not seen; the checksum covers those bytes. `unpacked` as in `decode_all`.
    """
    header, data = unpacked or verify_and_unpack(buffer, at, decompressed_bytes_max)
    # How many records lie before the offset is known only where there are no gaps.
    skipped = min(max(0, offset - header.base_offset), header.count) if _is_dense(header) else 0
    tail = header._replace(count=header.count - skipped)
    scanned = scan_records(tail, data[_skip_records(data, skipped) :])
    in_range = (record for record, _, _, _ in scanned if record.offset >= offset)
    return list(islice(in_range, count_max))


def decode_selected(
    buffer: Buffer, is_selected: Callable[[int], bool], *, decompressed_bytes_max: int
) -> list[Record]:
    """Verify the batch and decode its records at selected offsets; the others are not checked."""
    header, data = verify_and_unpack(buffer, 0, decompressed_bytes_max)
    is_dense = _is_dense(header)
    single = header._replace(count=1)
    selected: list[Record] = []
    at = 0
    for index in range(header.count):
        start = at
        body_at, at = _record_bounds(data, at)
        try:
            delta = index if is_dense else _offset_delta(data, body_at)
        except (IndexError, ProtocolError):
            raise CorruptBatch("the data ends inside a record") from None
        if is_selected(header.base_offset + delta):
            selected += [record for record, *_ in scan_records(single, data[start:at])]
    return selected


def decode_containing(header: Header, data: bytes, substring: bytes) -> Iterator[list[Record]]:
    """Decode the chunks of uncompressed records in which `substring` occurs.

    Yields a list for each chunk of `STEP_BYTES`, so that a caller can yield to the event loop in
    between; it is empty, and the records are not checked, where the bytes do not occur.
    """
    at, left = 0, header.count
    while left:
        start, count = at, 0
        while left > count and at - start < STEP_BYTES:
            _, at = _record_bounds(data, at)
            count += 1
        left -= count
        if data.find(substring, start, at) < 0:
            yield []
            continue
        chunk = scan_records(header._replace(count=count), data[start:at])
        yield [record for record, *_ in chunk]


def verify_records(buffer: Buffer, *, decompressed_bytes_max: int) -> list[int]:
    """Prove that a produced batch, whose header was verified, holds what its header says.

    Returns the indexes of the records without a key, of the first `NULL_KEYS_LISTED_MAX`.

    The deltas must be 0 to count - 1: `scan_records` has them rise within the header's last delta,
    which leaves no other way once count and last delta agree.
    """
    header, data = verify_and_unpack(buffer, 0, decompressed_bytes_max)
    if header.count == 0 or not _is_dense(header):
        raise InvalidBatch(f"{header.count} records, last offset delta {header.last_offset_delta}")
    null_key_indexes: list[int] = []
    for record, _, _, _ in scan_records(header, data, utf8_errors="strict"):
        if record.key is None and len(null_key_indexes) < NULL_KEYS_LISTED_MAX:
            null_key_indexes.append(record.offset - header.base_offset)
    return null_key_indexes


def scan_records(
    header: Header,
    data: bytes,
    *,
    utf8_errors: str = "replace",
    required: RequiredSubstrings = NO_REQUIRED_SUBSTRINGS,
) -> Iterator[ScannedRecord]:
    """Decode the records in `data`; their offsets rise and stay within the header's last one.

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
            timestamp, delta_at = read_varlong(data, at + 1)
            delta, at = read_varint(data, delta_at)
            key, at = _read_field(data, at)
            value, at = _read_field(data, at)
            if data[at] == 0:
                headers: Headers = ()
                at += 1
            else:
                headers, at = _read_headers(data, at, end, utf8_errors)
            # A field that reaches too far shows here: nothing above moves back.
            if at != end:
                raise CorruptBatch(f"record at {start} should end at {end}, not {at}")
            if not previous < delta <= last_delta:
                raise InvalidBatch(f"offset delta {delta} after {previous}, last is {last_delta}")
            previous = delta
            timestamp = append_time if is_stamped else wrap_int64(base_timestamp + timestamp)
            fields = (base_offset + delta, timestamp, key, value, headers)
            yield new_record(Record, fields), start, delta_at, end
    except IndexError:
        raise CorruptBatch("the data ends inside a record") from None
    except ProtocolError as problem:
        raise CorruptBatch(str(problem)) from None
    if at != len(data):
        raise CorruptBatch(f"{len(data) - at} bytes behind the last record")


def oldest_timestamp(header: Header, data: bytes) -> int:
    """The least timestamp of all records in `data`; reads nothing else of them."""
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


def wrap_int64(value: int) -> int:
    """Wrap like Java's long: any timestamp plus any delta fits."""
    if INT64_MIN <= value <= INT64_MAX:
        return value
    return (value - INT64_MIN) % 2**64 + INT64_MIN


# -- the fast path of decode_all -------------------------------------------------------------------


class _Unusual(Exception):
    """The batch has something that only `scan_records` decodes or refuses."""


def _decode_usual(header: Header, data: bytes) -> list[Record]:
    """Decode the records that nearly all batches have; refuses nothing by itself.

    Neighbours mostly have the same headers: equal bytes are decoded once.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    last_delta, data_size = header.last_offset_delta, len(data)
    new_record = tuple.__new__
    decoded = []
    raw_headers = b"\0"
    headers: Headers = ()
    previous = -1
    at = 0
    for _ in range(header.count):
        size, at = _read_length(data, at)
        end = at + size
        if end > data_size:
            raise _Unusual
        if data[at + 1]:
            timestamp, at = read_varlong(data, at + 1)
            timestamp = wrap_int64(base_timestamp + timestamp)
        else:
            timestamp, at = base_timestamp, at + 2
        delta, at = _read_length(data, at)
        if not previous < delta <= last_delta:
            raise _Unusual
        previous = delta
        if data[at] == 1:
            key, at = None, at + 1
        else:
            size, at = _read_length(data, at)
            key, at = data[at : at + size], at + size
        if data[at] == 1:
            value, at = None, at + 1
        else:
            size, at = _read_length(data, at)
            value, at = data[at : at + size], at + size
        if at >= end:
            raise _Unusual
        if data[at:end] != raw_headers:
            raw_headers = data[at:end]
            headers, read_to = _read_headers(data, at, end, "replace")
            if read_to != end:
                raise _Unusual
        at = end
        decoded.append(new_record(Record, (base_offset + delta, timestamp, key, value, headers)))
    if at != data_size:
        raise _Unusual
    return decoded


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """A number that cannot be negative, most often of one or two bytes."""
    low = data[at]
    if low < 0x80:
        if low & 1:
            raise _Unusual
        return low >> 1, at + 1
    high = data[at + 1]
    if high < 0x80:
        if low & 1:
            raise _Unusual
        return high << 6 | (low & 0x7F) >> 1, at + 2
    value, at = read_varint(data, at)
    if value < 0:
        raise _Unusual
    return value, at


# -- parts of a record -----------------------------------------------------------------------------


def _is_dense(header: Header) -> bool:
    """Whether every offset of the batch has a record; compaction leaves gaps."""
    return header.count == header.last_offset_delta + 1


def _skip_records(data: bytes, count: int) -> int:
    """The position behind the first `count` records."""
    at = 0
    try:
        for _ in range(count):
            # A length of one byte or two: nearly all are.
            low = data[at]
            if low & 0x81 == 0:
                at += 1 + (low >> 1)
            elif low & 0x81 == 0x80 and (high := data[at + 1]) < 0x80:
                at += 2 + (high << 6 | (low & 0x7F) >> 1)
            else:
                _, at = _record_bounds(data, at)
    except IndexError:
        raise CorruptBatch("the data ends inside a record") from None
    return at


def _record_bounds(data: bytes, at: int) -> tuple[int, int]:
    """Where the record at `at` has its attributes, and where it ends."""
    start = at
    try:
        length, at = read_varint(data, at)
    except (IndexError, ProtocolError):
        raise CorruptBatch("the data ends inside a record") from None
    end = at + length
    if length < 0 or end > len(data):
        raise CorruptBatch(f"record of {length} bytes in {len(data) - start}")
    return at, end


def _offset_delta(data: bytes, at: int) -> int:
    """The offset delta of a record whose attributes are at `at`."""
    _, at = read_varlong(data, at + 1)
    delta, _ = read_varint(data, at)
    return delta


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


def _read_headers(data: bytes, at: int, end: int, utf8_errors: str) -> tuple[Headers, int]:
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
