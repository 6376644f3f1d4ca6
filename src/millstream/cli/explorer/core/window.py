"""Holds the records in memory: a range of each partition, bounded in number and in bytes.

Pure. Invariant: the range of a partition has no holes, so the next page adjoins it on either side;
records added at one end push out those at the other.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from millstream.cli.explorer.core.paging import Chunk, Span, size
from millstream.client import Message

RECORDS_HELD_MAX = 2_000
BYTES_HELD_MAX = 32 * 2**20


@dataclass(slots=True)
class Window:
    """Oldest first. Methods return by how much the records moved, for cursors to follow."""

    spans: dict[int, Span] = field(default_factory=dict, init=False)
    _records: deque[Message] = field(default_factory=deque, init=False)
    _size_bytes: int = field(default=0, init=False)

    @property
    def records(self) -> Sequence[Message]:
        return self._records

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def replace(self, chunk: Chunk) -> None:
        self.spans = {}
        self._records.clear()
        self._size_bytes = 0
        self.add_newer(chunk)

    def add_newer(self, chunk: Chunk) -> int:
        """Put records behind those held; returns how many were let go in front."""
        for partition, span in chunk.spans.items():
            held = self.spans.get(partition)
            # Between the two may be what retention deleted meanwhile: nothing, then.
            self.spans[partition] = Span(span.start if held is None else held.start, span.end)
        self._records.extend(chunk.records)
        self._size_bytes += sum(map(size, chunk.records))
        gone = 0
        while self._is_over:
            record = self._records.popleft()
            self._size_bytes -= size(record)
            self.spans[record.partition] = Span(record.offset + 1, self.spans[record.partition].end)
            gone += 1
        return gone

    def add_older(self, chunk: Chunk) -> int:
        """Put records in front of those held; returns by how many those moved back."""
        for partition, span in chunk.spans.items():
            held = self.spans.get(partition)
            self.spans[partition] = Span(span.start, span.end if held is None else held.end)
        self._records.extendleft(reversed(chunk.records))
        self._size_bytes += sum(map(size, chunk.records))
        while self._is_over:
            record = self._records.pop()
            self._size_bytes -= size(record)
            self.spans[record.partition] = Span(self.spans[record.partition].start, record.offset)
        return len(chunk.records)

    @property
    def _is_over(self) -> bool:
        # One record is held, however large it is: it is the one on the screen.
        is_over = len(self._records) > RECORDS_HELD_MAX or self._size_bytes > BYTES_HELD_MAX
        return is_over and len(self._records) > 1
