"""The record level of a batch: build, iterate, validate, filter, recompress, control batches.

Owns what lies behind the header. It costs a thousand times what the header costs, so only those
come here who must see records: compaction, filters, validation, the doors that are not Kafka's.
How records are found, and what they are checked for, is `scanning`'s.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from enum import Enum
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from millstream.codec.batch import (
    CODEC_BITS,
    CONTROL,
    DELETE_HORIZON,
    TRANSACTIONAL,
    Header,
    seal,
    verify,
)
from millstream.codec.compression import Codec, compress
from millstream.codec.primitives import write_varint
from millstream.codec.scanning import (
    INT64_MAX,
    INT64_MIN,
    NO_REQUIRED_SUBSTRINGS,
    Opened,
    RequiredSubstrings,
    open_batch,
    scan,
    wrap_int64,
)
from millstream.codec.scanning import Record as Record
from millstream.cooperative import all_at_once
from millstream.errors import InvalidBatch
from millstream.model import Buffer

STEP_BYTES = 8 * 2**10  # Of records: a fraction of a millisecond's worth, whatever their size.

_ATTRIBUTES = b"\0"  # A record's own attributes mean nothing in this format.
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_MARKER_VERSION = 0


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
    header, data = open_batch(buffer, at, decompressed_bytes_max)
    return [found[0] for found in scan(header, data, utf8_errors="replace")]


def iterate(buffer: Buffer, at: int = 0, *, decompressed_bytes_max: int) -> Iterator[Record]:
    """Verify the batch at `at` and decode its records one by one.

    The checksum is checked before the first record; what is wrong inside shows where it lies.
    """
    header, data = open_batch(buffer, at, decompressed_bytes_max)
    for record, _, _, _ in scan(header, data, utf8_errors="replace"):
        yield record


def validate_records(buffer: Buffer, *, decompressed_bytes_max: int) -> Contents:
    """Prove that a produced batch, admitted by its header, holds what its header says.

    The deltas must be 0 to count - 1: `scan` has them rise within the header's last delta, which
    leaves no other way once count and last delta agree.
    """
    header, data = open_batch(buffer, 0, decompressed_bytes_max)
    if header.count == 0 or header.count != header.last_offset_delta + 1:
        raise InvalidBatch(f"{header.count} records, last offset delta {header.last_offset_delta}")
    oldest, newest = INT64_MAX, INT64_MIN
    null_key_index = None
    for record, _, _, _ in scan(header, data, utf8_errors="strict"):
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
    level: int | None = None,
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
    return seal(header, compress(codec, body, level=level))[1]


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
    prefilter: Callable[[bytes], bool | None] | None = None,
    keep_empty: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytes | None:
    """Drop the records that `keep` refuses; None if none is left, unless `keep_empty`.

    Offsets do not move: base offset, last offset, epoch, producer and codec stay, and so do the
    bytes of every kept record. A delete horizon is set once, when there is none yet. `prefilter`
    gets the uncompressed bytes of all records; it returns True to keep all, False to drop all, and
    None to test each record.
    """
    steps = filter_steps(
        buffer,
        keep,
        decompressed_bytes_max=decompressed_bytes_max,
        prefilter=prefilter,
        keep_empty=keep_empty,
        delete_horizon_ms=delete_horizon_ms,
    )
    return all_at_once(steps)


def filter_steps(
    buffer: Buffer,
    keep: Callable[[Record], bool],
    *,
    decompressed_bytes_max: int,
    opened: Opened | None = None,
    prefilter: Callable[[bytes], bool | None] | None = None,
    required: RequiredSubstrings = NO_REQUIRED_SUBSTRINGS,
    keep_empty: bool = False,
    trims: bool = False,
    delete_horizon_ms: int | None = None,
) -> Generator[None, None, bytes | None]:
    """The same in steps of `STEP_BYTES`, for who must let others have a turn.

    `opened` is the batch as `open_batch` returned it, where it was unpacked before. With `required`
    records without one of the substrings are dropped, and `keep` is not called for them. With
    `trims` a batch that lost its last records ends where the last that it kept does.
    """
    header, data = opened or open_batch(buffer, 0, decompressed_bytes_max)
    verdict = None if prefilter is None else prefilter(data)
    if verdict:
        return bytes(memoryview(buffer)[: header.size])
    horizon = None if header.has_delete_horizon else delete_horizon_ms
    body = bytearray()
    count = 0
    newest = INT64_MIN
    stepped = last_offset = 0
    found = () if verdict is False else scan(header, data, utf8_errors="replace", required=required)
    for record, start, rest_at, end in found:
        if start - stepped > STEP_BYTES:
            stepped = start
            yield
        if not keep(record):
            continue
        count += 1
        last_offset = record.offset
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
    if trims:
        header = header._replace(last_offset_delta=last_offset - header.base_offset)
    if not header.has_log_append_time:
        header = header._replace(max_timestamp=newest)
    if horizon is not None:
        # It takes the place of the base timestamp, so the deltas count from it.
        attributes = header.attributes | DELETE_HORIZON
        header = header._replace(attributes=attributes, base_timestamp=horizon)
    return seal(header, compress(header.codec, body))[1]


def recompress(
    buffer: Buffer, codec: Codec, *, decompressed_bytes_max: int, level: int | None = None
) -> bytes:
    """Put the same records under another codec, without looking at them."""
    header, data = open_batch(buffer, 0, decompressed_bytes_max)
    attributes = header.attributes & ~CODEC_BITS | codec
    return seal(header._replace(attributes=attributes), compress(codec, data, level=level))[1]


# -- private ---------------------------------------------------------------------------------------


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
    write_varint(head, wrap_int64(timestamp_delta))
    write_varint(body, len(head) + len(rest))
    body += head
    body += rest
