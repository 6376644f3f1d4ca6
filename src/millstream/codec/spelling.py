"""Many small records into one batch, as fast as Python spells them.

Owns a second way to write a batch, for those who make batches of records that came one by one. It
spells what `records.build` spells when all records have the same time; a test compares the two.
The one thing to know: what neighbours share (their headers, most often their key) is spelled once.
Where all of them share it and are of one size, a `Run`, no Python is run for each.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias, overload

from millstream.codec.batch import Header, seal
from millstream.codec.primitives import write_varint

RECORD_BYTES_OVERHEAD = 30  # More than the lengths and deltas of a record take.

_Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
# A record that has no place and no time yet: key, value, headers.
Message: TypeAlias = tuple[bytes | None, bytes | None, _Headers]


class Run(Sequence[Message]):
    """Messages that differ in their values only."""

    __slots__ = ("headers", "key", "values")

    def __init__(self, key: bytes | None, values: Sequence[bytes], headers: _Headers) -> None:
        self.key = key
        self.values = values
        self.headers = headers

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Message]:
        return iter([(self.key, value, self.headers) for value in self.values])

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> "Run": ...

    def __getitem__(self, index: int | slice) -> "Message | Run":
        if isinstance(index, slice):
            return Run(self.key, self.values[index], self.headers)
        return self.key, self.values[index], self.headers

    @property
    def bytes_max(self) -> int:
        """At most how many bytes they take in a batch."""
        shared = message_bytes_max((self.key, None, self.headers))
        return shared * len(self.values) + sum(map(len, self.values))


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


# Lengths and deltas are small: nearly all are found here.
_VARINTS = tuple(_varint(value) for value in range(8192))
_SAME_DELTA_BYTES = ((0, 64), (64, 8192))  # Of one byte, of two.
_NULL = _varint(-1)
_NO_HEADERS = _varint(0)
_HEAD = b"\0\0"  # Attributes, and the difference to the batch's time.
_HEAD_BYTES = len(_HEAD)


def spell_batch(
    messages: Sequence[Message],
    timestamp: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Spell a batch at offset 0 whose records all have that time, uncompressed."""
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


def spell_run(run: Run, timestamp: int) -> bytes:
    """Spell the same as `spell_batch` would, in a fraction of the time if the values are alike."""
    values = run.values
    count = len(values)
    sizes = set(map(len, values))
    if len(sizes) > 1 or count > len(_VARINTS):
        return spell_batch(run, timestamp)
    (size,) = sizes
    tail = _tail(run.headers)
    middle = _field(run.key) + _varint(size)
    shared_size = _HEAD_BYTES + len(middle) + size + len(tail)
    parts: list[bytes] = []
    for start, stop in _SAME_DELTA_BYTES:
        # Between two values lies the same, as long as the offsets' deltas are of one length.
        deltas = _VARINTS[start : min(stop, count)]
        if not deltas:
            break
        head = _varint(shared_size + len(deltas[0])) + _HEAD
        block = [tail + head] * (4 * len(deltas))
        block[1::4] = deltas
        block[2::4] = [middle] * len(deltas)
        block[3::4] = values[start : start + len(deltas)]
        if not start:
            block[0] = head
        parts += block
    parts.append(tail)
    return _sealed(count, timestamp, parts)


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


def _field(field: bytes | None) -> bytes:
    return _NULL if field is None else _varint(len(field)) + field


def _tail(headers: _Headers) -> bytes:
    parts = [_varint(len(headers))]
    for name, content in headers:
        parts += (_field(name.encode()), _field(content))
    return b"".join(parts)
