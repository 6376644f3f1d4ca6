"""The sparse index of a segment: maps offsets, positions and timestamps to positions in its file.

Owns the table, its search and its format on disk. Does not own files: a segment and the cache pass
bytes in and out. One table serves offsets and time, because an entry has three facts of a batch:
its offset, its position, and the newest timestamp of all batches before it.

Invariant: an index file is also a *proof*. It is written only after the bytes that it covers were
synced, so the first `size` bytes of a segment with a valid index need no scan. Its first 96 bytes,
with a checksum of their own, are all that opening a log reads.

It also shows damage that a batch's own checksum does not cover, see `verifying`: a
dense segment has no gap between its offsets; of any other each entry has a checksum of the batch
prefixes (base offset, length, epoch) up to the next one.
"""

import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from millstream.errors import DamagedLog
from millstream.model import Offset

ENTRY_BYTES = 16
RELATIVE_OFFSET_MAX = 2**32 - 1  # How far apart the offsets of a segment's batches can be.
POSITION_MAX = 2**32 - 1
NO_TIMESTAMP = -1

_MAGIC = b"MSIX"
_VERSION = 1
# Magic and version, then the fields of `Proof`.
_PROOF = Struct("<4sIqqqIqqIqiIIIII")
_CHECKSUM = Struct("<I")
PROOF_BYTES = 96
_IS_DENSE = 1
_HAS_CHECKS = 2
_CHECK_BYTES = 4
_PADDING = bytes(PROOF_BYTES - _PROOF.size - _CHECKSUM.size)


class Proof(NamedTuple):
    """The head of an index file: these bytes were whole and on stable storage."""

    base_offset: Offset
    first_offset: Offset  # Where the first batch begins.
    end_offset: Offset
    size: int
    opened_ms: int  # When the first batch came: the segment's age counts from here.
    max_timestamp: int
    last_position: int
    last_base_offset: Offset
    last_epoch: int
    last_crc: int
    widest: int
    entry_count: int
    entries_crc: int
    flags: int = 0  # An index of an earlier version has none.

    @property
    def is_dense(self) -> bool:
        """Whether each batch begins where the one before it ends."""
        return self.flags & _IS_DENSE != 0

    @property
    def entries_bytes(self) -> int:
        return self.entry_count * (ENTRY_BYTES + (_CHECK_BYTES if self.has_checks else 0))

    @property
    def has_checks(self) -> bool:
        return self.flags & _HAS_CHECKS != 0


class Table:
    """Entries in ascending order; the first stands for the first batch, at position 0.

    Offsets are kept relative to that of the first entry, so that four bytes hold them.
    """

    __slots__ = (
        "checks",
        "due_at",
        "first_offset",
        "offsets",
        "positions",
        "times",
        "widest",
    )

    def __init__(self) -> None:
        self.due_at = 0  # The first batch from this position on gets an entry.
        self.first_offset = 0
        self.offsets = array("I")
        self.positions = array("I")
        self.times = array("q")
        self.widest = 0  # The longest stretch between two entries, in bytes.
        self.checks = array("I")  # Of batch prefixes from each entry to the next; empty if dense.

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def size_bytes(self) -> int:
        return len(self.positions) * ENTRY_BYTES + len(self.checks) * _CHECK_BYTES

    def add(self, offset: Offset, position: int, max_timestamp_before: int) -> None:
        if not self.positions:
            self.first_offset = offset
        elif position - self.positions[-1] > self.widest:
            self.widest = position - self.positions[-1]
        self.offsets.append(offset - self.first_offset)
        self.positions.append(position)
        self.times.append(max_timestamp_before)

    def check_of(self, index: int) -> int | None:
        """The checksum of the batch prefixes from this entry to the next, if there is one."""
        return self.checks[index] if index < len(self.checks) else None

    def offset(self, index: int) -> Offset:
        return self.first_offset + self.offsets[index]

    def floor_offset(self, offset: Offset) -> int:
        """The index of the last entry at or before `offset`; 0 if there is none."""
        return (bisect_right(self.offsets, offset - self.first_offset) or 1) - 1

    def floor_position(self, position: int) -> int:
        return (bisect_right(self.positions, position) or 1) - 1

    def floor_time(self, timestamp: int) -> int:
        """The last entry before which every batch is older than `timestamp`; 0 if there is none."""
        return (bisect_left(self.times, timestamp) or 1) - 1

    def cut(self, size: int) -> "Table":
        """A copy without the entries at or behind position `size`."""
        count = bisect_left(self.positions, size)
        table = Table()
        table.first_offset = self.first_offset
        table.offsets = self.offsets[:count]
        table.positions = self.positions[:count]
        table.times = self.times[:count]
        table.checks = self.checks[: max(0, count - 1)]  # The last stretch may be shorter now.
        table.widest = _widest(table.positions)
        return table

    def encode(self) -> bytes:
        columns = (self.offsets, self.positions, self.times, self.checks)
        return b"".join(_little_endian(column).tobytes() for column in columns)

    @classmethod
    def decode(cls, data: bytes, proof: Proof) -> "Table":
        """Read what `encode` wrote; raise `DamagedLog` if it is not what `proof` speaks of."""
        count = proof.entry_count
        if len(data) != proof.entries_bytes or zlib.crc32(data) != proof.entries_crc:
            raise DamagedLog(f"index of segment {proof.base_offset} fails its checksum")
        table = cls()
        table.first_offset = proof.first_offset
        table.offsets.frombytes(data[: 4 * count])
        table.positions.frombytes(data[4 * count : 8 * count])
        table.times.frombytes(data[8 * count : 16 * count])
        table.checks.frombytes(data[16 * count :])
        for column in (table.offsets, table.positions, table.times, table.checks):
            _little_endian(column, in_place=True)
        table.widest = proof.widest
        return table


assert array("I").itemsize == 4
assert array("q").itemsize == 8
assert _PROOF.size + _CHECKSUM.size <= PROOF_BYTES


def encode_index(proof: Proof, table: Table) -> list[bytes]:
    """Encode an index file; the proof's entry count and checksum are those of `table`."""
    assert len(table.checks) in (0, len(table))
    entries = table.encode()
    proof = proof._replace(
        widest=table.widest,
        entry_count=len(table),
        entries_crc=zlib.crc32(entries),
        flags=proof.flags | (_HAS_CHECKS if table.checks else 0),
    )
    head = _PROOF.pack(_MAGIC, _VERSION, *proof) + _PADDING
    return [head + _CHECKSUM.pack(zlib.crc32(head)), entries]


def decode_proof(head: bytes) -> Proof:
    """Read the first `PROOF_BYTES` of an index file; raise `DamagedLog` if they prove nothing."""
    if len(head) != PROOF_BYTES:
        raise DamagedLog(f"index of {len(head)} bytes is cut short")
    (crc,) = _CHECKSUM.unpack_from(head, PROOF_BYTES - _CHECKSUM.size)
    if zlib.crc32(head[: -_CHECKSUM.size]) != crc:
        raise DamagedLog("index fails its checksum")
    magic, version, *fields = _PROOF.unpack_from(head)
    if magic != _MAGIC or version != _VERSION:
        raise DamagedLog(f"not an index of version {_VERSION}: {magic!r} {version}")
    return Proof(*fields)


def dense_flag(is_dense: bool) -> int:
    return _IS_DENSE if is_dense else 0


def _widest(positions: "array[int]") -> int:
    return max((later - earlier for earlier, later in pairwise(positions)), default=0)


def _little_endian(column: "array[int]", *, in_place: bool = False) -> "array[int]":
    """The disk is little endian, whatever the machine is."""
    if sys.byteorder == "little":
        return column
    if not in_place:
        column = column[:]
    column.byteswap()
    return column
