"""Verifies stretches of a segment against its index, before their bytes leave the node.

Owns the rules of a sound stretch, and the list of stretches that were verified since the node
started. A stretch reaches from one index entry to the next. The index is protected by its own
checksum, so an entry proves where a batch begins and which offset it has. Within a stretch

- every batch passes its checksum, which covers all but 21 bytes of it;
- a changed length moves the checksum's end, or the end of the stretch is missed;
- base offsets continue without a gap where the index says that the segment is dense; elsewhere the
  index holds a checksum of the batch prefixes (base offset, length, epoch) of each stretch;
- the leader epoch is the one that the journal says was in force at that offset.

So no single changed byte of a sealed segment passes. An index that an earlier version wrote does
not say whether its segment is dense: there base offsets are only known to ascend.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from fastcrc import crc32

from millstream.codec.batch import PREFIX_BYTES, SEALED, Header, read_header, verify_batch
from millstream.errors import CorruptBatch, DamagedBatch, DamagedLog, InvalidBatch, storage_error
from millstream.model import Boundary, Offset
from millstream.ports import File
from millstream.storage.log.index import Table
from millstream.storage.sealing.batches import BadSeal, MissingKey, Sealer

CHUNK_BYTES = 2**20  # Read and verified at once; more only for a stretch that is longer.
# Verified on the event loop, more goes to a thread: 0.1 ms in batches of 16 KB, 1 ms of 1 KB.
INLINE_BYTES_MAX = 256 * 2**10
SEARCH_BYTES_MAX = 64 * 2**20  # Looked at for a sound batch behind a bad one, at a start.
SECTOR_BYTES = 512  # The least that a disk writes or does not.
SPANS_MAX = 64  # Verified spans remembered of one segment; the shortest is forgotten, not more.

_log = logging.getLogger(__name__)

_PREFIX = Struct(">qii")
_LENGTH_END = 12
_MAGIC_AT = 16
MAGIC = b"\x02"


class BadRange(NamedTuple):
    """Damaged bytes of a segment, and the offsets of the records that were there."""

    path: str
    position: int
    size: int
    base_offset: Offset
    end_offset: Offset
    reason: str

    @property
    def end_position(self) -> int:
        return self.position + self.size

    def problem(self) -> DamagedBatch:
        return DamagedBatch(
            f"offsets {self.base_offset} to {self.end_offset - 1} are damaged in {self.path} "
            f"at position {self.position}, {self.size} bytes: {self.reason}",
            base_offset=self.base_offset,
            end_offset=self.end_offset,
        )


class Unverified:
    """The part of a segment that was on disk when the node started, and its verified stretches."""

    __slots__ = ("_ends", "_starts", "boundaries", "end", "end_offset", "sealer")

    def __init__(
        self,
        end: int,
        end_offset: Offset,
        boundaries: Sequence[Boundary],
        sealer: Sealer | None = None,
    ) -> None:
        self.end = end
        self.end_offset = end_offset
        self.boundaries = boundaries
        self.sealer = sealer
        self._starts: list[int] = []
        self._ends: list[int] = []

    @property
    def is_done(self) -> bool:
        return self._starts == [0] and self._ends == [self.end]

    def covers(self, start: int, end: int) -> bool:
        """Whether the bytes from `start` to `end`, as far as they are in question, are verified."""
        end = min(end, self.end)
        at = bisect_right(self._starts, start) - 1
        return start >= end or (at >= 0 and self._ends[at] >= end)

    def add(self, start: int, end: int) -> None:
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]
        if len(self._starts) > SPANS_MAX:
            lengths = [e - s for s, e in zip(self._starts, self._ends, strict=True)]
            shortest = lengths.index(min(lengths))
            del self._starts[shortest], self._ends[shortest]

    def cut(self, end: int, end_offset: Offset) -> "Unverified | None":
        """The same for a segment that now ends at `end`, which is in question up to there."""
        remaining = Unverified(end, end_offset, self.boundaries, self.sealer)
        for start, stop in zip(self._starts, self._ends, strict=True):
            if start < end:
                remaining.add(start, min(stop, end))
        return None if remaining.is_done else remaining


class Part(NamedTuple):
    """What verifying a segment, or its beginning, needs to know: it may happen on a thread."""

    file: File
    path: str
    table: Table
    end: int
    end_offset: Offset
    is_dense: bool
    boundaries: Sequence[Boundary]
    sealer: Sealer | None = None  # Checks that encrypted batches open; None: checksums only.

    def aligned(self, start: int, end: int) -> tuple[int, int]:
        """The whole stretches that hold these bytes."""
        positions = self.table.positions
        start = positions[self.table.floor_position(start)]
        after = bisect_left(positions, min(end, self.end))
        return start, positions[after] if after < len(positions) else self.end

    def bad_ranges(self, start: int, end: int) -> list[BadRange]:
        """Verify the stretches from `start` to `end`, both of which `aligned` gave. Blocks."""
        bad: list[BadRange] = []
        for first, last in self._chunks(start, end):
            data = self._read(self.table.positions[first], self._end_of(last - 1))
            for index in range(first, last):
                bad += _Stretch(self, index, data, self.table.positions[first]).check()
        return bad

    def _chunks(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Index entries, from and to, whose stretches are read at once."""
        positions = self.table.positions
        first = bisect_left(positions, start)
        stop = bisect_left(positions, end)
        while first < stop:
            last = max(first + 1, bisect_right(positions, positions[first] + CHUNK_BYTES) - 1)
            last = min(last, stop)
            yield first, last
            first = last

    def _end_of(self, index: int) -> int:
        positions = self.table.positions
        return min(self.end, positions[index + 1]) if index + 1 < len(positions) else self.end

    def _offset_behind(self, index: int) -> Offset:
        table = self.table
        is_inner = index + 1 < len(table) and table.positions[index + 1] < self.end
        return table.offset(index + 1) if is_inner else self.end_offset

    def _read(self, start: int, end: int) -> bytes:
        try:
            data = self.file.read(start, end - start)
        except OSError as problem:
            raise storage_error(problem, self.path) from problem
        if len(data) < end - start:
            raise DamagedLog(f"{self.path}: {len(data)} of {end - start} bytes at {start}")
        return data


class _Stretch:
    """The batches between two index entries."""

    def __init__(self, part: Part, index: int, data: bytes, data_start: int) -> None:
        table = part.table
        self._part = part
        self._data = data
        self._shift = data_start
        self._start = table.positions[index] - data_start
        self._end = part._end_of(index) - data_start
        self._offset = table.offset(index)
        self._offset_behind = part._offset_behind(index)
        self._check = table.check_of(index)

    def check(self) -> list[BadRange]:
        bad: list[BadRange] = []
        at, expected, prefixes = self._start, self._offset, 0
        while at < self._end:
            header, reason = self._judge(at, expected)
            if header is None or reason:
                behind, offset = self._next(at, header, expected)
                bad.append(self._bad(at, behind, expected, offset, reason))
                at, expected = behind, offset
                continue
            prefixes = crc32.iscsi(self._data[at : at + PREFIX_BYTES], prefixes)
            at, expected = at + header.size, header.end_offset
        if bad:
            return bad
        is_short = self._part.is_dense and expected != self._offset_behind
        if is_short or expected > self._offset_behind:
            reason = f"its offsets end at {expected}, the index says {self._offset_behind}"
        elif self._check is not None and self._check != prefixes:
            reason = "offsets, lengths or epochs of its batches are not those that were written"
        else:
            return []
        return [self._bad(self._start, self._end, self._offset, self._offset_behind, reason)]

    def _judge(self, at: int, expected: Offset) -> tuple[Header | None, str]:
        """The header and the error of the batch; no header where none can be."""
        try:
            header = read_header(self._data, at)
        except (CorruptBatch, InvalidBatch) as problem:
            return None, str(problem)
        if at + header.size > self._end:
            return None, f"a batch of {header.size} bytes reaches beyond the next index entry"
        try:
            verify_batch(self._data, at)
        except (CorruptBatch, InvalidBatch) as problem:
            return header, str(problem)
        is_exact = self._part.is_dense or at == self._start
        if header.base_offset < expected or (is_exact and header.base_offset != expected):
            return header, f"its base offset is {header.base_offset}, {expected} was expected"
        if header.end_offset > self._offset_behind:
            return header, f"its offsets reach beyond {self._offset_behind}"
        in_force = epoch_in_force(self._part.boundaries, header.base_offset)
        if in_force is not None and header.epoch != in_force:
            return header, f"its epoch is {header.epoch}, {in_force} was in force"
        return header, self._check_seal(at, header)

    def _check_seal(self, at: int, header: Header) -> str:
        if self._part.sealer is not None and header.attributes & SEALED:
            try:
                self._part.sealer.check(header, memoryview(self._data)[at : at + header.size])
            except (BadSeal, MissingKey) as problem:
                return str(problem)
        return ""

    def _next(self, at: int, header: Header | None, expected: Offset) -> tuple[int, Offset]:
        """Where the next sound batch begins, and with which offset: at the latest, the next entry.

        The length of a damaged batch is believed only if it leads to a sound one.
        """
        if header is not None and at + header.size < self._end:
            behind = at + header.size
            try:
                following = verify_batch(self._data, behind)
            except (CorruptBatch, InvalidBatch):
                return self._end, self._offset_behind
            if expected < following.base_offset < self._offset_behind:
                return behind, following.base_offset
        return self._end, self._offset_behind

    def _bad(
        self, at: int, behind: int, offset: Offset, offset_behind: Offset, reason: str
    ) -> BadRange:
        position = self._shift + at
        return BadRange(self._part.path, position, behind - at, offset, offset_behind, reason)


def stand_in(bad: BadRange, epoch: int) -> Header:
    """A header for damaged bytes, so that the segment can continue behind them."""
    return Header(
        base_offset=bad.base_offset,
        size=bad.size,
        epoch=epoch,
        crc=0,
        attributes=0,
        last_offset_delta=bad.end_offset - bad.base_offset - 1,
        base_timestamp=-1,
        max_timestamp=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=0,
    )


def sound_batch_behind(
    file: File, at: int, end: int, offset: Offset, boundaries: Sequence[Boundary]
) -> tuple[int, Offset] | None:
    """Position and base offset of the first sound batch behind a bad one at `at`, whose offset is
    `offset`; None if there is none within `SEARCH_BYTES_MAX`, or a power cut explains the bad one.

    A write that a power cut kept from the disk leaves zeros, from its begin or from a sector on,
    whatever was written behind it.
    """
    end = min(end, at + SEARCH_BYTES_MAX)
    data = file.read(at, end - at)
    mark = data.find(MAGIC, _MAGIC_AT + 1)
    while mark >= 0:
        start = mark - _MAGIC_AT
        header = _sound_header(data, start, offset, boundaries)
        if header is not None:
            if not _has_hole(data[:start], at, offset):
                return at + start, header.base_offset
            _log.warning(
                "batches behind a hole are cut offset=%d position=%d sound_offset=%d: a power cut "
                "kept a write from the disk",
                offset,
                at,
                header.base_offset,
            )
            return None
        mark = data.find(MAGIC, mark + 1)
    return None


def _sound_header(
    data: bytes, start: int, offset: Offset, boundaries: Sequence[Boundary]
) -> Header | None:
    try:
        header = read_header(data, start)
        if header.base_offset <= offset or start + header.size > len(data):
            return None
        if epoch_in_force(boundaries, header.base_offset) not in (None, header.epoch):
            return None
        return verify_batch(data, start)
    except (CorruptBatch, InvalidBatch):
        return None


def _has_hole(data: bytes, position: int, offset: Offset) -> bool:
    """Whether a sector, or what of it is in `data`, holds only zeros where others were written."""
    start = 0
    natural = bytes(8 - (offset.bit_length() + 7) // 8)  # How a base offset begins.
    while start < len(data):
        end = min(len(data), start + SECTOR_BYTES - (position + start) % SECTOR_BYTES)
        if not any(data[start:end]) and not (start == 0 and end <= len(natural)):
            return True
        start = end
    return False


def epoch_in_force(boundaries: Sequence[Boundary], offset: Offset) -> int | None:
    """The epoch of a batch at `offset`; None where boundaries below the log start were given up."""
    at = bisect_right(boundaries, offset, key=lambda boundary: boundary.start_offset)
    return boundaries[at - 1].epoch if at else None


def prefix_check(headers: Sequence[Header], check: int = 0) -> int:
    """The checksum of what no batch's own checksum covers: base offsets, lengths, epochs."""
    for header in headers:
        prefix = _PREFIX.pack(header.base_offset, header.size - _LENGTH_END, header.epoch)
        check = crc32.iscsi(prefix, check)
    return check
