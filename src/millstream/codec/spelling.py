"""Many small records into one batch, as fast as Python spells them.

Owns a second way to write a batch, for those who make batches of records that came one by one. It
spells what `records.build` spells when all records have the same time; a test compares the two.
The one thing to know: what messages share (their headers, most often their key) is spelled once.
Where that is known beforehand, in a `Mixture` of a few kinds, no Python is run for each of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TypeAlias, overload

from millstream.codec.batch import Header, seal
from millstream.codec.primitives import write_varint

RECORD_BYTES_OVERHEAD = 30  # More than the lengths and deltas of a record take.

_Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
# A record that has no place and no time yet: key, value, headers.
Message: TypeAlias = tuple[bytes | None, bytes | None, _Headers]


class Kind:
    """What messages share that differ in nothing but their values, which are of one size."""

    __slots__ = ("bytes_max", "headers", "key", "long_head", "middle", "short_head", "size", "tail")

    def __init__(self, key: bytes | None, size: int, headers: _Headers) -> None:
        self.key = key
        self.size = size
        self.headers = headers
        self.bytes_max = message_bytes_max((key, None, headers)) + size
        # Spelled: before the offset's delta, if that has one byte or two; up to the value; behind.
        self.middle = _field(key) + _varint(size)
        self.tail = _tail(headers)
        shared_size = _HEAD_BYTES + len(self.middle) + size + len(self.tail)
        self.short_head = _varint(shared_size + 1) + _HEAD
        self.long_head = _varint(shared_size + 2) + _HEAD


class Mixture(Sequence[Message]):
    """Messages of a few kinds, or of one: each has a value of the size that its kind says."""

    __slots__ = ("kinds", "values")

    def __init__(self, kinds: Sequence[Kind], values: Sequence[bytes]) -> None:
        assert len(kinds) == len(values)
        self.kinds = kinds
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> "Mixture": ...

    def __getitem__(self, index: int | slice) -> "Message | Mixture":
        if isinstance(index, slice):
            return Mixture(self.kinds[index], self.values[index])
        kind = self.kinds[index]
        return kind.key, self.values[index], kind.headers

    @property
    def is_run(self) -> bool:
        """Whether all are of one kind."""
        return self.kinds.count(self.kinds[0]) == len(self.kinds)


def pick(messages: Sequence[Message], indexes: Sequence[int]) -> Sequence[Message]:
    """Some messages in their order, or all of them."""
    if len(indexes) == len(messages):
        return messages
    if isinstance(messages, Mixture):
        kinds, values = messages.kinds, messages.values
        return Mixture([kinds[index] for index in indexes], [values[index] for index in indexes])
    return [messages[index] for index in indexes]


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


# Lengths and deltas are small: nearly all are found here.
_VARINTS = tuple(_varint(value) for value in range(8192))
_SHORT, _LONG = (0, 64), (64, 8192)  # Those of one byte, of two.
_NULL = _varint(-1)
_NO_HEADERS = _varint(0)
_HEAD = b"\0\0"  # Attributes, and the difference to the batch's time.
_HEAD_BYTES = len(_HEAD)

_SIZE_OF, _BYTES_MAX_OF = attrgetter("size"), attrgetter("bytes_max")
_SHORT_HEAD_OF, _LONG_HEAD_OF = attrgetter("short_head"), attrgetter("long_head")
_MIDDLE_OF, _TAIL_OF = attrgetter("middle"), attrgetter("tail")


def spell(messages: Sequence[Message], timestamp: int) -> bytes:
    """Spell a batch at offset 0 whose records all have that time, uncompressed."""
    if not isinstance(messages, Mixture) or len(messages) > len(_VARINTS):
        return spell_batch(messages, timestamp)
    parts = (_run_parts if messages.is_run else _mixed_parts)(messages.kinds, messages.values)
    return _sealed(len(messages), timestamp, parts)


def spell_batch(
    messages: Sequence[Message],
    timestamp: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Spell the same record by record: for messages that share little, or that a producer sent."""
    assert messages
    count = len(messages)
    varints = _VARINTS
    parts: list[bytes] = []
    last_key: bytes | None = None
    last_headers: _Headers = ()
    key_part, tail = _NULL, _NO_HEADERS
    shared_size = _HEAD_BYTES + len(key_part) + len(tail)
    # By identity: to hash headers takes longer than to spell them, and all are held by `messages`.
    spelled: dict[tuple[int, int], tuple[bytes, bytes, int]] = {}
    for delta, (key, value, headers) in enumerate(messages):
        if key is not last_key or headers is not last_headers:
            last_key, last_headers = key, headers
            known = spelled.get((id(key), id(headers)))
            if known is None:
                key_part, tail = _field(key), _tail(headers)
                known = key_part, tail, _HEAD_BYTES + len(key_part) + len(tail)
                spelled[id(key), id(headers)] = known
            key_part, tail, shared_size = known
        delta_part = varints[delta] if delta < 8192 else _varint(delta)
        if value is None:
            value, value_part = b"", _NULL
        else:
            size = len(value)
            value_part = varints[size] if size < 8192 else _varint(size)
        size = shared_size + len(delta_part) + len(value_part) + len(value)
        size_part = varints[size] if size < 8192 else _varint(size)
        parts += (size_part, _HEAD, delta_part, key_part, value_part, value, tail)
    return _sealed(count, timestamp, parts, producer_id, producer_epoch, base_sequence)


def _run_parts(kinds: Sequence[Kind], values: Sequence[bytes]) -> list[bytes]:
    """Those of messages of one kind."""
    kind = kinds[0]
    middle, tail = kind.middle, kind.tail
    assert set(map(len, values)) == {kind.size}
    parts: list[bytes] = []
    for start, stop, head in ((*_SHORT, kind.short_head), (*_LONG, kind.long_head)):
        # Between two values lies the same, as long as the offsets' deltas are of one length.
        deltas = _VARINTS[start : min(stop, len(values))]
        block = [tail + head] * (4 * len(deltas))
        block[1::4] = deltas
        block[2::4] = [middle] * len(deltas)
        block[3::4] = values[start : start + len(deltas)]
        if not start:
            block[0] = head
        parts += block
    parts.append(tail)
    return parts


def _mixed_parts(kinds: Sequence[Kind], values: Sequence[bytes]) -> list[bytes]:
    """The same for several kinds. No Python is run for each message: it would take most of it."""
    assert sum(map(len, values)) == sum(map(_SIZE_OF, kinds))
    heads = [*map(_SHORT_HEAD_OF, kinds[: _SHORT[1]]), *map(_LONG_HEAD_OF, kinds[_LONG[0] :])]
    parts = [b""] * (5 * len(values))
    parts[0::5] = heads
    parts[1::5] = _VARINTS[: len(values)]
    parts[2::5] = map(_MIDDLE_OF, kinds)
    parts[3::5] = values
    parts[4::5] = map(_TAIL_OF, kinds)
    return parts


def _sealed(
    count: int,
    timestamp: int,
    parts: list[bytes],
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    header = Header(
        base_offset=0,
        size=0,
        epoch=0,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=count,
    )
    return seal(header, b"".join(parts))[1]


def message_bytes_max(message: Message) -> int:
    """At most how many bytes a message takes in a batch."""
    key, value, headers = message
    size = RECORD_BYTES_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 4 * len(name) + len(content or b"") + 10
    return size


def sizes_max(messages: Sequence[Message]) -> Iterable[int]:
    """At most how many bytes each takes; neighbours that share their headers are cheap."""
    if isinstance(messages, Mixture):
        kinds = messages.kinds
        if messages.is_run:
            return repeat(kinds[0].bytes_max, len(kinds))
        return map(_BYTES_MAX_OF, kinds)
    return _sizes_max(messages)


def _sizes_max(messages: Sequence[Message]) -> Iterator[int]:
    shared = 0
    last_key: bytes | None = None
    last_headers: _Headers | None = None
    for key, value, headers in messages:
        if key is not last_key or headers is not last_headers:
            last_key, last_headers = key, headers
            shared = message_bytes_max((key, None, headers))
        yield shared + len(value) if value else shared


def _length(value: int) -> bytes:
    return _VARINTS[value] if value < len(_VARINTS) else _varint(value)


def _field(field: bytes | None) -> bytes:
    return _NULL if field is None else _length(len(field)) + field


def _tail(headers: _Headers) -> bytes:
    parts = [_length(len(headers))]
    for name, content in headers:
        parts += (_field(name.encode()), _field(content))
    return b"".join(parts)
