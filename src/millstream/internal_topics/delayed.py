"""Record format of `__deferred`, where delayed records are stored until they are due.

Owns the keys, the values and their bytes. A null value removes a record: it was delivered or
cancelled. The fields that a fold needs are at fixed positions before the payload, so a million
records load without decoding a payload.
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple
from uuid import UUID

import msgspec

from millstream.model import LogId, Offset

ID_SEPARATOR = "~"  # Not in any topic's name.
NO_SEQUENCE = -1

_KEY_PREFIX = b"deferred\0"
_KEY_BYTES = len(_KEY_PREFIX) + 8
_VERSION = 0
_TOPIC_ID_BYTES = 16
# Version, due time, target, producer id and epoch and sequence, length of the message id.
_PREFIX = Struct(">Bq20sqhiH")


class Sender(NamedTuple):
    """Producer id, epoch and sequence of a record of an idempotent producer."""

    producer_id: int
    epoch: int
    sequence: int


NO_SENDER = Sender(-1, -1, NO_SEQUENCE)


class DelayedHeader(NamedTuple):
    """The fixed fields before the payload of a delayed record."""

    due_ms: int
    target: bytes  # As `encode_target` encodes it: a million objects would cost too much memory.
    sender: Sender = NO_SENDER
    message_id: bytes = b""


class Payload(msgspec.Struct, frozen=True, array_like=True):
    """The record to deliver. Later versions may add fields at the end."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode_key(number: Offset) -> bytes:
    """A delayed record is identified by its offset in `__deferred`."""
    return _KEY_PREFIX + number.to_bytes(8, "big")


def decode_key(key: bytes | None) -> Offset | None:
    if key is None or len(key) != _KEY_BYTES or not key.startswith(_KEY_PREFIX):
        return None
    return int.from_bytes(key[len(_KEY_PREFIX) :], "big")


def encode_target(target: LogId) -> bytes:
    return target.topic_id.bytes + target.partition.to_bytes(4, "big")


def decode_target(target: bytes) -> LogId:
    topic_id, partition = target[:_TOPIC_ID_BYTES], target[_TOPIC_ID_BYTES:]
    return LogId(UUID(bytes=topic_id), int.from_bytes(partition, "big"))


def encode_value(header: DelayedHeader, payload: Payload) -> bytes:
    prefix = _PREFIX.pack(
        _VERSION, header.due_ms, header.target, *header.sender, len(header.message_id)
    )
    return b"".join((prefix, header.message_id, _encoder.encode(payload)))


def decode_header(value: bytes) -> DelayedHeader | None:
    """The header of a value; None for an invalid value or a later version."""
    try:
        version, due_ms, target, *sender, length = _PREFIX.unpack_from(value)
    except struct_error:
        return None
    if version != _VERSION:
        return None
    known = NO_SENDER if sender[0] < 0 else Sender(*sender)
    message_id = value[_PREFIX.size : _PREFIX.size + length] if length else b""
    return DelayedHeader(due_ms, target, known, message_id)


def decode_payload(value: bytes) -> Payload:
    """The record itself; `msgspec.MsgspecError` for bytes that `encode_value` did not write."""
    length = _PREFIX.unpack_from(value)[-1]
    return _decoder.decode(memoryview(value)[_PREFIX.size + length :])


def id_text(topic: str, number: Offset) -> str:
    """The id of a delayed record that users see."""
    return f"{topic}{ID_SEPARATOR}{number}"


def read_id(text: str) -> tuple[str, Offset] | None:
    topic, separator, number = text.rpartition(ID_SEPARATOR)
    if not separator or not (number.isascii() and number.isdigit()) or len(number) > 18:
        return None
    return topic, int(number)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Payload)
