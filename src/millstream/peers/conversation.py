"""What one connection between nodes says after its greeting: messages, records in parts, calls.

`Speaker` makes frames of what is to be sent, `Listener` the reverse. Messages that belong to one
turn of the loop share a frame. Pure; a frame that breaks a rule is a `ProtocolError`, which ends
the connection and its link: nothing is lost in silence while a link is up.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct, error
from typing import TypeAlias

from millstream.errors import ProtocolError
from millstream.model import Buffer
from millstream.peers.messages import MessageReader, MessageWriter
from millstream.peers.wire import Kind, encode_frame
from millstream.raft.link_messages import GroupMessage, LinkMessage
from millstream.raft.messages import FetchReply

PART_BYTES_MAX = 2**20  # Of records in one frame.
STEADY_RECORDS_BYTES_MAX = 64 * 1024  # More records than this go the bulk way.
GROUPS_BYTES_MAX = 2**20  # Messages in one frame, if there are several.
CALL_BYTES_MAX = 4 * 2**20 - 1024  # Of the payload of a call or an answer.
METHOD_LENGTH_MAX = 100

_CALL = Struct(">QIB")  # Number, time left in ms, length of the method.
_ANSWER = Struct(">QB")  # Number, length of the error's kind; 0: no error.
_NUMBER = Struct(">Q")


@dataclass(frozen=True, slots=True)
class Call:
    number: int  # 0: no answer is expected.
    method: str
    time_left_ms: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    number: int
    error: str  # The kind of the error, "" for none; then the payload is its text.
    payload: bytes


@dataclass(frozen=True, slots=True)
class Cancel:
    """The answer to this call is no longer waited for."""

    number: int


Item: TypeAlias = LinkMessage | Call | Answer | Cancel


def record_bytes(item: Item) -> int:
    """How many bytes of records the item carries."""
    if not isinstance(item, GroupMessage) or not isinstance(item.message, FetchReply):
        return 0
    records = item.message.records
    return len(records) if isinstance(records, bytes) else 0


def is_bulky(item: Item) -> bool:
    """Whether the item would delay heartbeats."""
    return record_bytes(item) > STEADY_RECORDS_BYTES_MAX


class Speaker:
    """One direction of a connection, as its sender knows it."""

    def __init__(self) -> None:
        self._writer = MessageWriter()

    @property
    def is_full(self) -> bool:
        """Whether the connection has named as many replicas as it can: it has to begin anew."""
        return self._writer.is_full

    def encode(self, items: Iterable[Item]) -> Iterator[bytes]:
        """The frames of these items, in their order."""
        chunks: list[Buffer] = []
        size = 0
        for item in items:
            if isinstance(item, Call | Answer | Cancel):
                yield from _groups_frame(chunks)
                chunks, size = [], 0
                yield _encode_call(item)
                continue
            written = self._writer.write(item)
            length = sum(map(len, written))
            if chunks and size + length > GROUPS_BYTES_MAX:
                yield from _groups_frame(chunks)
                chunks, size = [], 0
            if length > GROUPS_BYTES_MAX:
                yield from _records_frames(b"".join(written))
            else:
                chunks += written
                size += length
        yield from _groups_frame(chunks)


def _groups_frame(chunks: list[Buffer]) -> Iterator[bytes]:
    if chunks:
        yield encode_frame(Kind.GROUPS, b"".join(chunks))


def _records_frames(data: bytes) -> Iterator[bytes]:
    view = memoryview(data)
    for at in range(0, len(data), PART_BYTES_MAX):
        part = view[at : at + PART_BYTES_MAX]
        is_last = at + PART_BYTES_MAX >= len(data)
        yield encode_frame(Kind.RECORDS, bytes([is_last]) + part)


def _encode_call(item: Call | Answer | Cancel) -> bytes:
    match item:
        case Call():
            method = item.method.encode()
            head = _CALL.pack(item.number, item.time_left_ms, len(method))
            return encode_frame(Kind.CALL, head + method + item.payload)
        case Answer():
            kind = item.error.encode()
            head = _ANSWER.pack(item.number, len(kind))
            return encode_frame(Kind.ANSWER, head + kind + item.payload)
        case Cancel():
            return encode_frame(Kind.CANCEL, _NUMBER.pack(item.number))


class Listener:
    """One direction of a connection, as its receiver knows it."""

    def __init__(self, *, message_bytes_max: int) -> None:
        """`message_bytes_max`: of one message whose records come in parts."""
        self._reader = MessageReader()
        self._bytes_max = message_bytes_max
        self._parts = bytearray()

    def receive(self, kind: Kind, payload: bytes) -> list[Item]:
        """The items of a frame; `ProtocolError` if it breaks a rule."""
        match kind:
            case Kind.GROUPS:
                return [*self._reader.read(payload)]
            case Kind.RECORDS:
                return [*self._receive_part(payload)]
            case Kind.CALL | Kind.ANSWER | Kind.CANCEL:
                return [_decode_call(kind, payload)]
            case Kind.REFUSED:
                raise ProtocolError(f"refused: {payload[:500].decode(errors='replace')}")
            case Kind.HELLO | Kind.PROOF:
                raise ProtocolError("a second greeting")

    def _receive_part(self, payload: bytes) -> list[LinkMessage]:
        if not payload or payload[0] > 1:
            raise ProtocolError("a part of records that does not say whether it is the last")
        if len(self._parts) + len(payload) > self._bytes_max:
            raise ProtocolError(f"a message of more than {self._bytes_max} bytes")
        self._parts += memoryview(payload)[1:]
        if not payload[0]:
            return []
        data, self._parts = bytes(self._parts), bytearray()
        return self._reader.read(data)


def _decode_call(kind: Kind, payload: bytes) -> Call | Answer | Cancel:
    try:
        if kind is Kind.CALL:
            number, time_left_ms, length = _CALL.unpack_from(payload)
            end = _CALL.size + length
            method = _word(payload, _CALL.size, end)
            return Call(number, method, time_left_ms, payload[end:])
        if kind is Kind.ANSWER:
            number, length = _ANSWER.unpack_from(payload)
            end = _ANSWER.size + length
            return Answer(number, _word(payload, _ANSWER.size, end), payload[end:])
        (number,) = _NUMBER.unpack(payload)
        return Cancel(number)
    except (error, UnicodeDecodeError) as problem:
        raise ProtocolError(f"a call that cannot be read: {problem}") from None


def _word(payload: bytes, start: int, end: int) -> str:
    if end > len(payload):
        raise ProtocolError("a call that ends too early")
    return payload[start:end].decode()
