"""Frames of the classic protocol: a head of 32 bytes, properties as text, a body.

Pure: bytes to frames and back, for the broker and for its client. Both lengths stand in the head,
and a property is `name=value` with a zero byte behind it; so a name can hold neither of the two,
and a value no zero byte. `encodable` leaves out what cannot be encoded.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import partial
from struct import Struct
from typing import NamedTuple

from millstream.errors import ProtocolError
from millstream.framing import Cutter
from millstream.model import Buffer

HEAD = Struct(">IIQQII")
VERSION = "1.0"

_END = b"\0"


class Kind(IntEnum):
    DATA = 1
    ACK = 2
    HEARTBEAT = 3
    CREATE_TOPIC = 4
    CREATE_SUBSCRIPTION = 5
    DELETE_SUBSCRIPTION = 6
    SUBSCRIBE = 7
    UNSUBSCRIBE = 8
    PUBLISH = 9
    AUTHENTICATE = 10  # Ours: the original has no users.


class Frame(NamedTuple):
    kind: int  # Not every number is a `Kind`.
    sequence: int
    timestamp_ms: int
    properties: Mapping[str, str]
    body: bytes = b""


class InvalidProperties(ProtocolError):
    """The frame ends where it should, so the conversation can go on."""

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(f"invalid properties: {why}")
        self.sequence = sequence


class Frames:
    """Cuts a stream into frames that are not decoded yet."""

    def __init__(self, *, frame_bytes_max: int) -> None:
        self._cutter = Cutter(HEAD.size, partial(_measure, frame_bytes_max))

    def allow(self, frame_bytes_max: int) -> None:
        """Take frames up to another size from here on."""
        self._cutter.remeasure(partial(_measure, frame_bytes_max))

    def feed(self, data: Buffer) -> Iterator[memoryview]:
        return self._cutter.feed(data)


def decode(frame: Buffer) -> Frame:
    """Read a whole frame; raises `InvalidProperties` if only those are wrong."""
    _, kind, sequence, timestamp_ms, properties_bytes, _ = HEAD.unpack_from(frame)
    middle = HEAD.size + properties_bytes
    properties = _read_properties(bytes(frame[HEAD.size : middle]), sequence)
    return Frame(kind, sequence, timestamp_ms, properties, bytes(frame[middle:]))


def encode(frame: Frame) -> bytes:
    """Encode a frame, with the properties of every frame: its time and the version.

    Every property must be `encodable`.
    """
    stamped = {
        **frame.properties,
        "created_at": f"{frame.timestamp_ms / 1000:.3f}",
        "version": VERSION,
    }
    text = "".join(f"{name}={value}\0" for name, value in stamped.items()).encode()
    size = HEAD.size + len(text) + len(frame.body)
    head = HEAD.pack(
        size, frame.kind, frame.sequence, frame.timestamp_ms, len(text), len(frame.body)
    )
    return b"".join((head, text, frame.body))


def encodable(name: str, value: str) -> bool:
    """Whether a property of that name and value can be sent."""
    return bool(name) and "=" not in name and "\0" not in name and "\0" not in value


def _measure(frame_bytes_max: int, head: Buffer) -> int:
    size, _, _, _, properties_bytes, body_bytes = HEAD.unpack(head)
    if size != HEAD.size + properties_bytes + body_bytes:
        raise ProtocolError(f"a frame of {size} bytes whose parts do not add up to it")
    if size > frame_bytes_max:
        raise ProtocolError(f"a frame of {size} bytes, at most {frame_bytes_max}")
    return int(size)


def _read_properties(data: bytes, sequence: int) -> dict[str, str]:
    if not data:
        return {}
    try:
        # The original does not mind if the last one has no end.
        text = data.removesuffix(_END).decode()
    except UnicodeDecodeError:
        raise InvalidProperties(sequence, "not UTF-8") from None
    properties = {}
    for pair in text.split("\0"):
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise InvalidProperties(sequence, f"{pair[:80]!r} is not name=value")
        properties[name] = value
    return properties
