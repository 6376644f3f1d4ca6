"""Reads the record headers that set queue options: delay, time to live, message id.

Owns the parsing of their values, and the test whether a batch has any of them (`names` has their
names). The test runs for every batch, so it decodes nothing: it searches for the bytes of a name
with its length before it, as in an encoded record. It may say yes for bytes that only look like a
header; it says no only if there is none. Pure.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import cache
from typing import NamedTuple

from millstream.codec.batch import HEADER_BYTES, Header
from millstream.codec.compression import (
    Codec,
    decompress,
    decompress_small,
    unpacked_bytes_max,
)
from millstream.codec.records import Record, decode_containing
from millstream.config import Limits
from millstream.cooperative import all_at_once
from millstream.errors import CorruptBatch, DelayTooLong, InvalidBatch
from millstream.model import Buffer
from millstream.names import (
    DELAY_HEADER,
    DELIVER_AT_HEADER,
    HEADER_PREFIX,
    MESSAGE_ID_HEADER,
    OPTION_HEADERS,
    TTL_HEADER,
)

MESSAGE_ID_BYTES_MAX = 256
NUMBER_DIGITS_MAX = 18
NUMBER_MAX = 10**NUMBER_DIGITS_MAX - 1

ENCODED_PREFIX = HEADER_PREFIX.encode()  # In every record that has options.
# Up to here one plain search costs less than three calls of RE2.
_SMALL_BYTES = 8 * 2**10
_TINY_BYTES = 2**10  # Up to here a plain search for each name does.


class QueueOptions(NamedTuple):
    """The options of a batch's records, by their index in it."""

    due_ms: dict[int, int]  # Also due times in the past.
    message_ids: dict[int, bytes]
    has_ttl: bool
    records: dict[int, Record]  # The records that have a due time.


def unpack(data: Buffer, header: Header, *, bytes_max: int) -> Buffer:
    """The uncompressed records of a batch whose checksum is right.

    Raises `UnpackedTooLarge`, or `InvalidBatch` for bytes that its codec did not write.
    """
    packed = memoryview(data)[HEADER_BYTES : header.size]
    if header.codec is Codec.NONE or not header.count:
        return packed
    try:
        size_max = unpacked_bytes_max(len(packed), bytes_max)
        return decompress(header.codec, packed, size_max=size_max)
    except CorruptBatch as problem:
        raise _invalid(problem) from None


def unpack_small(data: Buffer, header: Header, *, bytes_max: int) -> Buffer | None:
    """The same within a millisecond or so; None for a batch that `unpack` must take on a thread."""
    packed = memoryview(data)[HEADER_BYTES : header.size]
    if header.codec is Codec.NONE or not header.count:
        return packed
    try:
        return decompress_small(header.codec, packed, size_max=bytes_max)
    except CorruptBatch as problem:
        raise _invalid(problem) from None


def search(data: Buffer, start: int = 0) -> Buffer | None:
    """The uncompressed records of an admitted batch, `data` from `start` on, if they may have
    options."""
    if len(data) <= _SMALL_BYTES and bytes(data).find(ENCODED_PREFIX, start) < 0:
        return None
    payload = memoryview(data)[start:]
    if len(data) <= _TINY_BYTES:
        tiny = bytes(payload)
        for name in _NAMES:
            if name in tiny:
                return payload
        return None
    try:
        searches = _searches()
    except (ImportError, OSError):  # No descriptor or memory is left to load the library with.
        return payload if ENCODED_PREFIX in bytes(payload) else None
    for find in searches:
        if find(payload):
            return payload
    return None


def read_batch(
    header: Header, payload: Buffer, *, now_ms: int, limits: Limits
) -> Generator[None, None, QueueOptions]:
    """Read the options from the records that `search` returned, in short steps."""
    chunks = decode_containing(header, bytes(payload), ENCODED_PREFIX)
    base_offset = header.base_offset
    numbered = ([(record.offset - base_offset, record) for record in chunk] for chunk in chunks)
    return _read(numbered, now_ms=now_ms, limits=limits)


def read_options(records: Sequence[Record], *, now_ms: int, limits: Limits) -> QueueOptions:
    """Read the headers of all records; raises `InvalidBatch` for an invalid value."""
    return all_at_once(_read([enumerate(records)], now_ms=now_ms, limits=limits))


def check_headers(
    headers: tuple[tuple[str, bytes | None], ...], *, now_ms: int, limits: Limits
) -> None:
    """Raise `InvalidBatch` for a message that would have its whole batch refused.

    For protocols that put messages of several clients into one batch.
    """
    read_options([Record(0, 0, None, None, headers)], now_ms=now_ms, limits=limits)


def message_id_of(record: Record) -> bytes | None:
    """The message id of a record in a log; None if it is invalid: it did not count on produce."""
    for name, value in reversed(record.headers):
        if name == MESSAGE_ID_HEADER:  # The last one, as `read_options` has it.
            return value if value and len(value) <= MESSAGE_ID_BYTES_MAX else None
    return None


def when_due(record: Record, due_ms: int) -> Record:
    """A delayed record as it is written to its topic: as if it had been sent when it was due.

    The header of the due time stays. It is in the past, so a copy of the record to another topic is
    not delayed again.
    """
    headers = [
        header for header in record.headers if header[0] not in (DELAY_HEADER, DELIVER_AT_HEADER)
    ]
    headers.append((DELIVER_AT_HEADER, b"%d" % due_ms))
    return record._replace(timestamp=due_ms, headers=tuple(headers))


def _invalid(problem: CorruptBatch) -> InvalidBatch:
    # Not `CorruptBatch`: that makes a producer send the same bytes again.
    return InvalidBatch(f"the records of the batch cannot be unpacked: {problem}")


def _read(
    chunks: Iterable[Iterable[tuple[int, Record]]], *, now_ms: int, limits: Limits
) -> Generator[None, None, QueueOptions]:
    due_ms: dict[int, int] = {}
    message_ids: dict[int, bytes] = {}
    has_ttl = False
    delayed: dict[int, Record] = {}
    for stretch in chunks:
        for index, record in stretch:
            headers = {name: value for name, value in record.headers if name in OPTION_HEADERS}
            if not headers:
                continue
            if DELAY_HEADER in headers or DELIVER_AT_HEADER in headers:
                due_ms[index] = _due_ms(headers, index, now_ms=now_ms, limits=limits)
                delayed[index] = record
            if MESSAGE_ID_HEADER in headers:
                message_ids[index] = _message_id(headers[MESSAGE_ID_HEADER], index)
            if TTL_HEADER in headers:
                _number(TTL_HEADER, headers[TTL_HEADER], index)
                has_ttl = True
        yield
    return QueueOptions(due_ms, message_ids, has_ttl, delayed)


def _due_ms(headers: dict[str, bytes | None], index: int, *, now_ms: int, limits: Limits) -> int:
    due_ms = now_ms
    if DELAY_HEADER in headers:
        due_ms = now_ms + _number(DELAY_HEADER, headers[DELAY_HEADER], index)
    if DELIVER_AT_HEADER in headers:
        if DELAY_HEADER in headers:
            raise InvalidBatch(f"record {index} has both {DELAY_HEADER} and {DELIVER_AT_HEADER}")
        due_ms = _number(DELIVER_AT_HEADER, headers[DELIVER_AT_HEADER], index)
    if due_ms - now_ms > limits.delay_ms_max:
        raise DelayTooLong(index, due_ms - now_ms, limits.delay_ms_max)
    return due_ms


def _number(name: str, value: bytes | None, index: int) -> int:
    text = b"" if value is None else value
    if not text.isdigit():
        raise InvalidBatch(f"record {index} has {name} = {text[:40]!r}, which is no whole number")
    if len(text) > NUMBER_DIGITS_MAX:
        raise InvalidBatch(
            f"record {index} has {name} = {text[:40].decode()}, at most {NUMBER_MAX} is allowed"
        )
    return int(text)


def _message_id(value: bytes | None, index: int) -> bytes:
    if not value or len(value) > MESSAGE_ID_BYTES_MAX:
        size = len(value or b"")
        raise InvalidBatch(
            f"record {index} has {MESSAGE_ID_HEADER} of {size} bytes, "
            f"1 to {MESSAGE_ID_BYTES_MAX} expected"
        )
    return value


def _encoded_name(name: str) -> bytes:
    """A header's name as encoded in a record: its length first, as a zigzag varint."""
    assert len(name) < 64
    return bytes([2 * len(name)]) + name.encode()


_NAMES = [_encoded_name(name) for name in OPTION_HEADERS]


@cache
def _searches() -> list[Callable[[Buffer], object]]:
    """One search for each first byte: RE2 skips ahead to it by memchr, if there is only one."""
    import re2  # 2.4 MB of memory, for the first batch that is not small.

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    by_first: dict[bytes, list[bytes]] = {}
    for name in OPTION_HEADERS:
        encoded = _encoded_name(name)
        by_first.setdefault(encoded[:1], []).append(encoded[1:].removeprefix(ENCODED_PREFIX))
    return [
        re2.compile(first + ENCODED_PREFIX + b"(?:" + b"|".join(rests) + b")", options).search
        for first, rests in by_first.items()
    ]
