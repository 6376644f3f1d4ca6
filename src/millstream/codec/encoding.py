"""Encodes records into a batch: `encode_batch` for any records, `encode_many` for many small ones.

`encode_many` takes messages that came one by one and get one timestamp. It encodes the shared
parts (headers, most often the key) once. Where those are known beforehand, in templates, no Python
runs for each message.

Invariant: `encode_many` returns the bytes that `encode_batch` returns; a test compares the two.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TypeAlias, overload

from millstream.codec.batch import CONTROL, TRANSACTIONAL, Header, seal, seal_plain
from millstream.codec.compression import Codec, compress
from millstream.codec.primitives import write_varint
from millstream.codec.records import Headers, Record, wrap_int64
from millstream.model import Buffer

RECORD_BYTES_OVERHEAD = 30  # More than the lengths and deltas of a record take.

# A record that has no offset and no timestamp yet: key, value, headers.
Message: TypeAlias = tuple[bytes | None, bytes | None, Headers]


class MessageTemplate:
    """Key, headers and value size that messages share; they differ only in their values."""

    __slots__ = ("bytes_max", "headers", "key", "long_head", "middle", "short_head", "size", "tail")

    def __init__(self, key: bytes | None, size: int, headers: Headers) -> None:
        self.key = key
        self.size = size
        self.headers = headers
        self.bytes_max = message_bytes_max((key, None, headers)) + size
        # Encoded: before an offset delta of one byte or of two; up to the value; behind it.
        self.middle = _field(key) + _varint(size)
        self.tail = _tail(headers)
        shared_size = _HEAD_BYTES + len(self.middle) + size + len(self.tail)
        self.short_head = _varint(shared_size + 1) + _HEAD
        self.long_head = _varint(shared_size + 2) + _HEAD


class TemplatedMessages(Sequence[Message]):
    """Messages by template and value; each value has the size that its template says."""

    __slots__ = ("templates", "values")

    def __init__(self, templates: Sequence[MessageTemplate], values: Sequence[bytes]) -> None:
        assert len(templates) == len(values)
        self.templates = templates
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> "TemplatedMessages": ...

    def __getitem__(self, index: int | slice) -> "Message | TemplatedMessages":
        if isinstance(index, slice):
            return TemplatedMessages(self.templates[index], self.values[index])
        template = self.templates[index]
        return template.key, self.values[index], template.headers

    @property
    def has_one_template(self) -> bool:
        return self.templates.count(self.templates[0]) == len(self.templates)


def select_messages(messages: Sequence[Message], indexes: Sequence[int]) -> Sequence[Message]:
    """The messages at `indexes`, in their order."""
    if len(indexes) == len(messages):
        return messages
    if isinstance(messages, TemplatedMessages):
        templates, values = messages.templates, messages.values
        return TemplatedMessages(
            [templates[index] for index in indexes], [values[index] for index in indexes]
        )
    return [messages[index] for index in indexes]


def encode_batch(
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
    """Encode a batch. Offsets are absolute, rise from `base_offset` on, and may leave gaps."""
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
        tail = _encode_from_offset_delta(record, base_offset)
        write_record(body, record.timestamp - base_timestamp, tail)
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


def encode_many(messages: Sequence[Message], timestamp: int) -> tuple[Header, bytes]:
    """Encode an uncompressed batch at offset 0 whose records all have `timestamp`; return its
    header with it."""
    count = len(messages)
    assert count > 0
    if not isinstance(messages, TemplatedMessages) or count > len(_VARINTS):
        parts = _message_parts(messages)
    elif messages.has_one_template:
        parts = _one_template_parts(messages.templates[0], messages.values)
    else:
        parts = _templated_parts(messages.templates, messages.values)
    return seal_plain(count, timestamp, b"".join(parts))


def encode_one(message: Message, timestamp: int) -> tuple[Header, bytes]:
    """The same of a single message, for half of the time."""
    key, value, headers = message
    tail = _tail(headers) if headers else _NO_HEADERS
    record = b"".join((_ONLY_HEAD, _field(key), _field(value), tail))
    return seal_plain(1, timestamp, _length(len(record)) + record)


def message_bytes_max(message: Message) -> int:
    """At most how many bytes a message takes in a batch."""
    key, value, headers = message
    size = RECORD_BYTES_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 4 * len(name) + len(content or b"") + 10
    return size


def message_sizes_max(messages: Sequence[Message]) -> Iterable[int]:
    """At most how many bytes each takes; neighbours that share their headers are cheap."""
    if isinstance(messages, TemplatedMessages):
        templates = messages.templates
        if messages.has_one_template:
            return repeat(templates[0].bytes_max, len(templates))
        return map(_BYTES_MAX_OF, templates)
    return _sizes_max(messages)


def write_record(body: bytearray, timestamp_delta: int, tail: Buffer) -> None:
    """Append a record; `tail` is its bytes from the offset delta on."""
    head = bytearray(_ATTRIBUTES)
    write_varint(head, wrap_int64(timestamp_delta))
    write_varint(body, len(head) + len(tail))
    body += head
    body += tail


# -- private ---------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_ATTRIBUTES = b"\0"  # A record's own attributes mean nothing in this format.
_SHORT, _LONG = (0, 64), (64, 8192)  # Varints of one byte, of two.
# Lengths and deltas are small: nearly all are in this table. It is put together from bytes, because
# 8,192 calls of `_varint` take 3 ms of every start.
_VARINTS = (
    *(bytes((2 * value,)) for value in range(*_SHORT)),
    *(bytes((2 * low | 0x80, high)) for high in range(1, 128) for low in range(*_SHORT)),
)
_NULL = _varint(-1)
_NO_HEADERS = _varint(0)
_HEAD = _ATTRIBUTES + b"\0"  # The second byte is the difference to the batch's timestamp.
_HEAD_BYTES = len(_HEAD)
_ONLY_HEAD = _HEAD + _varint(0)  # With the offset delta of the only record of a batch.

_SIZE_OF, _BYTES_MAX_OF = attrgetter("size"), attrgetter("bytes_max")
_SHORT_HEAD_OF, _LONG_HEAD_OF = attrgetter("short_head"), attrgetter("long_head")
_MIDDLE_OF, _TAIL_OF = attrgetter("middle"), attrgetter("tail")


def _message_parts(messages: Sequence[Message]) -> list[bytes]:
    """The bytes of the records, one by one: for messages that share little."""
    varints = _VARINTS
    parts: list[bytes] = []
    last_key: bytes | None = None
    last_headers: Headers = ()
    key_part, tail = _NULL, _NO_HEADERS
    shared_size = _HEAD_BYTES + len(key_part) + len(tail)
    # By identity: to hash headers takes longer than to encode them, and `messages` holds them all.
    encoded: dict[tuple[int, int], tuple[bytes, bytes, int]] = {}
    for delta, (key, value, headers) in enumerate(messages):
        if key is not last_key or headers is not last_headers:
            last_key, last_headers = key, headers
            known = encoded.get((id(key), id(headers)))
            if known is None:
                key_part, tail = _field(key), _tail(headers)
                known = key_part, tail, _HEAD_BYTES + len(key_part) + len(tail)
                encoded[id(key), id(headers)] = known
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
    return parts


def _one_template_parts(template: MessageTemplate, values: Sequence[bytes]) -> list[bytes]:
    middle, tail = template.middle, template.tail
    assert set(map(len, values)) == {template.size}
    parts: list[bytes] = []
    for start, stop, head in ((*_SHORT, template.short_head), (*_LONG, template.long_head)):
        # The bytes between two values are equal while the offset deltas are of one length.
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


def _templated_parts(templates: Sequence[MessageTemplate], values: Sequence[bytes]) -> list[bytes]:
    """The same for several templates. A Python loop over messages would take most of the time."""
    assert sum(map(len, values)) == sum(map(_SIZE_OF, templates))
    heads = [
        *map(_SHORT_HEAD_OF, templates[: _SHORT[1]]),
        *map(_LONG_HEAD_OF, templates[_LONG[0] :]),
    ]
    parts = [b""] * (5 * len(values))
    parts[0::5] = heads
    parts[1::5] = _VARINTS[: len(values)]
    parts[2::5] = map(_MIDDLE_OF, templates)
    parts[3::5] = values
    parts[4::5] = map(_TAIL_OF, templates)
    return parts


def _sizes_max(messages: Sequence[Message]) -> Iterator[int]:
    shared = 0
    last_key: bytes | None = None
    last_headers: Headers | None = None
    for key, value, headers in messages:
        if key is not last_key or headers is not last_headers:
            last_key, last_headers = key, headers
            shared = message_bytes_max((key, None, headers))
        yield shared + len(value) if value else shared


def _encode_from_offset_delta(record: Record, base_offset: int) -> bytearray:
    offset, _, key, value, headers = record
    out = bytearray()
    write_varint(out, offset - base_offset)
    _write_field(out, key)
    _write_field(out, value)
    write_varint(out, len(headers))
    for name, content in headers:
        _write_field(out, name.encode())
        _write_field(out, content)
    return out


def _write_field(out: bytearray, field: bytes | None) -> None:
    if field is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(field))
        out += field


def _length(value: int) -> bytes:
    return _VARINTS[value] if value < len(_VARINTS) else _varint(value)


def _field(field: bytes | None) -> bytes:
    return _NULL if field is None else _length(len(field)) + field


def _tail(headers: Headers) -> bytes:
    parts = [_length(len(headers))]
    for name, content in headers:
        parts += (_field(name.encode()), _field(content))
    return b"".join(parts)
