"""The waiting delayed records by due time and by number, in some 80 bytes each.

Owns both orders and no record contents. Numbers are added in ascending order, as in the log. Places
are small integers that the owner assigns to partitions. Pure. A step costs the logarithm of the
number of records at most.

Invariant: memory follows the number of waiting records. A record that is removed before its time
leaves its entry in the heap behind; each removal looks at a few entries and drops the stale ones.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import compress
from typing import NamedTuple

from millstream.model import Offset

_NUMBER_BITS = 63
_NUMBER_MASK = 2**_NUMBER_BITS - 1
_CHUNK_BITS = 12
_GONE = -1
# Entries of the heap that one removal looks at. In a heap of which a third is stale, one removal
# drops more than the one entry that it adds.
_SWEPT_AT_ONCE = 4


def rank(due_ms: int, number: Offset) -> int:
    """Both as one integer with the same order; a tuple takes three times the memory."""
    return due_ms << _NUMBER_BITS | number


def unrank(ranked: int) -> tuple[int, Offset]:
    return ranked >> _NUMBER_BITS, ranked & _NUMBER_MASK


class Due(NamedTuple):
    due_ms: int
    number: Offset
    place: int


class DueHeap:
    def __init__(self) -> None:
        self._heap: list[int] = []  # Ranks not yet returned by `next_due`; some may be stale.
        self._chunks: dict[int, _Chunk] = {}  # By the high bits of the number, ascending.
        self._last: Offset = -1
        self._count = 0
        self._swept = 0  # Where in the heap the next removal looks for stale entries.

    def __len__(self) -> int:
        return self._count

    @property
    def next_due_ms(self) -> int | None:
        """Due time of the next record that `next_due` has not returned; it may be stale."""
        return unrank(self._heap[0])[0] if self._heap else None

    def add(self, due: Due) -> None:
        assert due.number > self._last
        assert due.due_ms >= 0
        self._last = due.number
        self._count += 1
        chunk = self._chunks.get(due.number >> _CHUNK_BITS)
        if chunk is None:
            chunk = self._chunks[due.number >> _CHUNK_BITS] = _Chunk()
        chunk.add(due)
        heappush(self._heap, rank(due.due_ms, due.number))

    def find(self, number: Offset) -> Due | None:
        chunk = self._chunks.get(number >> _CHUNK_BITS)
        return None if chunk is None else chunk.find(number)

    def remove(self, number: Offset) -> Due | None:
        """Remove a record before it is due."""
        chunk = self._chunks.get(number >> _CHUNK_BITS)
        due = None if chunk is None else chunk.remove(number)
        if chunk is None or due is None:
            return None
        self._count -= 1
        if not chunk.count:
            del self._chunks[number >> _CHUNK_BITS]
        if len(self._heap) > self._count:
            self._sweep()
        return due

    def next_due(self, until_ms: int, *, count_max: int) -> list[Due]:
        """Name those that are due by then, earliest first. Each is named once.

        They are pending until they are removed.
        """
        next_due: list[Due] = []
        heap, limit = self._heap, rank(until_ms + 1, 0)
        while heap and heap[0] < limit and len(next_due) < count_max:
            due = self.find(heappop(heap) & _NUMBER_MASK)
            if due is not None:
                next_due.append(due)
        return next_due

    def after(self, number: Offset) -> Iterator[list[Due]]:
        """Those with a higher number, ascending, in lists of some thousands at most.

        What is added or removed meanwhile is seen or not.
        """
        for high in [high for high in self._chunks if high >= number >> _CHUNK_BITS]:
            chunk = self._chunks.get(high)
            if chunk is not None:
                yield [due for due in chunk if due.number > number]

    def _sweep(self) -> None:
        """Drop stale entries among the next few of the heap."""
        heap = self._heap
        for _ in range(_SWEPT_AT_ONCE):
            if self._swept >= len(heap):
                self._swept = 0
                if not heap:
                    return
            if self.find(heap[self._swept] & _NUMBER_MASK) is None:
                _remove_at(heap, self._swept)  # Another entry stands there now: look again.
            else:
                self._swept += 1


def _remove_at(heap: list[int], at: int) -> None:
    """Take the entry at that index out of a heap."""
    moved = heap.pop()
    if at == len(heap):
        return
    # Towards the leaves by the smaller child, then back up to where the moved entry belongs.
    start = at
    while (child := 2 * at + 1) < len(heap):
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        heap[at] = heap[child]
        at = child
    while at > 0 and heap[(at - 1) // 2] > moved:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = moved
    assert at <= start or heap[start] <= moved


class _Chunk:
    """The waiting records among a few thousand numbers."""

    __slots__ = ("_due_ms", "_numbers", "_places", "count")

    def __init__(self) -> None:
        self.count = 0
        self._numbers = array("q")  # Ascending.
        self._due_ms = array("q")  # `_GONE` for removed records.
        self._places = array("i")

    def __iter__(self) -> Iterator[Due]:
        return (self._due(at) for at, due_ms in enumerate(self._due_ms) if due_ms != _GONE)

    def add(self, due: Due) -> None:
        self.count += 1
        self._numbers.append(due.number)
        self._due_ms.append(due.due_ms)
        self._places.append(due.place)

    def find(self, number: Offset) -> Due | None:
        index = self._index(number)
        return None if index is None else self._due(index)

    def remove(self, number: Offset) -> Due | None:
        index = self._index(number)
        if index is None:
            return None
        due = self._due(index)
        self.count -= 1
        self._due_ms[index] = _GONE
        if self.count < len(self._numbers) // 2:
            self._close_gaps()
        return due

    def _index(self, number: Offset) -> int | None:
        index = bisect_left(self._numbers, number)
        if index == len(self._numbers) or self._numbers[index] != number:
            return None
        return None if self._due_ms[index] == _GONE else index

    def _due(self, index: int) -> Due:
        return Due(self._due_ms[index], self._numbers[index], self._places[index])

    def _close_gaps(self) -> None:
        kept = [due_ms != _GONE for due_ms in self._due_ms]
        self._numbers = array("q", compress(self._numbers, kept))
        self._due_ms = array("q", compress(self._due_ms, kept))
        self._places = array("i", compress(self._places, kept))
