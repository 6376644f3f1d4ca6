"""Indexes the aborted transactions of one log, in columns, for searches by offset.

32 bytes for each, in memory and in a snapshot, which copies the columns as they are: 7 ms for
100,000. How many there are is bounded by the log: each has at least a batch and a marker
there, and goes when retention passes its marker or compaction leaves none of its records. None may
be forgotten sooner: readers of committed records would get aborted ones.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Collection
from typing import NamedTuple

from millstream.errors import DamagedLog
from millstream.model import Buffer, Offset

ENTRY_BYTES = 32


class Aborted(NamedTuple):
    """A transaction that was rolled back: its first record, and the marker that ended it."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset


class AbortedIndex:
    """Ascending by last offset, as their markers stand in the log."""

    __slots__ = ("_first_offsets", "_last_offsets", "_producer_ids", "_stable_offsets")

    def __init__(self) -> None:
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        # No transaction that ends after entry `i` starts below `_stable_offsets[i]`. This makes
        # both ends of a search a bisection.
        self._stable_offsets = array("q")

    def __len__(self) -> int:
        return len(self._last_offsets)

    def append(self, aborted: Aborted, *, stable_offset: Offset) -> None:
        """`stable_offset` is where the oldest open transaction starts, or behind the marker."""
        self._producer_ids.append(aborted.producer_id)
        self._first_offsets.append(aborted.first_offset)
        self._last_offsets.append(aborted.last_offset)
        self._stable_offsets.append(stable_offset)

    def overlapping(self, start: Offset, end: Offset) -> list[Aborted]:
        """Those with offsets in `start` to `end`, ordered by last offset."""
        first = bisect_left(self._last_offsets, start)
        last = bisect_left(self._stable_offsets, end) + 1
        columns = zip(
            self._producer_ids[first:last],
            self._first_offsets[first:last],
            self._last_offsets[first:last],
            strict=True,
        )
        return [Aborted(*entry) for entry in columns if entry[1] < end]

    def forget(self, aborted: Collection[Aborted]) -> None:
        gone = {(entry.producer_id, entry.last_offset) for entry in aborted}
        if not gone:
            return
        ends = zip(self._producer_ids, self._last_offsets, strict=True)
        kept = [at for at, end in enumerate(ends) if end not in gone]
        for name in self.__slots__:
            column = getattr(self, name)
            setattr(self, name, array("q", [column[at] for at in kept]))

    def forget_before(self, start_offset: Offset) -> None:
        count = bisect_left(self._last_offsets, start_offset)
        if count:
            for column in self._columns():
                del column[:count]

    def encode(self) -> bytes:
        """The columns one after the other, in little-endian."""
        return b"".join(_little_endian(column).tobytes() for column in self._columns())

    @classmethod
    def decode(cls, data: Buffer) -> "AbortedIndex":
        """Read what `encode` wrote; raise `DamagedLog` for anything else."""
        if len(data) % ENTRY_BYTES:
            raise DamagedLog(f"{len(data)} bytes are no whole number of aborted transactions")
        decoded, size = cls(), len(data) // 4
        for at, column in enumerate(decoded._columns()):
            column.frombytes(memoryview(data)[at * size : (at + 1) * size])
            if sys.byteorder == "big":
                column.byteswap()
        return decoded

    def _columns(self) -> tuple["array[int]", ...]:
        return self._producer_ids, self._first_offsets, self._last_offsets, self._stable_offsets


def _little_endian(column: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        column = array("q", column)
        column.byteswap()
    return column
