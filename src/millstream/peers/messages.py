"""Messages of peer links as bytes.

A message names its log and its two replicas by an alias, which a `NAME` entry before it explains:
each direction of a connection has aliases of its own. Pure; bytes that make no message are a
`ProtocolError`.

Invariant: what `MessageReader` reads equals what `MessageWriter` was given.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from struct import Struct, error
from typing import Any, NamedTuple, assert_never
from uuid import UUID

from millstream.errors import ProtocolError
from millstream.model import Boundary, Buffer, Epoch, LogId, Position, ReplicaId
from millstream.raft.link_messages import (
    GroupMessage,
    Heartbeat,
    Left,
    LinkMessage,
    PositionsSent,
)
from millstream.raft.messages import (
    Alive,
    Diverged,
    Fetch,
    FetchReply,
    Hint,
    Lead,
    Message,
    PreVote,
    PreVoteGranted,
    Reset,
    TakeOver,
    Vote,
    VoteGranted,
)

ALIASES_MAX = 200_000  # Pairs of replicas that one connection names.
VOTERS_MAX = 1_000
BOUNDARIES_MAX = 1_000_000
_NO_LEADER = 2**64 - 1


class _Entry(IntEnum):
    NAME = 1
    HEARTBEAT = 2
    LEFT = 3
    POSITIONS_SENT = 4
    PRE_VOTE = 16
    PRE_VOTE_GRANTED = 17
    VOTE = 18
    VOTE_GRANTED = 19
    LEAD = 20
    ALIVE = 21
    FETCH = 22
    FETCH_REPLY = 23
    DIVERGED = 24
    RESET = 25
    HINT = 26
    TAKE_OVER = 27


_NAME = Struct(">BI16sIQQ")
_HEARTBEAT = Struct(">BQQ?")
_LEFT = Struct(">B16sIQQ")
_GROUP = Struct(">BIQ")  # Entry, alias, epoch of the sender.
_U32 = Struct(">I")
_U64 = Struct(">Q")
_POSITION = Struct(">QQ")
_FETCH = Struct(">QQQ")
_TWO_POSITIONS = Struct(">QQQQ")
_BOUNDARY = Struct(">QQI")

_EMPTY: dict[type[Message], _Entry] = {
    PreVoteGranted: _Entry.PRE_VOTE_GRANTED,
    VoteGranted: _Entry.VOTE_GRANTED,
    Lead: _Entry.LEAD,
    Alive: _Entry.ALIVE,
    TakeOver: _Entry.TAKE_OVER,
}
_EMPTY_KINDS: dict[int, Callable[[Epoch], Message]] = {
    _Entry.PRE_VOTE_GRANTED: PreVoteGranted,
    _Entry.VOTE_GRANTED: VoteGranted,
    _Entry.LEAD: Lead,
    _Entry.ALIVE: Alive,
    _Entry.TAKE_OVER: TakeOver,
}


class _Route(NamedTuple):
    """The replicas that a message goes between."""

    log: LogId
    sender: ReplicaId
    receiver: ReplicaId


class MessageWriter:
    """Writes the messages of one direction of a connection."""

    def __init__(self) -> None:
        self._aliases: dict[_Route, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether no further pair of replicas can be named: the link has to begin anew."""
        return len(self._aliases) >= ALIASES_MAX

    def write(self, message: LinkMessage) -> list[Buffer]:
        match message:
            case GroupMessage():
                return self._write_group(message)
            case Heartbeat(number, echo, wants_echo):
                return [_HEARTBEAT.pack(_Entry.HEARTBEAT, number, echo, wants_echo)]
            case Left((topic_id, partition), replica, epoch):
                return [_LEFT.pack(_Entry.LEFT, topic_id.bytes, partition, replica, epoch)]
            case PositionsSent():
                return [bytes([_Entry.POSITIONS_SENT])]
            case _:
                assert_never(message)

    def _write_group(self, item: GroupMessage) -> list[Buffer]:
        route = _Route(item.log, item.sender, item.receiver)
        chunks: list[Buffer] = []
        alias = self._aliases.get(route)
        if alias is None:
            alias = self._aliases[route] = len(self._aliases)
            topic_id, partition = item.log
            chunks.append(
                _NAME.pack(
                    _Entry.NAME, alias, topic_id.bytes, partition, item.sender, item.receiver
                )
            )
        entry, body = _encode_body(item.message)
        chunks.append(_GROUP.pack(entry, alias, item.message.epoch))
        chunks += body
        return chunks


def _encode_body(message: Message) -> tuple[_Entry, Sequence[Buffer]]:
    match message:
        case PreVote():
            return _Entry.PRE_VOTE, [_POSITION.pack(*message.last)]
        case Vote():
            return _Entry.VOTE, [_POSITION.pack(*message.last)]
        case Fetch():
            return _Entry.FETCH, [_FETCH.pack(*message.position, message.high_watermark)]
        case Diverged():
            return _Entry.DIVERGED, [_TWO_POSITIONS.pack(*message.base, *message.end)]
        case Hint():
            leader = _NO_LEADER if message.leader is None else message.leader
            return _Entry.HINT, [_U64.pack(leader)]
        case Reset():
            head = _FETCH.pack(*message.base, message.start_offset)
            return _Entry.RESET, [head, _encode_boundaries(message.boundaries)]
        case FetchReply():
            records = message.records
            assert isinstance(records, bytes)
            head = _TWO_POSITIONS.pack(*message.base, message.high_watermark, message.start_offset)
            boundaries = _encode_boundaries(message.boundaries)
            return _Entry.FETCH_REPLY, [head, boundaries, _U32.pack(len(records)), records]
        case PreVoteGranted() | VoteGranted() | Lead() | Alive() | TakeOver():
            return _EMPTY[type(message)], []
        case _:
            assert_never(message)


def _encode_boundaries(boundaries: Sequence[Boundary]) -> bytes:
    parts = [_U32.pack(len(boundaries))]
    for epoch, start_offset, voters in boundaries:
        parts.append(_BOUNDARY.pack(epoch, start_offset, len(voters)))
        parts += [_U64.pack(voter) for voter in sorted(voters)]
    return b"".join(parts)


class MessageReader:
    """Reads the messages of one direction of a connection."""

    def __init__(self) -> None:
        self._routes: list[_Route] = []

    def read(self, data: bytes) -> list[LinkMessage]:
        """All messages of a frame; `ProtocolError` if it does not hold whole messages."""
        cursor = _Cursor(data)
        messages: list[LinkMessage] = []
        try:
            while not cursor.is_at_end:
                message = self._read_entry(cursor)
                if message is not None:
                    messages.append(message)
        except (error, ValueError) as problem:
            raise ProtocolError(f"a message that ends too early or is none: {problem}") from None
        return messages

    def _read_entry(self, cursor: "_Cursor") -> LinkMessage | None:
        entry = cursor.peek()
        if entry == _Entry.NAME:
            _, alias, topic_id, partition, sender, receiver = cursor.take(_NAME)
            if alias != len(self._routes) or alias >= ALIASES_MAX:
                raise ProtocolError(f"the alias {alias} out of order")
            log = LogId(UUID(bytes=topic_id), partition)
            self._routes.append(_Route(log, ReplicaId(sender), ReplicaId(receiver)))
            return None
        if entry == _Entry.HEARTBEAT:
            _, number, echo, wants_echo = cursor.take(_HEARTBEAT)
            return Heartbeat(number, echo, wants_echo)
        if entry == _Entry.LEFT:
            _, topic_id, partition, replica, epoch = cursor.take(_LEFT)
            return Left(LogId(UUID(bytes=topic_id), partition), ReplicaId(replica), Epoch(epoch))
        if entry == _Entry.POSITIONS_SENT:
            cursor.skip(1)
            return PositionsSent()
        _, alias, epoch = cursor.take(_GROUP)
        if alias >= len(self._routes):
            raise ProtocolError(f"the alias {alias} names nothing")
        message = _decode_body(entry, Epoch(epoch), cursor)
        log, sender, receiver = self._routes[alias]
        return GroupMessage(log, sender, receiver, message)


def _decode_body(entry: int, epoch: Epoch, cursor: "_Cursor") -> Message:
    empty = _EMPTY_KINDS.get(entry)
    if empty is not None:
        return empty(epoch)
    match entry:
        case _Entry.PRE_VOTE:
            return PreVote(epoch, cursor.position())
        case _Entry.VOTE:
            return Vote(epoch, cursor.position())
        case _Entry.FETCH:
            return Fetch(epoch, cursor.position(), *cursor.take(_U64))
        case _Entry.DIVERGED:
            return Diverged(epoch, cursor.position(), cursor.position())
        case _Entry.HINT:
            (leader,) = cursor.take(_U64)
            return Hint(epoch, None if leader == _NO_LEADER else ReplicaId(leader))
        case _Entry.RESET:
            base = cursor.position()
            (start_offset,) = cursor.take(_U64)
            boundaries = cursor.boundaries()
            if not boundaries:
                raise ProtocolError("a reset without an epoch")
            return Reset(epoch, base, start_offset, boundaries)
        case _Entry.FETCH_REPLY:
            base = cursor.position()
            high_watermark, start_offset = cursor.take(_POSITION)
            boundaries = cursor.boundaries()
            (length,) = cursor.take(_U32)
            return FetchReply(
                epoch=epoch,
                base=base,
                boundaries=boundaries,
                records=cursor.bytes(length),
                high_watermark=high_watermark,
                start_offset=start_offset,
            )
    raise ProtocolError(f"the unknown message {entry}")


class _Cursor:
    """Reads values of a frame, one after the other; `error` at its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def peek(self) -> int:
        return self._data[self._at]

    def skip(self, size: int) -> None:
        self._at += size

    def take(self, layout: Struct) -> tuple[Any, ...]:  # Any: as `struct` has it.
        values = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return values

    def position(self) -> Position:
        epoch, end_offset = self.take(_POSITION)
        return Position(Epoch(epoch), end_offset)

    def bytes(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise ValueError(f"{length} bytes of records are not there")
        data = self._data[self._at : end]
        self._at = end
        return data

    def boundaries(self) -> tuple[Boundary, ...]:
        (count,) = self.take(_U32)
        if count > BOUNDARIES_MAX:
            raise ValueError(f"{count} boundaries")
        return tuple(self._boundary() for _ in range(count))

    def _boundary(self) -> Boundary:
        epoch, start_offset, count = self.take(_BOUNDARY)
        if count > VOTERS_MAX:
            raise ValueError(f"{count} voters")
        voters = frozenset(ReplicaId(*self.take(_U64)) for _ in range(count))
        return Boundary(Epoch(epoch), start_offset, voters)
