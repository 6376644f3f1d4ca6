"""The record level of a batch: build, iterate, validate, filter, recompress, control batches.

Owns what lies behind the header. It costs a thousand times what the header costs, so only those
come here who must see records: compaction, filters, validation, the doors that are not Kafka's.
The one thing to know: every length and count is checked against the bytes that are there before
anything is made of it, and what comes out of a batch never outgrows `decompressed_bytes_max`.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple, TypeAlias

from millstream.codec.batch import (
    CODEC_BITS,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    TRANSACTIONAL,
    Header,
    seal,
    verify,
)
from millstream.codec.compression import Codec, compress, decompress
from millstream.codec.primitives import ZIGZAG, read_varint, read_varlong, write_varint
from millstream.errors import CorruptBatch, InvalidBatch, ProtocolError
from millstream.model import Buffer

RECORD_BYTES_MIN = 7  # Length, attributes, two deltas, key, value, header count: a byte each.
RECORD_HEADER_BYTES_MIN = 2  # Two lengths.

_ATTRIBUTES = b"\0"  # A record's own attributes mean nothing in this format.
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_MARKER_VERSION = 0

_Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
# A record, where its bytes start, where those behind the timestamp delta start, where all end.
_Found: TypeAlias = tuple["Record", int, int, int]


class Record(NamedTuple):
    """One record. Null and empty differ: a null value is a tombstone in a compacted topic."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: _Headers = ()


class Contents(NamedTuple):
    """What only the records of a batch can tell, and a topic's settings may ask."""

    min_timestamp: int
    max_timestamp: int
    null_key_index: int | None  # The first record without a key.


class ControlKind(Enum):
    """How a transaction ended; the value is what a marker's key says."""

    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    kind: ControlKind
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


# -- reading ---------------------------------------------------------------------------------------


def records(buffer: Buffer, at: int = 0, *, decompressed_bytes_max: int) -> list[Record]:
    """Verify the batch at `at` and decode all its records.

    Objects are many times larger than the smallest spelling of a record: whoever needs one record
    at a time takes `iterate`.
    """
    header, data = _open(buffer, at, decompressed_bytes_max)
    return [found[0] for found in _scan(header, data, utf8_errors="replace")]


def iterate(buffer: Buffer, at: int = 0, *, decompressed_bytes_max: int) -> Iterator[Record]:
    """Verify the batch at `at` and decode its records one by one.

    The checksum is checked before the first record; what is wrong inside shows where it lies.
    """
    header, data = _open(buffer, at, decompressed_bytes_max)
    for record, _, _, _ in _scan(header, data, utf8_errors="replace"):
        yield record


def validate_records(buffer: Buffer, *, decompressed_bytes_max: int) -> Contents:
    """Prove that a produced batch, admitted by its header, holds what its header says.

    The deltas must be 0 to count - 1: `_scan` has them rise within the header's last delta, which
    leaves no other way once count and last delta agree.
    """
    header, data = _open(buffer, 0, decompressed_bytes_max)
    if header.count == 0 or header.count != header.last_offset_delta + 1:
        raise InvalidBatch(f"{header.count} records, last offset delta {header.last_offset_delta}")
    oldest, newest = _INT64_MAX, _INT64_MIN
    null_key_index = None
    for record, _, _, _ in _scan(header, data, utf8_errors="strict"):
        oldest = min(oldest, record.timestamp)
        newest = max(newest, record.timestamp)
        if record.key is None and null_key_index is None:
            null_key_index = record.offset - header.base_offset
    return Contents(oldest, newest, null_key_index)


def read_marker(buffer: Buffer, at: int = 0) -> Marker:
    """Read the control batch at `at`."""
    header = verify(buffer, at)
    if not header.is_control or header.count != 1 or header.attributes & CODEC_BITS:
        raise InvalidBatch("a marker is one record in an uncompressed control batch")
    (record,) = records(buffer, at, decompressed_bytes_max=0)
    try:
        # A later version may append fields; these stay where they are.
        _, kind = _MARKER_KEY.unpack_from(record.key or b"")
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
        return Marker(
            ControlKind(kind), header.producer_id, header.producer_epoch, coordinator_epoch
        )
    except (struct_error, ValueError) as problem:
        raise InvalidBatch(f"not a marker: {problem}") from None


# -- writing ---------------------------------------------------------------------------------------


def build(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    epoch: int = 0,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Spell a batch. Offsets are absolute, rise from `base_offset` on, and may leave gaps."""
    assert records
    assert records[0].offset >= base_offset
    base_timestamp = records[0].timestamp
    attributes = codec | (TRANSACTIONAL if is_transactional else 0) | (CONTROL if is_control else 0)
    body = bytearray()
    max_timestamp = base_timestamp
    previous = base_offset - 1
    for record in records:
        assert record.offset > previous
        previous = record.offset
        max_timestamp = max(max_timestamp, record.timestamp)
        rest = _spell_rest(record, base_offset)
        _write_record(body, record.timestamp - base_timestamp, rest)
    header = Header(
        base_offset=base_offset,
        size=0,
        epoch=epoch,
        crc=0,
        attributes=attributes,
        last_offset_delta=previous - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(records),
    )
    return seal(header, compress(codec, body))[1]


def control_batch(
    kind: ControlKind,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    epoch: int = 0,
) -> bytes:
    """Spell the marker that ends a transaction. It takes an offset, like any record."""
    key = _MARKER_KEY.pack(_MARKER_VERSION, kind.value)
    value = _MARKER_VALUE.pack(_MARKER_VERSION, coordinator_epoch)
    return build(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        epoch=epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def filter_batch(
    buffer: Buffer,
    keep: Callable[[Record], bool],
    *,
    decompressed_bytes_max: int,
    keep_empty: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytes | None:
    """Drop the records that `keep` refuses; None if none is left, unless `keep_empty`.

    Offsets do not move: base offset, last offset, epoch, producer and codec stay, and so do the
    bytes of every kept record. A delete horizon is set once, when there is none yet.
    """
    header, data = _open(buffer, 0, decompressed_bytes_max)
    horizon = None if header.has_delete_horizon else delete_horizon_ms
    body = bytearray()
    count = 0
    newest = _INT64_MIN
    for record, start, rest_at, end in _scan(header, data, utf8_errors="replace"):
        if not keep(record):
            continue
        count += 1
        newest = max(newest, record.timestamp)
        if horizon is None:
            body += data[start:end]
        else:
            _write_record(body, record.timestamp - horizon, data[rest_at:end])
    if count == 0:
        if not keep_empty:
            return None
        return seal(header._replace(attributes=header.attributes & ~CODEC_BITS, count=0), b"")[1]
    if count == header.count and horizon is None:
        return bytes(memoryview(buffer)[: header.size])
    header = header._replace(count=count)
    if not header.has_log_append_time:
        header = header._replace(max_timestamp=newest)
    if horizon is not None:
        # It takes the place of the base timestamp, so the deltas count from it.
        attributes = header.attributes | DELETE_HORIZON
        header = header._replace(attributes=attributes, base_timestamp=horizon)
    return seal(header, compress(header.codec, body))[1]


def recompress(buffer: Buffer, codec: Codec, *, decompressed_bytes_max: int) -> bytes:
    """Put the same records under another codec, without looking at them."""
    header, data = _open(buffer, 0, decompressed_bytes_max)
    attributes = header.attributes & ~CODEC_BITS | codec
    return seal(header._replace(attributes=attributes), compress(codec, data))[1]


# -- private ---------------------------------------------------------------------------------------


def _open(buffer: Buffer, at: int, decompressed_bytes_max: int) -> tuple[Header, bytes]:
    header = verify(buffer, at)
    payload = memoryview(buffer)[at + HEADER_BYTES : at + header.size]
    if header.count == 0 and not payload:
        return header, b""
    data = decompress(header.codec, payload, size_max=decompressed_bytes_max)
    if len(data) < header.count * RECORD_BYTES_MIN:
        raise CorruptBatch(f"{header.count} records in {len(data)} bytes")
    return header, data


def _scan(header: Header, data: bytes, *, utf8_errors: str) -> Iterator[_Found]:
    """Find the records in `data`; their offsets rise and stay within the header's last one."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.has_log_append_time else None
    last_delta = header.last_offset_delta
    new_record = tuple.__new__  # What Record(...) does in the end, in less than half the time.
    previous = -1
    at = 0
    try:
        for _ in range(header.count):
            start = at
            length, at = read_varint(data, at)
            end = at + length
            if length < 0 or end > len(data):
                raise CorruptBatch(f"record of {length} bytes, {len(data) - at} are there")
            timestamp, rest_at = read_varlong(data, at + 1)
            delta, at = read_varint(data, rest_at)
            key, at = _read_field(data, at)
            value, at = _read_field(data, at)
            if data[at] == 0:
                headers: _Headers = ()
                at += 1
            else:
                headers, at = _read_headers(data, at, end, utf8_errors)
            # A field that reaches too far shows here: nothing above moves back.
            if at != end:
                raise CorruptBatch(f"record at {start} should end at {end}, not {at}")
            if not previous < delta <= last_delta:
                raise InvalidBatch(f"offset delta {delta} after {previous}, last is {last_delta}")
            previous = delta
            timestamp = _int64(base_timestamp + timestamp) if append_time is None else append_time
            fields = (base_offset + delta, timestamp, key, value, headers)
            yield new_record(Record, fields), start, rest_at, end
    except IndexError:
        raise CorruptBatch("the data ends inside a record") from None
    except ProtocolError as problem:
        raise CorruptBatch(str(problem)) from None
    if at != len(data):
        raise CorruptBatch(f"{len(data) - at} bytes behind the last record")


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


def _read_headers(data: bytes, at: int, end: int, utf8_errors: str) -> tuple[_Headers, int]:
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


def _spell_rest(record: Record, base_offset: int) -> bytearray:
    """Spell a record from its offset delta on."""
    offset, _, key, value, headers = record
    rest = bytearray()
    write_varint(rest, offset - base_offset)
    _write_field(rest, key)
    _write_field(rest, value)
    write_varint(rest, len(headers))
    for name, content in headers:
        _write_field(rest, name.encode())
        _write_field(rest, content)
    return rest


def _write_field(out: bytearray, field: bytes | None) -> None:
    if field is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(field))
        out += field


def _write_record(body: bytearray, timestamp_delta: int, rest: Buffer) -> None:
    head = bytearray(_ATTRIBUTES)
    write_varint(head, _int64(timestamp_delta))
    write_varint(body, len(head) + len(rest))
    body += head
    body += rest


def _int64(value: int) -> int:
    """Wrap like Java's long, so that a time and its delta fit whatever a producer made up."""
    if _INT64_MIN <= value <= _INT64_MAX:
        return value
    return (value - _INT64_MIN) % 2**64 + _INT64_MIN
