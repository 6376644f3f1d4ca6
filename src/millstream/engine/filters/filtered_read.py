"""Reads a partition through filters: views, filters of a request, and times to live.

Owns the filtered batches of one request, and how much of the log is scanned for it. Offsets do not
move. A range without a match ends with a skip marker, a control batch that takes its last offset:
every Kafka client steps over those and goes on behind, while an empty batch makes librdkafka ask
for larger answers and kafkajs jump to the end. A request scans no more than `SCAN_BYTES_MAX`, for
no longer than `SCAN_S_MAX`; the matches by then are the answer, so readers always move.

Where the log has an index of keys or headers, and every match must have certain ones, batches that
cannot match are passed over without reading them. The answer is the same, but for control batches:
of those passed over, a reader gets the markers that end the aborted transactions it was told of.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import NamedTuple

from millstream.codec.batch import Header, read_header, verify_batch
from millstream.codec.lifetime import Lifetime
from millstream.codec.markers import ControlKind, encode_marker
from millstream.codec.records import (
    NO_REQUIRED_SUBSTRINGS,
    Record,
    RequiredSubstrings,
    verify_and_unpack_small,
)
from millstream.codec.rewrite import filter_steps
from millstream.cooperative import all_at_once
from millstream.engine.filters.filter import Filter
from millstream.engine.partitions.slices import (
    ANY_EPOCH,
    FilteredBatches,
    Slice,
    Want,
    visible_end,
)
from millstream.engine.produce.unpacking import Unpacking
from millstream.errors import (
    CorruptBatch,
    DamagedLog,
    InvalidBatch,
    RequestError,
    StorageError,
    StorageUnavailable,
)
from millstream.model import Isolation, Offset
from millstream.replication.indexing import Indexer
from millstream.replication.replica import Replica
from millstream.storage.log.aborted import Aborted
from millstream.storage.log.index import NO_TIMESTAMP
from millstream.storage.sealing.ranges import LogRange
from millstream.storage.secondary_index.log_index import LAST_OFFSET, estimated_bytes
from millstream.storage.secondary_index.search import Candidates
from millstream.storage.secondary_index.terms import EveryTerm, Terms

SCAN_BYTES_MAX = 8 * 2**20  # For one request; shared by its partitions.
SCAN_BYTES_MIN = 256 * 2**10  # A partition's share, however many there are.
SCAN_S_MAX = 0.25  # The same in time. The current batch is finished.
SCAN_S_MIN = 0.01
CHUNK_BYTES = 128 * 2**10  # Read at once.
TURN_S = 0.001  # Before other tasks get a turn of the loop.
NEAR_OFFSETS = 100  # Batches that can match and are so near to each other are read together.

# Bytes at most, whether one larger batch may exceed them, and whether it is to be one batch.
ReadChunk = Callable[[Want, int, bool, bool], Slice]


class ReadFilter(NamedTuple):
    """The filters and the time to live that apply to one read of a topic."""

    topic: str  # Its name is the subject of records without one.
    filters: tuple[Filter, ...] = ()
    lifetime: Lifetime | None = None

    def at(self, now_ms: int, ended: Callable[[], object]) -> Callable[[Record], bool]:
        """A test whether a record passes at that time; `ended` is called for an expired one."""
        topic, filters, lifetime = self.topic, self.filters, self.lifetime
        if lifetime is None and len(filters) == 1:
            matches = filters[0].matches
            return lambda record: matches(record, topic)

        def passes(record: Record) -> bool:
            if lifetime is not None and lifetime.ends_ms(record) <= now_ms:
                ended()
                return False
            return all(each.matches(record, topic) for each in filters)

        return passes

    @property
    def required(self) -> RequiredSubstrings:
        """Those of one filter are enough: a record must pass all filters."""
        return next(
            (each.required for each in self.filters if each.required.texts), NO_REQUIRED_SUBSTRINGS
        )

    @property
    def terms(self) -> Terms | None:
        """The keys and header values that every record that passes has, as far as is known."""
        known = tuple(each.terms for each in self.filters if each.terms is not None)
        return EveryTerm(known) if known else None

    def prefilter(self, header: Header, data: bytes, now_ms: int) -> bool | None:
        """Whether all records of a batch pass, or none; None if each must be tested."""
        if not all(each.may_match(data) for each in self.filters):
            return False
        lifetime = self.lifetime
        if self.filters or (lifetime and not lifetime.none_has_ended(header, data, now_ms)):
            return None
        return True


class Share(NamedTuple):
    """How much of one partition is scanned for a request."""

    bytes_max: int
    seconds_max: float


def share_of(count: int) -> Share:
    """The share of each of `count` partitions."""
    return Share(
        max(SCAN_BYTES_MIN, SCAN_BYTES_MAX // max(1, count)),
        max(SCAN_S_MIN, SCAN_S_MAX / max(1, count)),
    )


class BatchFinder:
    """Finds the batches of a log that can hold a match, by its index of keys and headers."""

    def __init__(self, replica: Replica, terms: Terms, indexer: Indexer, isolation: Isolation):
        self._replica = replica
        self._terms = terms
        self._indexer = indexer
        self._isolation = isolation

    async def find(self, offset: Offset) -> Candidates | None:
        end_offset = visible_end(self._replica, self._isolation)
        return await self._indexer.search(self._replica, self._terms, offset, end_offset)

    def size_between(self, start: Offset, end: Offset) -> int:
        return estimated_bytes(self._replica.log, start, end)


class FilteredRead:
    """One want that is read through a filter: the offset reached, and the batches that passed."""

    def __init__(
        self, want: Want, read_filter: ReadFilter, share: Share, unpacking: Unpacking
    ) -> None:
        self.is_spent = False  # No more is scanned for this request.
        self.is_behind = False  # The log has moved since the scan.
        self.problem: RequestError | None = None
        self.passed_bytes = 0
        self.expired = 0  # Records left out since the last count in the metrics.
        self.filtered = 0
        self.read_bytes = 0  # Of the log.
        self.skipped_bytes = 0  # Of the log, passed over by an index; an estimate.
        self._want = want
        self._read_filter = read_filter
        self._left = share.bytes_max
        self._seconds_max = share.seconds_max
        self._unpacking = unpacking
        self._passed: list[bytes] = []
        self._passed_end = want.offset
        self._offset = want.offset
        self._last: Header | None = None  # The batch that was scanned last.
        self._aborted: dict[Aborted, None] = {}
        self._seen: tuple[Offset, Offset] | None = None
        self._candidates: Candidates | None = None
        self._find_at = want.offset  # From here on the index is asked.
        self._markers: list[Offset] = []  # A heap: they end the transactions in `_aborted`.
        self._reads_one = False  # The next batch that can match has none near it.

    @property
    def topic(self) -> str:
        """As the reader calls it: a view, or a topic with a filter."""
        return self._want.target.topic

    @property
    def terms(self) -> Terms | None:
        return self._read_filter.terms

    @property
    def next_want(self) -> Want:
        """The want at the offset reached; only the first one checks the reader's last epoch."""
        if self._offset == self._want.offset:
            return self._want
        return self._want._replace(offset=self._offset, last_epoch=ANY_EPOCH)

    async def scan(
        self,
        read: ReadChunk,
        *,
        bytes_max: int,
        may_exceed: bool,
        now_ms: int,
        finder: BatchFinder | None = None,
    ) -> None:
        """Scan until there are enough bytes, the log ends or the share is used up.

        With `may_exceed` the first batch that passes may be larger than `bytes_max`.
        """
        limit = min(self._want.bytes_max, bytes_max)
        turn = _Turn(self._seconds_max)
        try:
            while not self.is_spent:
                if finder is not None and not await self._pass_over(read, finder):
                    return
                room = max(0, min(CHUNK_BYTES, limit - self.passed_bytes))
                may_exceed_now = may_exceed and not self._passed
                part = read(self.next_want, room, may_exceed_now, self._reads_one)
                self._seen = part.high_watermark, part.last_stable_offset
                if part.records is None:
                    return
                self.read_bytes += part.records.size
                self._note_aborted(part.aborted)
                await self._filter_chunk(part.records, now_ms, turn)
        except StorageError as problem:
            self.problem = StorageUnavailable(str(problem))
        except RequestError as problem:
            self.problem = problem

    async def _pass_over(self, read: ReadChunk, finder: BatchFinder) -> bool:
        """Move to the next batch that can match; False if the reader's log diverges from this."""
        self._reads_one = False
        while True:
            if self._offset >= self._find_at:
                self._candidates = await finder.find(self._offset)
                self._find_at = (
                    LAST_OFFSET if self._candidates is None else self._candidates.ask_again_at
                )
            candidates = self._candidates
            if candidates is None or self._offset >= candidates.end_offset:
                if self._offset >= self._find_at:
                    continue
                return True
            target, following = self._next_candidate(candidates)
            if target > self._offset:
                # What is wrong with the want shows in a read of its own offset only.
                is_first = self._offset == self._want.offset
                if is_first and read(self._want, 0, False, True).diverging is not None:
                    return False
                self.skipped_bytes += finder.size_between(self._offset, target)
                self._offset = target
            if target < candidates.end_offset:
                self._reads_one = following - target > NEAR_OFFSETS
                return True

    def _next_candidate(self, candidates: Candidates) -> tuple[Offset, Offset]:
        """Where the next batch that must be read begins, and the one behind it."""
        while self._markers and self._markers[0] < self._offset:
            heappop(self._markers)
        at = bisect_left(candidates.offsets, self._offset)
        ahead = [*candidates.offsets[at : at + 2], candidates.end_offset, *self._markers[:1]]
        ahead.sort()
        return ahead[0], ahead[1] if len(ahead) > 1 else ahead[0]

    def _note_aborted(self, aborted: Sequence[Aborted]) -> None:
        """A reader drops the records of a producer until it sees the marker of the transaction."""
        for transaction in aborted:
            if transaction not in self._aborted:
                self._aborted[transaction] = None
                heappush(self._markers, transaction.last_offset)

    def result(self, ahead: Slice, epoch_at: Callable[[Offset], int | None]) -> Slice:
        """The slice for the reader, with the watermarks of `ahead`."""
        self.is_behind = self._seen != (ahead.high_watermark, ahead.last_stable_offset)
        chunks = list(self._passed)
        if self._offset > self._passed_end:
            chunks.append(self._skip_marker(epoch_at))
        if not chunks:
            return ahead._replace(records=None)
        batches = FilteredBatches(
            b"".join(chunks),
            self.passed_bytes,
            self._want.offset,
            self._offset,
            self.read_bytes,
            self.skipped_bytes,
        )
        return ahead._replace(records=batches, aborted=tuple(self._aborted))

    async def _filter_chunk(
        self, chunk: LogRange | FilteredBatches, now_ms: int, turn: "_Turn"
    ) -> None:
        for header, batch in _batches(chunk.read()):
            await self._take(header, batch, now_ms, turn)
            self._offset = header.end_offset
            if self._left <= 0 or turn.is_over:
                self.is_spent = True
                return
        self._offset = chunk.end_offset

    async def _take(self, header: Header, batch: memoryview, now_ms: int, turn: "_Turn") -> None:
        self._last = header
        self._left -= header.size
        kept = bytes(batch) if header.is_control else None
        if header.count and not header.is_control:
            expired = self.expired
            kept = await self._kept(header, batch, now_ms, turn)
            lost = header.count - (0 if kept is None else read_header(kept).count)
            self.filtered += lost - (self.expired - expired)
        if kept is not None:
            self._passed.append(kept)
            self.passed_bytes += len(kept)
            self._passed_end = read_header(kept).end_offset
        await turn.give()

    async def _kept(
        self, header: Header, batch: memoryview, now_ms: int, turn: "_Turn"
    ) -> bytes | None:
        read_filter = self._read_filter
        if read_filter.lifetime is not None and read_filter.lifetime.all_have_ended(header, now_ms):
            self.expired += header.count
            return None

        def prefilter(data: bytes) -> bool | None:
            self._left -= len(data)  # A compressed batch costs its uncompressed bytes.
            return read_filter.prefilter(header, data, now_ms)

        bytes_max = self._unpacking.bytes_max
        make_steps = partial(
            filter_steps,
            batch,
            read_filter.at(now_ms, self._ended),
            decompressed_bytes_max=bytes_max,
            prefilter=prefilter,
            required=read_filter.required,
            trims=True,  # librdkafka commits behind records and control batches only.
        )
        try:
            unpacked = verify_and_unpack_small(batch, 0, bytes_max)
            if unpacked is None:
                kept = await self._unpacking.run(
                    lambda: all_at_once(make_steps()), packed_bytes=header.size
                )
                turn.begin()
                return kept
            steps = make_steps(unpacked=unpacked)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    result: bytes | None = end.value
                    return result
                await turn.give()
        except RequestError as problem:
            # The checksum is right, so a producer wrote this batch. With a filter its records
            # cannot be tested, so none passes. Without one only their age is unknown.
            if not read_filter.filters:
                return bytes(batch)
            target = self._want.target
            self._unpacking.report("filter", target, header.base_offset, problem)
            return None

    def _ended(self) -> None:
        self.expired += 1

    def _skip_marker(self, epoch_at: Callable[[Offset], int | None]) -> bytes:
        last = self._last
        if last is not None and last.end_offset == self._offset:
            epoch: int | None = last.epoch
        else:
            epoch = epoch_at(self._offset - 1)
        return encode_marker(
            ControlKind.COMMIT,
            producer_id=-1,  # Of no transaction.
            producer_epoch=-1,
            coordinator_epoch=0,
            timestamp=NO_TIMESTAMP if last is None else last.max_timestamp,
            base_offset=self._offset - 1,
            # A reader sends it back with its next request.
            epoch=ANY_EPOCH if epoch is None else epoch,
        )


class _Turn:
    """Lets other tasks run every `TURN_S`, and says when the read's time is over."""

    def __init__(self, seconds_max: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + seconds_max
        self._until = self._loop.time() + TURN_S

    @property
    def is_over(self) -> bool:
        return self._loop.time() >= self._ends

    async def give(self) -> None:
        if self._loop.time() >= self._until:
            await asyncio.sleep(0)
            self.begin()

    def begin(self) -> None:
        """Start a turn: other tasks have just run."""
        self._until = self._loop.time() + TURN_S


def _batches(data: bytes) -> Iterator[tuple[Header, memoryview]]:
    view = memoryview(data)
    at = 0
    while at < len(data):
        try:
            header = verify_batch(data, at)
        except (CorruptBatch, InvalidBatch) as problem:
            raise DamagedLog(f"a batch is not what was written: {problem}") from problem
        yield header, view[at : at + header.size]
        at += header.size
