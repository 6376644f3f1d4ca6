"""Reads, verifies and stamps the 61-byte header of a batch in Kafka's format v2.

The records behind the header are not decoded here; `records` does that. Base offset, length and
epoch lie outside the checksum, which covers everything from the attributes on: a broker stamps
offset and epoch with 16 bytes, and neither copies the batch nor computes a checksum.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from fastcrc import crc32

from millstream.codec.compression import CODECS, Codec
from millstream.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    UnsupportedCompression,
)
from millstream.model import Buffer

HEADER_BYTES = 61
PREFIX_BYTES = 16  # Base offset, length and epoch, which a stamp replaces.
MAGIC = 2
SEQUENCE_MAX = 2**31 - 1
RECORD_BYTES_MIN = 7  # One byte each: length, attributes, two deltas, key, value, header count.

CODEC_BITS = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
SEALED = 0x4000  # Encrypted at rest; only in files, never on the wire.
_UNKNOWN_BITS = 0xFF80  # Of the attributes: no version of the format has given them a meaning.

_LENGTH_END = 12  # The length field counts the bytes behind itself.
_CHECKED_FROM = 21
_MAGIC_AT = 16
_CODEC_AT = 22  # The lower byte of the attributes.
_HEADER = Struct(">qiixIhiqqqhii")
_PREFIX = Struct(">qii")
_UNCHECKED = Struct(">qiibI")  # The prefix, the magic byte and the checksum.
_CHECKED = Struct(">hiqqqhii")

assert _HEADER.size == HEADER_BYTES
assert _UNCHECKED.size == _CHECKED_FROM
assert _CHECKED_FROM + _CHECKED.size == HEADER_BYTES


class Header(NamedTuple):
    """The header of one batch. A named tuple, because there is one per batch on the hot path."""

    base_offset: int
    size: int  # Of the whole batch, this header included.
    epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Hides tuple.count, which a header has no use for.

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """The codec of the records; `UnsupportedCompression` for bits that name none."""
        bits = self.attributes & CODEC_BITS
        if bits >= len(CODECS):
            raise UnsupportedCompression(f"there is no compression codec {bits}")
        return CODECS[bits]

    @property
    def has_log_append_time(self) -> bool:
        """Whether every record's timestamp is the batch's max timestamp, set by a broker."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp says when tombstones and markers may be dropped."""
        return self.attributes & DELETE_HORIZON != 0

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; after 2**31 - 1 comes 0. -1 if there are none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


def read_header(buffer: Buffer, at: int = 0) -> Header:
    """Read the header at `at`, unverified; the batch may reach beyond the buffer."""
    if len(buffer) - at < HEADER_BYTES:
        raise CorruptBatch(f"{len(buffer) - at} bytes, a batch has at least {HEADER_BYTES}")
    if buffer[at + _MAGIC_AT] != MAGIC:
        raise InvalidBatch(f"batch format {buffer[at + _MAGIC_AT]}, expected {MAGIC}")
    base_offset, length, *fields = _HEADER.unpack_from(buffer, at)
    if length < HEADER_BYTES - _LENGTH_END:
        raise CorruptBatch(f"batch length {length}, at least {HEADER_BYTES - _LENGTH_END}")
    return Header(base_offset, length + _LENGTH_END, *fields)


def is_compressed(buffer: Buffer) -> bool:
    """Of one batch, by its attributes alone."""
    return buffer[_CODEC_AT] & CODEC_BITS != 0


def verify_batch(buffer: Buffer, at: int = 0) -> Header:
    """Read the header at `at` and prove that the batch is whole and matches its checksum."""
    header = read_header(buffer, at)
    if at + header.size > len(buffer):
        raise CorruptBatch(f"batch of {header.size} bytes, {len(buffer) - at} are there")
    crc = crc32.iscsi(memoryview(buffer)[at + _CHECKED_FROM : at + header.size])
    if crc != header.crc:
        raise CorruptBatch(f"checksum {crc:#010x}, the batch says {header.crc:#010x}")
    if header.base_offset < 0:
        raise CorruptBatch(f"base offset {header.base_offset} is negative")
    # Compaction leaves fewer records than offsets, even none; never more.
    if not 0 <= header.count <= header.last_offset_delta + 1 or header.last_offset_delta < 0:
        raise InvalidBatch(f"{header.count} records, last offset delta {header.last_offset_delta}")
    return header


def verify_batches(buffer: Buffer) -> list[Header]:
    """Verify the consecutive whole batches that fill `buffer`, and return their headers."""
    view = memoryview(buffer)
    headers = []
    at = 0
    while at < len(view):
        header = verify_batch(view, at)
        headers.append(header)
        at += header.size
    return headers


def verify_produced(buffer: Buffer, *, size_max: int) -> Header:
    """Verify that `buffer` is one batch that a producer may send, by its header alone.

    The base offset does not matter, because it is stamped over. `records.verify_records` verifies
    the records.
    """
    if len(buffer) > size_max:
        raise BatchTooLarge(len(buffer), size_max)
    header = verify_batch(buffer)
    if header.size != len(buffer):
        raise InvalidBatch(f"one batch of {header.size} bytes expected, {len(buffer)} sent")
    if header.count == 0 or header.count != header.last_offset_delta + 1:
        raise InvalidBatch(f"{header.count} records, last offset delta {header.last_offset_delta}")
    is_plain = header.attributes & CODEC_BITS == 0
    if is_plain and header.count * RECORD_BYTES_MIN > header.size - HEADER_BYTES:
        raise InvalidBatch(f"{header.count} records in {header.size - HEADER_BYTES} bytes")
    if header.attributes & CODEC_BITS >= len(CODECS):
        raise UnsupportedCompression(
            f"there is no compression codec {header.attributes & CODEC_BITS}"
        )
    if header.attributes & (CONTROL | DELETE_HORIZON):
        raise InvalidBatch("control batches and delete horizons are the broker's to write")
    if header.attributes & _UNKNOWN_BITS:
        raise InvalidBatch(f"attributes {header.attributes & 0xFFFF:#06x} have unknown bits")
    if header.attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("log append time is the broker's to set")
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise InvalidBatch(
                f"producer {header.producer_id} at epoch {header.producer_epoch} "
                f"with sequence {header.base_sequence}: neither may be negative"
            )
    elif header.attributes & TRANSACTIONAL:
        raise InvalidBatch("a transactional batch needs a producer id")
    return header


def stamp(header: Header, *, base_offset: int, epoch: int) -> tuple[Header, bytes]:
    """Return the header with offset and epoch, and the bytes that replace its first 16."""
    assert base_offset >= 0
    assert epoch >= 0
    _, size, _, *fields = header
    prefix = _PREFIX.pack(base_offset, size - _LENGTH_END, epoch)
    return Header(base_offset, size, epoch, *fields), prefix


def stamp_time(buffer: Buffer, header: Header, now_ms: int) -> tuple[Header, bytes]:
    """Copy the batch with the broker's time as the timestamp of every record.

    Offset and epoch are those of `header`, so that it may be stamped before or after.
    """
    assert len(buffer) == header.size
    timed = header._replace(
        attributes=header.attributes | LOG_APPEND_TIME,
        max_timestamp=now_ms,
    )
    return seal(timed, memoryview(buffer)[HEADER_BYTES:])


def seal(header: Header, payload: Buffer) -> tuple[Header, bytes]:
    """Return the batch of `header` and `payload`, with the size and checksum of both."""
    base_offset, _, epoch, _, *fields = header
    return _sealed(base_offset, epoch, fields, payload)


def seal_plain(count: int, timestamp: int, payload: Buffer) -> tuple[Header, bytes]:
    """Return a batch of `count` uncompressed records, at offset 0 and without a producer."""
    return _sealed(0, 0, (0, count - 1, timestamp, timestamp, -1, -1, -1, count), payload)


def _sealed(
    base_offset: int, epoch: int, fields: Sequence[int], payload: Buffer
) -> tuple[Header, bytes]:
    """`fields` are those of a header that the checksum covers."""
    size = HEADER_BYTES + len(payload)
    checked = _CHECKED.pack(*fields)
    crc = crc32.iscsi(payload, crc32.iscsi(checked))
    head = _UNCHECKED.pack(base_offset, size - _LENGTH_END, epoch, MAGIC, crc)
    return Header(base_offset, size, epoch, crc, *fields), b"".join((head, checked, payload))
