"""Chooses the offsets of the next page and merges the records that were read.

Owns the arithmetic of pages over many partitions. Pure. Of each partition a page takes the same
number of records, so one that is busy does not hide the others. Offsets have gaps (compaction,
transaction markers): forwards a page counts records, backwards it reaches for a range of offsets
and keeps the last records in it.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import merge

from millstream.client import Message

# Of one partition, in one go; and of all of them together.
PAGE_RECORDS_MAX = 200
READ_RECORDS_MAX = 1_000
# A search reads more at a time: its pages are not shown, and each costs a round trip.
SEARCH_RECORDS_MAX = 1_000
READ_BYTES_MAX = 16 * 2**20
# Where a range of offsets holds no record, the next is larger; up to this.
REACH_OFFSETS_MAX = 1_000_000
REACH_GROWTH = 8
RECORD_OVERHEAD_BYTES = 500


@dataclass(frozen=True, slots=True)
class Span:
    """A range of offsets; `end` is exclusive."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


# By partition.
Spans = Mapping[int, Span]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A read: ranges, and the maximum of records of each. Backwards the last ones count."""

    spans: Spans
    quota: int
    is_backward: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The result of a read. These are all records of these spans; they go by time, and within
    a partition by offset.
    """

    spans: Spans
    records: list[Message]


def quota(partition_count: int, *, is_search: bool = False) -> int:
    """The number of records of one partition in a page."""
    records_max = SEARCH_RECORDS_MAX if is_search else PAGE_RECORDS_MAX
    return max(1, min(records_max, READ_RECORDS_MAX // max(1, partition_count)))


def older(held: Spans, bounds: Spans, count: int, *, reach: int | None = None) -> Page:
    """The page in front of what is held; `reach` is how many offsets back."""
    back = count if reach is None else reach
    return Page(
        spans={
            partition: Span(max(bounds[partition].start, span.start - back), span.start)
            for partition, span in held.items()
            if partition in bounds and span.start > bounds[partition].start
        },
        quota=count,
        is_backward=True,
    )


def newer(held: Spans, bounds: Spans, count: int) -> Page:
    """The page behind what is held."""
    return Page(
        spans={
            partition: Span(max(span.end, bounds[partition].start), bounds[partition].end)
            for partition, span in held.items()
            if partition in bounds and span.end < bounds[partition].end
        },
        quota=count,
    )


def at_end(bounds: Spans) -> dict[int, Span]:
    """Nothing held, behind the last record: the page in front of it is the newest."""
    return {partition: Span(span.end, span.end) for partition, span in bounds.items()}


def at_offsets(goals: Mapping[int, int], bounds: Spans) -> dict[int, Span]:
    """Nothing held, at these offsets or as near to them as a partition has one."""
    places = {p: min(max(goals[p], span.start), span.end) for p, span in bounds.items()}
    return {partition: Span(place, place) for partition, place in places.items()}


def behind(held: Spans, bounds: Spans) -> int:
    """The number of offsets behind the held ones."""
    return sum(max(0, bounds[p].end - span.end) for p, span in held.items() if p in bounds)


@dataclass(slots=True)
class Haul:
    """Gathers the records of a page, within its quota and `READ_BYTES_MAX`."""

    page: Page
    size_bytes: int = field(default=0, init=False)
    _open: set[int] = field(init=False)
    _taken: dict[int, deque[Message]] = field(init=False)
    _known: dict[int, Span] = field(default_factory=dict, init=False)
    # Where what is kept of a partition begins, if its oldest records had to give way.
    _cut: dict[int, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._open = {p for p, span in self.page.spans.items() if span.size > 0}
        self._taken = {p: deque() for p in self._open}

    @property
    def open(self) -> frozenset[int]:
        """The partitions of which more is wanted."""
        return frozenset(self._open)

    @property
    def is_full(self) -> bool:
        """Forwards the rest is for the next page; backwards the oldest records give way."""
        return not self.page.is_backward and self.size_bytes >= READ_BYTES_MAX

    def add(self, record: Message) -> None:
        partition = record.partition
        if partition not in self._open:
            return
        span = self.page.spans[partition]
        if record.offset < span.start:
            return
        if record.offset < span.end:
            self._take(record)
        if record.offset + 1 >= span.end:
            self.close(partition)
        elif not self.page.is_backward and len(self._taken[partition]) >= self.page.quota:
            self._known[partition] = Span(span.start, record.offset + 1)
            self._open.discard(partition)

    def close(self, partition: int) -> None:
        """There is no more to come of it."""
        if partition in self._open:
            self._known[partition] = self.page.spans[partition]
            self._open.discard(partition)

    def chunk(self) -> Chunk:
        """The records read so far, also when the read was cut short.

        Backwards a partition that was cut short is left out: its records do not adjoin.
        """
        spans = dict(self._known)
        if not self.page.is_backward:
            for partition in self._open:
                start = self.page.spans[partition].start
                taken = self._taken[partition]
                spans[partition] = Span(start, taken[-1].offset + 1 if taken else start)
        for partition, start in self._cut.items():
            if partition in spans:
                spans[partition] = Span(start, spans[partition].end)
        whole = [taken for partition, taken in self._taken.items() if partition in spans]
        # Each partition stays in the order of its offsets, whatever its clocks say.
        return Chunk(
            spans=spans, records=list(merge(*whole, key=lambda record: record.timestamp_ms))
        )

    def _take(self, record: Message) -> None:
        taken = self._taken[record.partition]
        taken.append(record)
        self.size_bytes += size(record)
        while len(taken) > 1 and self._is_over(len(taken)):
            dropped = taken.popleft()
            self.size_bytes -= size(dropped)
            self._cut[record.partition] = dropped.offset + 1

    def _is_over(self, count: int) -> bool:
        if not self.page.is_backward:
            return False
        return count > self.page.quota or self.size_bytes > READ_BYTES_MAX


def size(record: Message) -> int:
    """The memory that a record takes, roughly."""
    parts = [record.key, record.value, *(value for _, value in record.headers)]
    return RECORD_OVERHEAD_BYTES + sum(len(part) for part in parts if part is not None)
