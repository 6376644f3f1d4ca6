"""Encodes, decodes and checks the entries of the journal.

Owns the layout, not the meaning; pure functions of bytes. An entry is length, CRC-32C, payload. The
checksum also covers the entry's position, so that no bytes pass for an entry at a position where
none was written. A payload is a byte for the kind, then the log's id, then the fields of the kind.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, TypeAlias, assert_never
from uuid import UUID

from fastcrc import crc32

from millstream.model import Boundary, Epoch, HardState, LogId, Offset

FILE_HEADER = b"millstream journal 1\n"
PAYLOAD_BYTES_MAX = 2**24

_FRAME = struct.Struct(">II")
_POSITION = struct.Struct(">Q")
_LOG = struct.Struct(">B16sI")
_VOTE = struct.Struct(">Ii")
_EPOCH = struct.Struct(">I")
_OFFSET = struct.Struct(">q")
_NODE = struct.Struct(">i")
_BOUNDARY = struct.Struct(">IqH")
_MARK = struct.Struct(">BQ")

_NO_VOTE = -1


class Voted(NamedTuple):
    log: LogId
    hard_state: HardState


class Opened(NamedTuple):
    log: LogId
    boundary: Boundary


class Cut(NamedTuple):
    log: LogId
    epoch: Epoch


class Moved(NamedTuple):
    log: LogId
    start_offset: Offset


class Reset(NamedTuple):
    log: LogId
    start_offset: Offset
    boundaries: tuple[Boundary, ...]


class Forgotten(NamedTuple):
    log: LogId


class Mark(NamedTuple):
    """Everything in front of `durable_end` was on the disk when this was written."""

    durable_end: int


Event: TypeAlias = Voted | Opened | Cut | Moved | Reset | Forgotten


class _Kind(IntEnum):
    MARK = 0
    VOTED = 1
    OPENED = 2
    CUT = 3
    MOVED = 4
    RESET = 5
    FORGOTTEN = 6


def frame(payload: bytes, at: int) -> bytes:
    """Make an entry for the position `at` of the file."""
    assert 0 < len(payload) <= PAYLOAD_BYTES_MAX
    return _FRAME.pack(len(payload), _checksum(payload, at)) + payload


def read_frame(data: bytes, at: int) -> tuple[bytes, int] | None:
    """Return the payload of the entry at `at` and where it ends; None if none is whole there."""
    start = at + _FRAME.size
    if start > len(data):
        return None
    size, crc = _FRAME.unpack_from(data, at)
    end = start + size
    if not 0 < size <= PAYLOAD_BYTES_MAX or end > len(data):
        return None
    payload = data[start:end]
    return (payload, end) if _checksum(payload, at) == crc else None


def marks_behind(data: bytes, at: int) -> Iterator[Mark]:
    """Find every valid mark from `at` on, also behind bytes that are no entries at all."""
    length = _FRAME.pack(_MARK.size, 0)[:4]
    while (at := data.find(length, at)) >= 0:
        framed = read_frame(data, at)
        if framed is not None:
            payload, _ = framed
            if payload[0] == _Kind.MARK:
                yield Mark(_MARK.unpack(payload)[1])
        at += 1


def encode(event: Event | Mark) -> bytes:
    match event:
        case Voted():
            epoch, voted_for = event.hard_state
            vote = _VOTE.pack(epoch, _NO_VOTE if voted_for is None else voted_for)
            return _encode_log(_Kind.VOTED, event.log) + vote
        case Opened():
            return _encode_log(_Kind.OPENED, event.log) + _encode_boundary(event.boundary)
        case Cut():
            return _encode_log(_Kind.CUT, event.log) + _EPOCH.pack(event.epoch)
        case Moved():
            return _encode_log(_Kind.MOVED, event.log) + _OFFSET.pack(event.start_offset)
        case Reset():
            head = _encode_log(_Kind.RESET, event.log) + _OFFSET.pack(event.start_offset)
            return head + b"".join(map(_encode_boundary, event.boundaries))
        case Forgotten():
            return _encode_log(_Kind.FORGOTTEN, event.log)
        case Mark():
            return _MARK.pack(_Kind.MARK, event.durable_end)
        case _:
            assert_never(event)


def decode(payload: bytes, logs: dict[bytes, LogId]) -> Event | Mark:
    """Read what `encode` wrote; `ValueError` for anything else.

    `logs` collects the ids met so far: making one costs as much as all else.
    """
    try:
        return _decode(payload, logs)
    except struct.error as problem:
        raise ValueError(f"an entry of {len(payload)} bytes is too short: {problem}") from None


def _decode(payload: bytes, logs: dict[bytes, LogId]) -> Event | Mark:
    kind = payload[0]
    if kind == _Kind.MARK:
        return Mark(_MARK.unpack(payload)[1])
    log = _decode_log(payload, logs)
    at = _LOG.size
    if kind == _Kind.VOTED:
        epoch, voted_for = _VOTE.unpack_from(payload, at)
        return Voted(log, HardState(epoch, None if voted_for == _NO_VOTE else voted_for))
    if kind == _Kind.OPENED:
        return Opened(log, _decode_boundary(payload, at)[0])
    if kind == _Kind.CUT:
        return Cut(log, *_EPOCH.unpack_from(payload, at))
    if kind == _Kind.MOVED:
        return Moved(log, *_OFFSET.unpack_from(payload, at))
    if kind == _Kind.RESET:
        (start_offset,) = _OFFSET.unpack_from(payload, at)
        at += _OFFSET.size
        boundaries = []
        while at < len(payload):
            boundary, at = _decode_boundary(payload, at)
            boundaries.append(boundary)
        return Reset(log, start_offset, tuple(boundaries))
    if kind == _Kind.FORGOTTEN:
        return Forgotten(log)
    raise ValueError(f"there is no entry of kind {kind}")


def _encode_log(kind: _Kind, log: LogId) -> bytes:
    return _LOG.pack(kind, log.topic_id.bytes, log.partition)


def _decode_log(payload: bytes, logs: dict[bytes, LogId]) -> LogId:
    raw = payload[1 : _LOG.size]
    log = logs.get(raw)
    if log is None:
        _, topic_id, partition = _LOG.unpack_from(payload)
        log = logs[raw] = LogId(UUID(bytes=topic_id), partition)
    return log


def _encode_boundary(boundary: Boundary) -> bytes:
    voters = sorted(boundary.voters)
    head = _BOUNDARY.pack(boundary.epoch, boundary.start_offset, len(voters))
    return head + b"".join(map(_NODE.pack, voters))


def _decode_boundary(payload: bytes, at: int) -> tuple[Boundary, int]:
    epoch, start_offset, count = _BOUNDARY.unpack_from(payload, at)
    at += _BOUNDARY.size
    end = at + count * _NODE.size
    voters = frozenset(node for (node,) in _NODE.iter_unpack(payload[at:end]))
    if len(voters) != count:
        raise ValueError(f"{count} voters do not fit")
    return Boundary(epoch, start_offset, voters), end


def _checksum(payload: bytes, at: int) -> int:
    return crc32.iscsi(payload, crc32.iscsi(_POSITION.pack(at)))
