"""The log of one partition: appends batches at its end, drops segments at its start.

Owns log start and end, the rolling of segments, and the state of producers. `chain` owns the files,
`lookup` searches them, `recovery` opens them after a crash. Methods belong to the event loop, and
none waits for a sync but `truncate` and `reset`, which are rare. Bytes written before a round began
(`begin_sync`, its work on a thread, `end_sync`) are durable after it.
"""

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter

from millstream.codec.batch import CONTROL, Header
from millstream.codec.markers import Marker
from millstream.errors import (
    BatchTooLarge,
    DamagedBatch,
    OffsetOutOfRange,
    ReadPending,
    storage_error,
)
from millstream.model import Boundary, Buffer, Offset
from millstream.settings import TopicSettings
from millstream.storage.log import lookup, time_lookup
from millstream.storage.log.cache import LogCache, NotVerified, Verification
from millstream.storage.log.chain import Chain
from millstream.storage.log.health import LogHealth, health_of
from millstream.storage.log.index import POSITION_MAX, RELATIVE_OFFSET_MAX
from millstream.storage.log.producers import Producers
from millstream.storage.log.segment import FileRange, Segment
from millstream.storage.log.snapshots import read_markers, replay
from millstream.storage.log.verifying import BadRange
from millstream.storage.sealing.batches import Sealer
from millstream.storage.sealing.ranges import READ_BYTES_MAX, LogRange, lazily_opened, opened_range

_base_offset = attrgetter("base_offset")
_NO_MARKERS: dict[Offset, Marker] = {}
FOLD_BATCHES = 500  # About 2 us each, and reading their headers about as much.


class Log:
    """Made by `recovery.open_log`. Raises `StorageError` if the disk refuses."""

    __slots__ = (
        "_base_offset",
        "_cache",
        "_chain",
        "_decompressed_bytes_max",
        "_folded_end",
        "_holds",
        "_producer_ids_max",
        "directory",
        "end_offset",
        "is_folded",
        "producers",
        "settings",
        "start_offset",
    )

    def __init__(
        self,
        chain: Chain,
        directory: str,
        *,
        settings: TopicSettings,
        cache: LogCache,
        start_offset: Offset,
        producer_ids_max: int,
        decompressed_bytes_max: int,
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.start_offset = start_offset
        self.end_offset = chain.segments[-1].end_offset if chain.segments else start_offset
        self._chain = chain
        self._cache = cache
        self._producer_ids_max = producer_ids_max
        self._decompressed_bytes_max = decompressed_bytes_max
        self._base_offset: Offset | None = None
        self._holds = 0  # Readers that compaction must not overtake.
        # False while `producers` is behind the log: from a truncation until `fold` is done.
        self.is_folded = False
        self._folded_end: Offset | None = None  # None before a snapshot was loaded.
        self.producers = Producers(producer_ids_max=producer_ids_max)
        while not self.fold():
            pass

    # -- writing -----------------------------------------------------------------------------------

    def append(self, chunks: Sequence[Buffer], headers: Sequence[Header], *, now_ms: int) -> None:
        """Write stamped and verified batches, in order; `chunks` are exactly their bytes.

        Offsets may leave gaps, as compaction on the leader does. Rolls before the write if it must;
        several batches stay together, even where that makes a segment larger than its bound. If the
        disk refuses, nothing has changed and the next append takes the same place.
        """
        assert headers[0].base_offset >= self.end_offset
        settings, chain = self.settings, self._chain
        size = attributes = 0
        for header in headers:
            size += header.size
            attributes |= header.attributes
            if header.size > settings.segment_bytes:
                raise BatchTooLarge(header.size, settings.segment_bytes)
        markers = read_markers(chunks, headers) if attributes & CONTROL else _NO_MARKERS
        end_offset = headers[-1].end_offset
        if size > POSITION_MAX or end_offset - headers[0].base_offset > RELATIVE_OFFSET_MAX:
            self._append_one_by_one(chunks, headers, now_ms)
            return
        active = chain.active
        try:
            if active is None or self._is_full(active, size, end_offset, now_ms):
                has_rolled, active = chain.write_to_next(
                    self.end_offset, chunks, headers, settings.index_interval_bytes
                )
                if has_rolled:
                    self._take_snapshot()
            else:
                chain.write(active, chunks, headers, settings.index_interval_bytes)
        except OSError as problem:
            raise storage_error(problem, self.directory) from problem
        if now_ms < active.opened_ms:
            active.opened_ms = now_ms
        self.end_offset = end_offset
        if self.is_folded:
            for header in headers:
                self.producers.apply(header, markers.get(header.base_offset))

    def roll(self) -> None:
        """Seal the active segment, if there is one; `sealed` lists it after the next round."""
        try:
            if self._chain.roll():
                self._take_snapshot()
        except OSError as problem:
            raise storage_error(problem, self.directory) from problem

    def truncate(self, end_offset: Offset) -> None:
        """Drop all batches from `end_offset` on, which is where one begins.

        Afterwards the log ends where its last batch ends, so at `end_offset` unless there is a gap
        before it, but never before its start. If the disk refuses part-way it ends further on, and
        is whole up to there. Unless `is_folded`, the caller must `fold` before it asks `producers`.
        """
        assert self.start_offset <= end_offset
        if end_offset >= self.end_offset:
            return
        old_end = self.end_offset
        try:
            self._chain.truncate(end_offset)
        except OSError as problem:
            raise storage_error(problem, self.directory) from problem
        finally:
            # Also if the disk refused: `producers` must not know batches that are gone by then, and
            # the next attempt finds nothing to cut there.
            segments = self._chain.segments
            end_offset = segments[-1].end_offset if segments else self.start_offset
            self.end_offset = max(self.start_offset, end_offset)
            self._base_offset = None
            if len(self.producers) or self.producers.aborted(self.end_offset, old_end):
                self.producers = Producers(producer_ids_max=self._producer_ids_max)
                self._folded_end = None
                self.is_folded = False
        with suppress(ReadPending):
            self.fold()  # Most often that is all.

    def reset(self, start_offset: Offset) -> None:
        """Drop everything; go on, empty, at `start_offset`.

        If the disk refuses, old files are left: the log must not be used before it is opened again.
        """
        try:
            self._chain.clear()
        except OSError as problem:
            raise storage_error(problem, self.directory) from problem
        finally:
            self.start_offset = self.end_offset = start_offset
            self._base_offset = None
            self.producers = Producers(producer_ids_max=self._producer_ids_max)
            self.is_folded = True

    def advance_start(self, start_offset: Offset) -> None:
        """Move the log start; whole segments below it leave after the next round."""
        assert start_offset <= self.end_offset
        if start_offset <= self.start_offset:
            return
        self.finish_cut()
        self.start_offset = start_offset
        self._base_offset = None
        self.producers.forget_before(start_offset)
        if self._chain.drop_below(start_offset) > self._chain.snapshots.newest:
            # The producers of those batches would be lost with them.
            self._take_snapshot()

    def finish_cut(self) -> None:
        """Complete a truncation that the disk refused or that `fold` has not followed yet."""
        try:
            self._chain.finish_cut(self.end_offset)
        except OSError as problem:
            raise storage_error(problem, self.directory) from problem
        while not self.fold():
            pass

    def fold(self) -> bool:
        """Take the next batches that `producers` has not seen; True once it has seen them all.

        One call takes about 2 ms, so that the event loop may do other work in between.
        """
        if self.is_folded:
            return True
        if self._folded_end is None:
            self._folded_end, self.producers = self._chain.snapshots.load(
                end_offset=self.end_offset,
                producer_ids_max=self._producer_ids_max,
                soon=self._cache.work_soon,
            )
        span, segments = lookup.Span(self._folded_end, self.end_offset), self._chain.segments
        # The producers of damaged batches are lost; all others are still served.
        unseen = lookup.headers_between(self._cache, segments, span, leaves_damage_out=True)
        steps = lookup.one_step(unseen, FOLD_BATCHES)
        for end_offset in replay(self.producers, steps, self._chain.sealer):
            self._folded_end = end_offset
        if next(unseen, None) is None:
            self.producers.forget_before(self.start_offset)
            self.is_folded = True
        return self.is_folded

    # -- reading -----------------------------------------------------------------------------------

    @property
    def base_offset(self) -> Offset:
        """Where the batch begins that contains the log start; else the log start."""
        if self._base_offset is None:
            start = self.start_offset
            try:
                first = next(self.batches(start, start + 1), None)
            except DamagedBatch as problem:
                self._base_offset = min(problem.base_offset, start)
            else:
                self._base_offset = start if first is None else min(first.base_offset, start)
        return self._base_offset

    def read(
        self,
        offset: Offset,
        *,
        bytes_max: int,
        end_offset: Offset,
        verified_bytes_max: int | None = None,
    ) -> LogRange | None:
        """Whole batches from the one that contains `offset`, or the next one behind a gap.

        As many as fit into `bytes_max`, but at least one; none that ends behind `end_offset`. None
        if there is nothing to read, `OffsetOutOfRange` if the log does not reach there. They were
        verified since the node started: `DamagedBatch` if the first fails that. Raises
        `NotVerified` if more than `verified_bytes_max` are yet to be verified.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(self.directory, offset, self.start_offset, self.end_offset)
        if end_offset > self.end_offset:
            end_offset = self.end_offset
        if offset >= end_offset:
            return None
        segments = self._chain.segments
        segment = segments[-1]
        if offset < segment.base_offset:
            segment = segments[bisect_right(segments, offset, key=_base_offset) - 1]
        if segment.failure is not None:
            raise type(segment.failure)(str(segment.failure))
        if (
            verified_bytes_max is not None
            and segment.table is None
            and segment.size > verified_bytes_max
            and (rebuild := self._cache.rebuild(segment)) is not None
        ):
            raise NotVerified(rebuild)
        view = self._cache.view(segment)
        if segment.unverified is not None and verified_bytes_max is not None:
            work = lookup.unverified(view, offset, bytes_max)
            if work is not None and work.size > verified_bytes_max:
                raise NotVerified(work)
        sealer = self._chain.sealer
        if sealer is None:
            return lookup.read_range(view, offset, bytes_max, end_offset)
        stored = lookup.read_range(view, offset, min(bytes_max, READ_BYTES_MAX), end_offset)
        return opened_range(stored, sealer, self._cache.on_damage)

    def offset_for_time(self, timestamp_ms: int, *, end_offset: Offset) -> time_lookup.Steps:
        """Offset and timestamp of the first record that is not older than `timestamp_ms`."""
        return time_lookup.first_at_time(
            partial(self._searched, end_offset), timestamp_ms, self._decompressed_bytes_max
        )

    def batch_for_time(self, timestamp_ms: int, *, end_offset: Offset) -> time_lookup.BatchSteps:
        """The first batch that claims a record that is not older, by its header alone."""
        return time_lookup.batch_at_time(partial(self._searched, end_offset), timestamp_ms)

    def offset_of_max_timestamp(self, *, end_offset: Offset) -> time_lookup.Steps:
        """Offset and timestamp of the newest record; None if no record has a timestamp."""
        searched = partial(self._searched, end_offset)
        return time_lookup.newest(searched, self._decompressed_bytes_max)

    def tail(self, count: int, *, end_offset: Offset) -> Generator[None, None, Offset]:
        """Where to start reading for the last `count` records before `end_offset`, in steps."""
        tail = lookup.Tail(self._span(end_offset).end_offset, count)
        while True:
            start = self.start_offset
            tail = lookup.extend_tail(self._cache, self._chain.segments, tail, start_offset=start)
            if tail.missing <= 0:
                return tail.offset
            yield

    def batches(self, start: Offset, end: Offset) -> Iterator[Header]:
        """Headers of the batches that have offsets in `start` to `end`, unverified."""
        headers = lookup.headers_between(self._cache, self._chain.segments, lookup.Span(start, end))
        return (header for _, _, header in headers)

    def use_cache(self, cache: LogCache) -> None:
        """Use the node's cache from here on, and report damage that was noticed before."""
        self._cache = cache
        self._chain.use_cache(cache)

    def verify(self) -> int:
        """Read everything and check every checksum; the number of batches, or `DamagedLog`."""
        return sum(self.contents(segment).verify() for segment in self._chain.segments)

    # -- segments ----------------------------------------------------------------------------------

    @property
    def active(self) -> Segment | None:
        """The segment that appends go to; None before the first append and after a roll."""
        return self._chain.active

    def sealed(self) -> list[Segment]:
        """Oldest first, the segments that retention and compaction may work on.

        They are sealed, synced and indexed; one sealed a moment ago joins after the next round.
        """
        return self._chain.sealed()

    @property
    def is_held(self) -> bool:
        return self._holds > 0

    def hold(self) -> None:
        """Let no compaction change this log until `release`.

        A reader that folds the log from its start holds it: compaction may drop a tombstone that
        the reader has not come to, after the reader has taken the record that it is for.
        """
        self._holds += 1

    def release(self) -> None:
        assert self._holds > 0
        self._holds -= 1

    @property
    def sealer(self) -> Sealer | None:
        """Encrypts what is written, and opens it; None: nothing ever was encrypted."""
        return self._chain.sealer

    def opened(self, segment: Segment) -> LogRange:
        """All batches of a segment, to be read from any thread: see `FileRange.batches`."""
        return lazily_opened(self.contents(segment), self.sealer, self._cache.on_damage)

    def contents(self, segment: Segment) -> FileRange:
        """The same as they are stored."""
        assert segment in self._chain.segments
        file = self._cache.file(segment)
        return FileRange(file, 0, segment.size, segment.base_offset, segment.end_offset)

    def segments(self) -> list[Segment]:
        return list(self._chain.segments)

    def begin_replace(self, old: Sequence[Segment]) -> Callable[[], None]:
        """Give up the index whose name a replacement of `old` will get, before `replace`.

        Returns what makes that durable, for a thread; it raises `OSError`.
        """
        try:
            return self._chain.begin_replace(old)
        except OSError as problem:
            raise storage_error(problem, self.directory) from problem

    def replace(self, old: Sequence[Segment], new: Segment) -> bool:
        """Put `new`, which `Replacement.finish` made, in the place of consecutive `sealed` ones.

        False, and nothing changes, if the log no longer holds all of `old`: a truncation, retention
        or another compaction was faster; or if it is held. Old files leave after the next round;
        readers may finish.
        """
        try:
            if self._holds:
                self._chain.discard(new)
                return False
            is_done = self._chain.replace(old, new)
        except OSError as problem:
            raise storage_error(problem, self.directory) from problem
        self._base_offset = None
        return is_done

    def verification(
        self, segment: Segment, *, again: bool = False, boundaries: Sequence[Boundary] = ()
    ) -> Verification | None:
        """The work of verifying a sealed segment; None if there is nothing to do.

        With `again` also bytes verified since the start, with the epochs of `boundaries`.
        """
        if segment.size == 0 or (segment.unverified is None and not again):
            return None
        view = self._cache.view(segment)
        if again:
            return view.verification_again(boundaries, sealer=self.sealer)
        return view.verification(0, segment.size)

    def verification_step(
        self, segment: Segment, start: int, end: int, *, boundaries: Sequence[Boundary]
    ) -> Verification:
        """The same for a part of it, from where a stretch begins to `end`."""
        view = self._cache.view(segment)
        return view.verification_again(boundaries, start, end, sealer=self.sealer)

    def segment_at(self, offset: Offset) -> Segment:
        """The segment whose offsets have `offset` among them."""
        segments = self._chain.segments
        return segments[max(0, bisect_right(segments, offset, key=_base_offset) - 1)]

    def damage(self) -> list[BadRange]:
        """Known damage that is not below the log start, oldest first."""
        segments, start = self._chain.segments, self.start_offset
        return [bad for part in segments for bad in part.damage if bad.end_offset > start]

    def health(self) -> LogHealth:
        chain = self._chain
        return health_of(chain.segments, self.start_offset, self.end_offset, len(chain.unproven))

    # -- durability --------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Whether a power cut could take something back."""
        return self._chain.is_dirty

    def begin_sync(self) -> Callable[[], None] | None:
        """Work for a worker thread, after the journal's: makes durable all that is there now.

        It raises `OSError` if that failed, and then nothing may count as durable. The loop may go
        on with the log meanwhile, but begin no second round. None if there is nothing to do.
        """
        return self._chain.begin_sync()

    def end_sync(self) -> None:
        """Back on the loop, after the work succeeded. Never raises."""
        self._chain.end_sync()

    def close(self, *, scanned_bytes_max: int = 0) -> None:
        """Close so that opening again scans at most so many bytes. Blocks for a sync."""
        try:
            if self._chain.active_bytes > scanned_bytes_max and self._chain.roll():
                self._take_snapshot()
            self._chain.close()
        except OSError as problem:
            raise storage_error(problem, self.directory) from problem

    def abandon(self) -> None:
        """Let go of all files, write nothing. A round that is under way may still finish."""
        self._chain.abandon()

    # -- parts -------------------------------------------------------------------------------------

    def _append_one_by_one(
        self, chunks: Sequence[Buffer], headers: Sequence[Header], now_ms: int
    ) -> None:
        """What no segment can hold together, because compaction left billions of offsets out."""
        data = memoryview(b"".join(chunks))
        for header in headers:
            self.append([data[: header.size]], [header], now_ms=now_ms)
            data = data[header.size :]

    def _span(self, end_offset: Offset) -> lookup.Span:
        return lookup.Span(self.start_offset, min(end_offset, self.end_offset))

    def _searched(self, end_offset: Offset) -> time_lookup.Searched:
        chain, span = self._chain, self._span(end_offset)
        return time_lookup.Searched(self._cache, chain.segments, span, chain.sealer)

    def _is_full(self, active: Segment, size: int, end_offset: Offset, now_ms: int) -> bool:
        """Whether batches of `size` bytes up to `end_offset` need another segment."""
        settings, age_ms = self.settings, now_ms - active.opened_ms
        return active.size > 0 and (
            active.size + size > settings.segment_bytes
            or age_ms >= settings.segment_ms
            or (age_ms >= settings.max_compaction_lag_ms // 2 and settings.cleanup_policy.compacts)
            or end_offset - active.base_offset > RELATIVE_OFFSET_MAX
        )

    def _take_snapshot(self) -> None:
        if self.is_folded:  # Else it would leave out batches that are not folded yet.
            self._chain.snapshots.take(self.end_offset, self.producers)
