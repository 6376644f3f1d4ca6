"""The headers by which any client of any door asks for queue features, and how they are found.

Owns their names, the reading of their values, and the test whether a batch has any of them. That
test stands on the way of every batch, so it decodes nothing: it looks for the bytes of a name with
its length before it, as a record spells it. It may say yes for bytes that only look like a header;
it says no only if there is none. Pure.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple

import re2

from millstream.codec.batch import HEADER_BYTES, Header
from millstream.codec.compression import (
    Codec,
    decompress,
    decompress_small,
    unpacked_bytes_max,
)
from millstream.codec.lifetime import TTL_HEADER
from millstream.codec.picking import pick_stretches
from millstream.codec.records import Record
from millstream.cooperative import all_at_once
from millstream.errors import CorruptBatch, InvalidBatch
from millstream.model import Buffer

DELAY_MS = "ms-delay-ms"  # Deliver that long after it arrived.
DELIVER_AT = "ms-deliver-at"  # Deliver then, in milliseconds since 1970.
TTL_MS = TTL_HEADER  # Show it to nobody once it is that old.
MESSAGE_ID = "ms-message-id"  # Take it once.
SUBJECT = "ms-subject"

# What a dead letter says of the record that it was.
DLQ_TOPIC = "ms-dlq-topic"
DLQ_PARTITION = "ms-dlq-partition"
DLQ_OFFSET = "ms-dlq-offset"
DLQ_GROUP = "ms-dlq-group"
DLQ_ATTEMPTS = "ms-dlq-attempts"
DLQ_REASON = "ms-dlq-reason"
DLQ_ERROR = "ms-dlq-error"

MESSAGE_ID_BYTES_MAX = 256
NUMBER_DIGITS_MAX = 18

_ASKING = (DELAY_MS, DELIVER_AT, TTL_MS, MESSAGE_ID)
NEEDLE = b"ms-"  # Stands in every record that asks for something.
# Up to here one plain search costs less than calling the better one three times.
_SMALL_BYTES = 8 * 2**10


class Asked(NamedTuple):
    """What the records of a batch ask for, by their index in it."""

    due_ms: dict[int, int]  # Also what is due by now.
    message_ids: dict[int, bytes]
    has_ttl: bool
    records: dict[int, Record]  # Those that have a due time.


NOTHING_ASKED = Asked({}, {}, False, {})


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
    """The same within a millisecond or so; None for a batch that `unpack` must see on a thread."""
    packed = memoryview(data)[HEADER_BYTES : header.size]
    if header.codec is Codec.NONE or not header.count:
        return packed
    try:
        return decompress_small(header.codec, packed, size_max=bytes_max)
    except CorruptBatch as problem:
        raise _invalid(problem) from None


def search(payload: Buffer) -> Buffer | None:
    """The uncompressed records of an admitted batch, if they may ask for something."""
    if len(payload) <= _SMALL_BYTES and NEEDLE not in bytes(payload):
        return None
    return payload if any(find(payload) for find in _SEARCHES) else None


def read_batch(
    header: Header, payload: Buffer, *, now_ms: int, delay_ms_max: int
) -> Generator[None, None, Asked]:
    """Read what the records that `search` found ask for, in short steps."""
    stretches = pick_stretches(header, bytes(payload), NEEDLE)
    base_offset = header.base_offset
    numbered = ([(one.offset - base_offset, one) for one in some] for some in stretches)
    return _read(numbered, now_ms=now_ms, delay_ms_max=delay_ms_max)


def read_asked(records: Sequence[Record], *, now_ms: int, delay_ms_max: int) -> Asked:
    """Read the headers of all records; `InvalidBatch` for one that says nothing sensible."""
    return all_at_once(_read([enumerate(records)], now_ms=now_ms, delay_ms_max=delay_ms_max))


def message_id_of(record: Record) -> bytes | None:
    """The id of a record that is in a log; what was not read at its arrival is none."""
    for name, value in reversed(record.headers):
        if name == MESSAGE_ID:  # The last one, as `read_asked` has it.
            return value if value and len(value) <= MESSAGE_ID_BYTES_MAX else None
    return None


def when_due(record: Record, due_ms: int) -> Record:
    """A delayed record as it enters its topic: as if it had been sent when it was due.

    It says when that was in the header that asks for nothing any more: whoever copies the record to
    another topic does not delay it again.
    """
    headers = [header for header in record.headers if header[0] not in (DELAY_MS, DELIVER_AT)]
    headers.append((DELIVER_AT, b"%d" % due_ms))
    return record._replace(timestamp=due_ms, headers=tuple(headers))


def _invalid(problem: CorruptBatch) -> InvalidBatch:
    # Not `CorruptBatch`: that tells a producer to send the same bytes again.
    return InvalidBatch(f"the records of the batch cannot be unpacked: {problem}")


def _read(
    stretches: Iterable[Iterable[tuple[int, Record]]], *, now_ms: int, delay_ms_max: int
) -> Generator[None, None, Asked]:
    due_ms: dict[int, int] = {}
    message_ids: dict[int, bytes] = {}
    has_ttl = False
    delayed: dict[int, Record] = {}
    for stretch in stretches:
        for index, record in stretch:
            asked = {name: value for name, value in record.headers if name in _ASKING}
            if not asked:
                continue
            if DELAY_MS in asked or DELIVER_AT in asked:
                due_ms[index] = _due_ms(asked, index, now_ms=now_ms, delay_ms_max=delay_ms_max)
                delayed[index] = record
            if MESSAGE_ID in asked:
                message_ids[index] = _message_id(asked[MESSAGE_ID], index)
            if TTL_MS in asked:
                _number(TTL_MS, asked[TTL_MS], index)
                has_ttl = True
        yield
    return Asked(due_ms, message_ids, has_ttl, delayed)


def _due_ms(asked: dict[str, bytes | None], index: int, *, now_ms: int, delay_ms_max: int) -> int:
    due_ms = now_ms
    if DELAY_MS in asked:
        due_ms = now_ms + _number(DELAY_MS, asked[DELAY_MS], index)
    if DELIVER_AT in asked:
        if DELAY_MS in asked:
            raise InvalidBatch(f"record {index} has both {DELAY_MS} and {DELIVER_AT}")
        due_ms = _number(DELIVER_AT, asked[DELIVER_AT], index)
    if due_ms - now_ms > delay_ms_max:
        raise InvalidBatch(
            f"record {index} is to be delivered in {due_ms - now_ms} ms, "
            f"at most {delay_ms_max} (limits.deferred_ms_max) are allowed"
        )
    return due_ms


def _number(name: str, value: bytes | None, index: int) -> int:
    text = b"" if value is None else value
    if not text.isdigit() or len(text) > NUMBER_DIGITS_MAX:
        raise InvalidBatch(f"record {index} has {name} = {text[:40]!r}, which is no whole number")
    return int(text)


def _message_id(value: bytes | None, index: int) -> bytes:
    if not value or len(value) > MESSAGE_ID_BYTES_MAX:
        size = len(value or b"")
        raise InvalidBatch(
            f"record {index} has {MESSAGE_ID} of {size} bytes, 1 to {MESSAGE_ID_BYTES_MAX} expected"
        )
    return value


def _spelled(name: str) -> bytes:
    """A header's name as a record has it: the length comes first, as a zigzag varint."""
    assert len(name) < 64
    return bytes([2 * len(name)]) + name.encode()


def _searches() -> list[Callable[[Buffer], object]]:
    """One search for each first byte: RE2 skips ahead to it by memchr, if there is only one."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    by_first: dict[bytes, list[bytes]] = {}
    for name in _ASKING:
        spelled = _spelled(name)
        by_first.setdefault(spelled[:1], []).append(spelled[1:].removeprefix(NEEDLE))
    return [
        re2.compile(first + NEEDLE + b"(?:" + b"|".join(rests) + b")", options).search
        for first, rests in by_first.items()
    ]


_SEARCHES = _searches()
