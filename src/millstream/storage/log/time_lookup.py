"""Finds records by time: the first at or after a timestamp, and the newest.

The headers of batches lead to the batch, in steps of `STEP_HEADERS` on the event loop. The batch is
then read and decoded by a `BatchSearch`, which belongs on a thread: a few bytes may unpack to many
MiB. The log may change between two steps; each step searches it as it is then.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

from millstream.codec.batch import Header, read_header, verify_batch
from millstream.codec.records import Record, decode_each
from millstream.errors import CorruptBatch, DamagedLog, InvalidBatch, RequestError
from millstream.model import Offset
from millstream.storage.log.cache import LogCache, View
from millstream.storage.log.index import NO_TIMESTAMP
from millstream.storage.log.lookup import STEP_HEADERS, Span, first_behind, step_cost
from millstream.storage.log.segment import FileRange, Segment
from millstream.storage.sealing.batches import Sealer
from millstream.storage.sealing.ranges import LogRange, lazily_opened


class Searched(NamedTuple):
    """A log as it is at one step of a search."""

    cache: LogCache
    segments: Sequence[Segment]
    span: Span
    sealer: Sealer | None = None

    def behind(self, offset: Offset) -> "Searched":
        start_offset = max(self.span.start_offset, offset)
        return self._replace(span=Span(start_offset, self.span.end_offset))


class Progress(NamedTuple):
    """A step has ended before its search has."""

    offset: Offset  # All batches before it were looked at.
    max_timestamp: int = NO_TIMESTAMP  # Of those.


class BatchSearch:
    """A batch to be searched for one record, on a thread."""

    __slots__ = ("_batch", "_bytes_max", "_choose", "_start_offset", "record")

    def __init__(
        self,
        batch: LogRange,
        choose: Callable[[Iterator[Record]], Record | None],
        start_offset: Offset,
        decompressed_bytes_max: int,
    ) -> None:
        self.record: Record | None = None  # The outcome.
        self._batch = batch
        self._choose = choose
        self._start_offset = start_offset
        self._bytes_max = decompressed_bytes_max

    @property
    def size(self) -> int:
        return self._batch.size

    def run(self) -> None:
        """Blocks; touches the file only.

        A checksum that is wrong is the disk's fault and `DamagedLog`. Records that contradict a
        header under a right checksum are their producer's: they must not cost everyone else the
        partition, so the header stands for them.
        """
        data = self._batch.read()
        try:
            verify_batch(data)
        except (CorruptBatch, InvalidBatch) as problem:
            raise DamagedLog(f"batch at offset {self._batch.base_offset}: {problem}") from problem
        try:
            self.record = self._choose(self._visible(data))
        except RequestError:
            header = read_header(data)
            substitute = Record(header.base_offset, header.max_timestamp, None, None)
            self.record = self._choose(
                record for record in [substitute] if self._is_visible(record)
            )

    def _visible(self, data: bytes) -> Iterator[Record]:
        records = decode_each(data, decompressed_bytes_max=self._bytes_max)
        return (record for record in records if self._is_visible(record))

    def _is_visible(self, record: Record) -> bool:
        return record.offset >= self._start_offset


# Yields between two steps: None, or a batch that must be searched before the next step.
Steps = Generator[BatchSearch | None, None, tuple[Offset, int] | None]
BatchSteps = Generator[None, None, LogRange | None]


def first_at_time(
    searched: Callable[[], Searched], timestamp: int, decompressed_bytes_max: int
) -> Steps:
    """Offset and timestamp of the first record with a timestamp at or after `timestamp`."""

    def choose(records: Iterator[Record]) -> Record | None:
        return next((record for record in records if record.timestamp >= timestamp), None)

    offset = 0
    while (batch := (yield from batch_at_time(searched, timestamp, offset))) is not None:
        search = BatchSearch(batch, choose, searched().span.start_offset, decompressed_bytes_max)
        yield search
        if search.record is not None:
            return search.record.offset, search.record.timestamp
        offset = batch.end_offset  # Its header promised more than its records keep.
    return None


def newest(searched: Callable[[], Searched], decompressed_bytes_max: int) -> Steps:
    """Offset and timestamp of the first record with the greatest timestamp; None if none has one.

    Trusts the batch headers to find the batch, as Kafka does.
    """
    progress = Progress(0)
    while isinstance(
        step := _max_timestamp(searched().behind(progress.offset), progress.max_timestamp), Progress
    ):
        progress = step
        yield None
    if step == NO_TIMESTAMP:
        return None
    batch = yield from batch_at_time(searched, step)
    if batch is None:
        return None
    search = BatchSearch(batch, _newest_of, searched().span.start_offset, decompressed_bytes_max)
    yield search
    return None if search.record is None else (search.record.offset, search.record.timestamp)


def batch_at_time(
    searched: Callable[[], Searched], timestamp: int, offset: Offset = 0
) -> BatchSteps:
    """The first batch from `offset` on that claims a record at or after `timestamp`."""
    while isinstance(step := _batch_at_time(searched().behind(offset), timestamp), Progress):
        offset = step.offset
        yield
    return step


def _newest_of(records: Iterator[Record]) -> Record | None:
    return max(records, key=lambda record: record.timestamp, default=None)


def _batch_at_time(searched: Searched, timestamp: int) -> LogRange | Progress | None:
    """One step: the first batch that claims a record at or after `timestamp`."""
    cache, segments, span, sealer = searched
    cost = 0
    for segment in segments:
        if segment.base_offset >= span.end_offset:
            return None
        if segment.max_timestamp < timestamp or segment.end_offset <= span.start_offset:
            continue
        view = cache.view(segment)
        if not view.table:
            continue
        start = view.table.positions[view.table.floor_time(timestamp)]
        for position, header in _from(view, start, span.start_offset):
            if header.end_offset > span.end_offset:
                return None
            if header.count and header.max_timestamp >= timestamp:
                base, end = header.base_offset, header.end_offset
                place = None if sealer is None else segment
                batch = FileRange(view.file, position, header.size, base, end, place)
                return lazily_opened(batch, sealer, view.report)
            cost += step_cost(view, header)
            if cost >= STEP_HEADERS:
                return Progress(header.end_offset)
    return None


def _max_timestamp(searched: Searched, known: int) -> int | Progress:
    """One step: the greatest timestamp in the span, or `known` if that is greater, by headers."""
    cache, segments, span, _ = searched
    cost = 0
    for segment in segments:
        if segment.base_offset >= span.end_offset:
            break
        if segment.max_timestamp <= known or segment.end_offset <= span.start_offset:
            continue
        position = 0
        if span.start_offset <= segment.base_offset:
            if segment.end_offset <= span.end_offset:
                known = segment.max_timestamp
                continue
            table = cache.view(segment).table
            index = table.floor_offset(span.end_offset)
            position, known = table.positions[index], max(known, table.times[index])
        view = cache.view(segment)
        for _, header in _from(view, position, span.start_offset):
            if header.end_offset > span.end_offset:
                break
            if header.count:
                known = max(known, header.max_timestamp)
            cost += step_cost(view, header)
            if cost >= STEP_HEADERS:
                return Progress(header.end_offset, known)
    return known


def _from(view: View, position: int, start_offset: Offset) -> Iterator[tuple[int, Header]]:
    """Walk from `position`, or from where `start_offset` is if that lies behind it."""
    if start_offset > view.segment.base_offset:
        place = first_behind(view, start_offset)
        position = max(position, view.segment.size if place is None else place[0])
    return view.headers(position, view.segment.size, after=start_offset)
