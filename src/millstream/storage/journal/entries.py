"""Encodes, decodes and checks the entries of the journal.

Owns the layout, not the meaning; pure functions of bytes. An entry is length, CRC-32C, payload. The
checksum also covers the entry's position, so that no bytes pass for an entry at a position where
none was written. A payload is a byte for the kind, then the log's id, then the fields of the kind.

Replica ids take 32 bits where all of an entry are those of a cluster without incarnations, and 64
bits, in a kind of its own, where one is not. So a journal is readable by a version without
incarnations until the first replica with one is placed.
"""

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias, assert_never
from uuid import UUID

from fastcrc import crc32

from millstream.model import (
    NODE_BITS,
    Boundary,
    Epoch,
    HardState,
    LogId,
    Offset,
    ReplicaId,
)

FILE_HEADER = b"millstream journal 1\n"
PAYLOAD_BYTES_MAX = 2**24

_FRAME = struct.Struct(">II")
_POSITION = struct.Struct(">Q")
_LOG = struct.Struct(">B16sI")
_VOTE = struct.Struct(">Ii")
_WIDE_VOTE = struct.Struct(">Iq")
_EPOCH = struct.Struct(">I")
_OFFSET = struct.Struct(">q")
_VOTER = struct.Struct(">i")
_WIDE_VOTER = struct.Struct(">q")
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


class Durable(NamedTuple):
    """All before `end_offset` was committed and on the disk: a log that ends before has lost it."""

    log: LogId
    end_offset: Offset


class Placed(NamedTuple):
    """The log is that of the replica with this incarnation, from its first record on."""

    log: LogId
    incarnation: int


class Forgotten(NamedTuple):
    log: LogId


class Mark(NamedTuple):
    """Everything in front of `durable_end` was on the disk when this was written."""

    durable_end: int


Event: TypeAlias = Voted | Opened | Cut | Moved | Reset | Durable | Placed | Forgotten


class _Kind(IntEnum):
    MARK = 0
    VOTED = 1
    OPENED = 2
    CUT = 3
    MOVED = 4
    RESET = 5
    FORGOTTEN = 6
    # The same with ids of 64 bits.
    WIDE_VOTED = 7
    WIDE_OPENED = 8
    WIDE_RESET = 9
    DURABLE = 10
    PLACED = 11


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
            vote = _NO_VOTE if voted_for is None else voted_for
            if _are_narrow((vote,)):
                return _encode_log(_Kind.VOTED, event.log) + _VOTE.pack(epoch, vote)
            return _encode_log(_Kind.WIDE_VOTED, event.log) + _WIDE_VOTE.pack(epoch, vote)
        case Opened():
            is_narrow = _are_narrow(event.boundary.voters)
            head = _encode_log(_Kind.OPENED if is_narrow else _Kind.WIDE_OPENED, event.log)
            return head + _encode_boundary(event.boundary, _VOTER if is_narrow else _WIDE_VOTER)
        case Cut():
            return _encode_log(_Kind.CUT, event.log) + _EPOCH.pack(event.epoch)
        case Moved():
            return _encode_log(_Kind.MOVED, event.log) + _OFFSET.pack(event.start_offset)
        case Reset():
            is_narrow = all(_are_narrow(boundary.voters) for boundary in event.boundaries)
            voter = _VOTER if is_narrow else _WIDE_VOTER
            head = _encode_log(_Kind.RESET if is_narrow else _Kind.WIDE_RESET, event.log)
            bodies = [_encode_boundary(boundary, voter) for boundary in event.boundaries]
            return b"".join((head, _OFFSET.pack(event.start_offset), *bodies))
        case Durable():
            return _encode_log(_Kind.DURABLE, event.log) + _OFFSET.pack(event.end_offset)
        case Placed():
            return _encode_log(_Kind.PLACED, event.log) + _OFFSET.pack(event.incarnation)
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
    if kind in (_Kind.VOTED, _Kind.WIDE_VOTED):
        vote = _VOTE if kind == _Kind.VOTED else _WIDE_VOTE
        epoch, voted_for = vote.unpack_from(payload, at)
        return Voted(log, HardState(epoch, None if voted_for == _NO_VOTE else voted_for))
    if kind in (_Kind.OPENED, _Kind.WIDE_OPENED):
        voter = _VOTER if kind == _Kind.OPENED else _WIDE_VOTER
        return Opened(log, _decode_boundary(payload, at, voter)[0])
    if kind == _Kind.CUT:
        return Cut(log, *_EPOCH.unpack_from(payload, at))
    if kind == _Kind.MOVED:
        return Moved(log, *_OFFSET.unpack_from(payload, at))
    if kind in (_Kind.RESET, _Kind.WIDE_RESET):
        voter = _VOTER if kind == _Kind.RESET else _WIDE_VOTER
        (start_offset,) = _OFFSET.unpack_from(payload, at)
        at += _OFFSET.size
        boundaries = []
        while at < len(payload):
            boundary, at = _decode_boundary(payload, at, voter)
            boundaries.append(boundary)
        return Reset(log, start_offset, tuple(boundaries))
    if kind == _Kind.DURABLE:
        return Durable(log, *_OFFSET.unpack_from(payload, at))
    if kind == _Kind.PLACED:
        return Placed(log, *_OFFSET.unpack_from(payload, at))
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


def _are_narrow(replicas: Iterable[int]) -> bool:
    """Whether these are ids of replicas without an incarnation, or no vote."""
    return all(replica < 1 << NODE_BITS for replica in replicas)


def _encode_boundary(boundary: Boundary, voter: struct.Struct) -> bytes:
    voters = sorted(boundary.voters)
    head = _BOUNDARY.pack(boundary.epoch, boundary.start_offset, len(voters))
    return head + b"".join(map(voter.pack, voters))


def _decode_boundary(payload: bytes, at: int, voter: struct.Struct) -> tuple[Boundary, int]:
    epoch, start_offset, count = _BOUNDARY.unpack_from(payload, at)
    at += _BOUNDARY.size
    end = at + count * voter.size
    voters = _decode_voters(payload[at:end], voter)
    if len(voters) != count:
        raise ValueError(f"{count} voters do not fit")
    return Boundary(epoch, start_offset, voters), end


@lru_cache(maxsize=1_000)
def _decode_voters(raw: bytes, voter: struct.Struct) -> frozenset[ReplicaId]:
    """A start decodes tens of thousands of boundaries, most of them with the same voters."""
    return frozenset(ReplicaId(replica) for (replica,) in voter.iter_unpack(raw))


def _checksum(payload: bytes, at: int) -> int:
    return crc32.iscsi(payload, crc32.iscsi(_POSITION.pack(at)))
