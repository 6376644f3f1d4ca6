"""Indexes the aborted transactions of one log, in columns, for searches by offset.

32 bytes for each, in memory and in a snapshot, which copies the columns as they are. How many there
are is bounded by the log: each has at least a batch and a marker there, and goes when retention
passes its marker or compaction leaves none of its records. None may be forgotten sooner: readers of
committed records would be shown what was rolled back.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import compress
from typing import NamedTuple

from millstream.errors import DamagedLog
from millstream.model import Buffer, Offset

ENTRY_BYTES = 32
PIECE_ENTRIES = 2**16  # Copied in one step, in less than a millisecond.


class Aborted(NamedTuple):
    """A transaction that was rolled back: its first record, and the marker that ended it."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset


class FrozenAborted(NamedTuple):
    """Some entries of columns that only grow: where entries leave them, new columns are made."""

    columns: tuple["array[int]", ...]
    start: int
    end: int

    @property
    def size(self) -> int:
        return (self.end - self.start) * ENTRY_BYTES

    def before(self, end: Offset) -> list[Aborted]:
        """Those that begin before `end`, ordered by last offset. From any thread."""
        transactions: list[Aborted] = []
        for at in range(self.start, self.end, PIECE_ENTRIES):
            piece = slice(at, min(self.end, at + PIECE_ENTRIES))
            entries = zip(*(column[piece] for column in self.columns[:3]), strict=True)
            transactions += [Aborted(*entry) for entry in entries if entry[1] < end]
        return transactions

    def without(self, aborted: Collection[Aborted]) -> tuple["array[int]", ...]:
        """Columns without these transactions. From any thread."""
        gone = {(transaction.producer_id, transaction.last_offset) for transaction in aborted}
        kept = tuple(array("q") for _ in self.columns)
        for at in range(self.start, self.end, PIECE_ENTRIES):
            pieces = [column[at : min(self.end, at + PIECE_ENTRIES)] for column in self.columns]
            stays = [end not in gone for end in zip(pieces[0], pieces[2], strict=True)]
            for column, piece in zip(kept, pieces, strict=True):
                column.extend(compress(piece, stays))
        return kept

    def encode(self) -> Iterator[bytes]:
        """The columns one after the other, in little-endian, in pieces. From any thread."""
        for column in self.columns:
            for at in range(self.start, self.end, PIECE_ENTRIES):
                end = min(self.end, at + PIECE_ENTRIES)
                # A copy, made in one step: the event loop may append meanwhile.
                yield _little_endian(column[at:end]).tobytes()


class AbortedIndex:
    """Ascending by last offset, as their markers stand in the log."""

    __slots__ = ("_first_offsets", "_last_offsets", "_producer_ids", "_stable_offsets", "_start")

    def __init__(self) -> None:
        self._start = 0  # Entries before it were forgotten.
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        # No transaction that ends after entry `i` starts below `_stable_offsets[i]`. This makes
        # both ends of a search a bisection.
        self._stable_offsets = array("q")

    def __len__(self) -> int:
        return len(self._last_offsets) - self._start

    def append(self, aborted: Aborted, *, stable_offset: Offset) -> None:
        """`stable_offset` is where the oldest open transaction starts, or behind the marker."""
        self._producer_ids.append(aborted.producer_id)
        self._first_offsets.append(aborted.first_offset)
        self._last_offsets.append(aborted.last_offset)
        self._stable_offsets.append(stable_offset)

    def overlapping(self, start: Offset, end: Offset) -> list[Aborted]:
        """Those with offsets in `start` to `end`, ordered by last offset."""
        first = bisect_left(self._last_offsets, start, self._start)
        last = bisect_left(self._stable_offsets, end, self._start) + 1
        columns = zip(
            self._producer_ids[first:last],
            self._first_offsets[first:last],
            self._last_offsets[first:last],
            strict=True,
        )
        return [Aborted(*entry) for entry in columns if entry[1] < end]

    def replace(self, frozen: FrozenAborted, columns: Sequence["array[int]"]) -> bool:
        """Take `columns` for the frozen entries; False if entries were forgotten since then."""
        if frozen.columns[2] is not self._last_offsets or frozen.start != self._start:
            return False
        for column, grown in zip(columns, self._columns(), strict=True):
            column.extend(grown[frozen.end :])
        self._replace(*columns)
        return True

    def forget_before(self, start_offset: Offset) -> None:
        self._start = bisect_left(self._last_offsets, start_offset, self._start)
        if self._start > len(self._last_offsets) // 2:
            self._replace(*(column[self._start :] for column in self._columns()))

    def freeze(self) -> FrozenAborted:
        """What is there now, whatever comes or goes later."""
        return FrozenAborted(self._columns(), self._start, len(self._last_offsets))

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

    def _replace(
        self,
        producer_ids: "array[int]",
        first_offsets: "array[int]",
        last_offsets: "array[int]",
        stable_offsets: "array[int]",
    ) -> None:
        self._producer_ids, self._first_offsets = producer_ids, first_offsets
        self._last_offsets, self._stable_offsets = last_offsets, stable_offsets
        self._start = 0

    def _columns(self) -> tuple["array[int]", ...]:
        return self._producer_ids, self._first_offsets, self._last_offsets, self._stable_offsets


def _little_endian(column: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        column = array("q", column)
        column.byteswap()
    return column
