"""The secondary indexes of one log: which segments have one, which is built next, and searches.

Owns the order of the work and the names of the files; belongs to the event loop, and what it
returns as work runs on a thread. Segments that were begun are finished first, then the active one
is followed, then older segments are indexed, the newest first: so there are few builders at a time.

Invariant: an index is only used for the segment that it was opened or built for. Truncation,
retention and compaction put other segments into the log; the indexes of those that are gone are
forgotten, and never searched again.
"""

import logging
from typing import NamedTuple, Protocol

from millstream.errors import DamagedBatch, DamagedLog, StorageError
from millstream.model import Offset
from millstream.ports import Files
from millstream.storage.log.cache import NotVerified
from millstream.storage.log.log import Log
from millstream.storage.log.segment import Segment
from millstream.storage.log.verifying import INLINE_BYTES_MAX
from millstream.storage.secondary_index.builder import STEP_BYTES, Builder, Seal, Source
from millstream.storage.secondary_index.format import StoredRun
from millstream.storage.secondary_index.search import (
    Directories,
    Search,
    SegmentIndex,
    open_index,
)
from millstream.storage.secondary_index.terms import IndexedFields, Terms, answerable

_log = logging.getLogger(__name__)

LAST_OFFSET = 2**63 - 1  # Behind all records.


class Work(Protocol):
    """A `LongWork`: `run` blocks and touches files only, the others run on the loop."""

    @property
    def size(self) -> int: ...

    def run(self) -> None: ...

    def fail(self, problem: StorageError) -> None: ...

    def finish(self) -> None: ...


class IndexFigures(NamedTuple):
    """Figures of the secondary indexes of a log, for operators."""

    size_bytes: int = 0
    entry_count: int = 0
    missing_bytes: int = 0  # Of the log, that a filtered read has to scan.


class _Known:
    """What is known of the index of one segment."""

    __slots__ = ("builder", "index", "is_hopeless", "is_opened")

    def __init__(self) -> None:
        self.is_opened = False  # Whether the disk was asked.
        self.index: SegmentIndex | None = None
        self.builder: Builder | None = None
        self.is_hopeless = False  # Damage, which only another segment in its place ends.


class LogIndex:
    def __init__(
        self,
        log: Log,
        files: Files,
        fields: IndexedFields,
        *,
        directories: Directories,
        decompressed_bytes_max: int,
    ) -> None:
        self.fields = fields
        self._log = log
        self._files = files
        self._directories = directories
        self._decompressed_bytes_max = decompressed_bytes_max
        self._known: dict[Segment, _Known] = {}

    # -- building ----------------------------------------------------------------------------------

    def change_fields(self, fields: IndexedFields) -> None:
        """Build anew for these; indexes on disk are used for what they have until then."""
        self.fields = fields
        for known in self._known.values():
            if known.builder is not None:
                known.builder.discard()
                known.builder = None

    def next_work(self, end_offset: Offset) -> Work | None:
        """What to do next for records before `end_offset`; None if all is indexed.

        Raises `StorageError` if the log cannot be read for now.
        """
        segments = self._follow()
        for segment in segments:
            if not self._known[segment].is_opened:
                return _Opening(self, segment)
        begun = [segment for segment in segments if self._known[segment].builder is not None]
        active = self._log.active
        first = [segment for segment in begun if segment is not active]
        follow = [segment for segment in segments if segment is active]
        for segment in (*first, *follow, *reversed(segments)):
            work = self._work_on(segment, end_offset)
            if work is not None:
                return work
        return None

    def forget(self) -> list[str]:
        """Forget everything; return the files that can be removed."""
        paths = []
        for segment, known in self._known.items():
            paths.append(segment.terms_path)
            self._drop(known)
        self._known.clear()
        return paths

    def close(self) -> None:
        """After the log was closed: complete the index of its last segment. Blocks."""
        for segment, known in self._known.items():
            builder = known.builder
            if builder is None or not segment.is_proven or builder.is_failed:
                continue
            if builder.end_offset == segment.end_offset:
                try:
                    builder.seal().run()
                    self._files.rename(builder.path, segment.terms_path)
                except (OSError, StorageError) as problem:
                    _log.warning("index not saved path=%s problem=%s", builder.path, problem)

    def _follow(self) -> list[Segment]:
        """The segments of the log, oldest first; what is known of others is forgotten."""
        log = self._log
        segments = log.sealed()
        if log.active is not None and log.active.size:
            segments.append(log.active)
        listed = set(segments)
        for segment in [segment for segment in self._known if segment not in listed]:
            if not _is_held(log, segment):
                self._drop(self._known.pop(segment))
            else:
                segments.append(segment)  # Sealed a moment ago, and not synced yet.
        for segment in segments:
            if segment not in self._known:
                self._known[segment] = _Known()
        return sorted(segments, key=lambda segment: segment.base_offset)

    def _drop(self, known: _Known) -> None:
        if known.builder is not None:
            known.builder.discard()
        if known.index is not None:
            self._directories.forget(known.index)

    def _work_on(self, segment: Segment, end_offset: Offset) -> Work | None:
        known, log = self._known[segment], self._log
        if known.is_hopeless or self._is_complete(segment, known):
            return None
        builder = known.builder
        if builder is not None and builder.is_failed:
            builder.discard()
            builder = None
        if builder is None:
            builder = known.builder = Builder(
                self._files,
                segment,
                self.fields,
                decompressed_bytes_max=self._decompressed_bytes_max,
            )
            index = known.index
            if index is not None and index.fields == self.fields:
                return _Resuming(builder, index)  # The segment has grown since.
        end = min(end_offset, segment.end_offset)
        if builder.end_offset >= segment.end_offset:
            is_sealed = segment is not log.active and segment.is_proven
            return _Sealing(self, builder.seal()) if is_sealed else None
        start = max(builder.end_offset, log.start_offset)
        if start >= end:
            return None
        try:
            chunk = log.read(
                start, bytes_max=STEP_BYTES, end_offset=end, verified_bytes_max=INLINE_BYTES_MAX
            )
        except NotVerified as not_yet:
            return not_yet.work
        except (DamagedBatch, DamagedLog) as problem:
            self._give_up(segment, problem)
            return None
        if chunk is None:
            if end == segment.end_offset:
                builder.skip_to(end)  # Compaction left offsets out.
            return None
        assert chunk.segment is segment
        return builder.step(chunk)

    def _is_complete(self, segment: Segment, known: _Known) -> bool:
        index = known.index
        return (
            index is not None
            and index.fields == self.fields
            and index.end_offset == segment.end_offset
        )

    def _give_up(self, segment: Segment, problem: Exception) -> None:
        known = self._known[segment]
        known.is_hopeless = True
        if known.builder is not None:
            known.builder.discard()
            known.builder = None
        _log.warning("not indexed segment=%s problem=%s", segment.path, problem)

    def opened(self, segment: Segment, index: SegmentIndex | None) -> None:
        known = self._known.get(segment)
        if known is not None:
            known.is_opened = True
            known.index = index
            if index is not None:
                self._directories.use(index)

    def sealed(self, seal: Seal) -> None:
        """Name the file of an index that is complete, unless the log has changed meanwhile."""
        builder = seal.builder
        segment = builder.segment
        known = self._known.get(segment)
        if known is None or known.builder is not builder:
            builder.discard()
            return
        known.builder = None
        if not seal.is_done or builder.is_failed or not _is_held(self._log, segment):
            builder.discard()
            return
        try:
            self._files.rename(builder.path, segment.terms_path)
        except OSError as problem:
            _log.warning("index not named path=%s problem=%s", builder.path, problem)
            return
        known.is_opened = False  # It is opened like one that was found at a start.

    # -- searching ---------------------------------------------------------------------------------

    def search(self, terms: Terms, start_offset: Offset, end_offset: Offset) -> Search | None:
        """A search from `start_offset` on; None if no index is of use before `end_offset`."""
        log = self._log
        if not start_offset < end_offset <= log.end_offset:
            return None
        sources: list[SegmentIndex | Source] = []
        at = start_offset
        ask_again_at = LAST_OFFSET
        while at < end_offset:
            segment = log.segment_at(at)
            source = self._source(segment, terms)
            if source is not None and source.end_offset > at:
                sources.append(source)
                at = source.end_offset
            if at < segment.end_offset:
                ask_again_at = segment.end_offset
                break
        return Search(
            sources,
            terms,
            files=self._files,
            start_offset=start_offset,
            end_offset=end_offset,
            ask_again_at=ask_again_at,
        )

    def finish(self, search: Search) -> None:
        """Back on the event loop: forget an index that could not be read; it is built again."""
        search.finish(self._directories)
        broken = search.broken
        if broken is None:
            return
        known = self._known.get(broken.segment)
        if known is not None and known.index is broken:
            _log.warning("secondary index is broken, built again path=%s", broken.path)
            self._directories.forget(broken)
            known.index = None

    def figures(self) -> IndexFigures:
        size = entries = covered = 0
        for known in self._known.values():
            index, builder = known.index, known.builder
            if index is not None:
                size += index.size_bytes
                entries += index.head.entry_count
            if builder is not None:
                size += builder.size_bytes
                entries += builder.entry_count
            if index is not None and index.fields == self.fields:
                built = builder.read_bytes if builder is not None else 0
                covered += max(built, index.covered_bytes)
            elif builder is not None:
                covered += builder.read_bytes
        held = self._log.health().size_bytes
        return IndexFigures(size, entries, max(0, held - covered))

    def _source(self, segment: Segment, terms: Terms) -> SegmentIndex | Source | None:
        """The index of a segment that reaches farthest and answers something of `terms`."""
        known = self._known.get(segment)
        if known is None:
            return None
        index, builder = known.index, known.builder
        if index is not None and answerable(terms, index.fields) is None:
            index = None
        if builder is None or answerable(terms, builder.fields) is None:
            return index
        is_farther = index is None or builder.end_offset > index.end_offset
        return builder.source() if is_farther else index


class _Opening:
    """Looks for the index of a segment on disk."""

    size = 0

    def __init__(self, owner: LogIndex, segment: Segment) -> None:
        self._owner = owner
        self._segment = segment
        self._index: SegmentIndex | None = None

    def run(self) -> None:
        self._index = open_index(self._segment.files, self._segment)

    def fail(self, problem: StorageError) -> None:
        self._index = None

    def finish(self) -> None:
        self._owner.opened(self._segment, self._index)


class _Resuming:
    """Makes an index of the first part of a segment the begin of one that grows with it."""

    def __init__(self, builder: Builder, index: SegmentIndex) -> None:
        self._builder = builder
        self._index = index
        self._source: Source | None = None

    @property
    def size(self) -> int:
        return self._index.size_bytes

    def run(self) -> None:
        index = self._index
        try:
            file = index.segment.files.open(index.path)
            self._source = index.source(file)
            self._builder.copy_pages(file, index.head.directory_at)
        except (OSError, DamagedLog):
            self._source = None  # All of it is read again.

    def fail(self, problem: StorageError) -> None:
        self._source = None

    def finish(self) -> None:
        source = self._source
        if source is not None:
            runs = [run for run in source.runs if isinstance(run, StoredRun)]
            self._builder.resume(runs, source.end_offset, self._index.covered_bytes)


class _Sealing:
    """Completes an index and names it."""

    size = 0

    def __init__(self, owner: LogIndex, seal: Seal) -> None:
        self._owner = owner
        self._seal = seal

    def run(self) -> None:
        self._seal.run()

    def fail(self, problem: StorageError) -> None:
        self._seal.fail(problem)

    def finish(self) -> None:
        self._owner.sealed(self._seal)


def _is_held(log: Log, segment: Segment) -> bool:
    return log.end_offset > log.start_offset and log.segment_at(segment.base_offset) is segment


def estimated_bytes(log: Log, start: Offset, end: Offset) -> int:
    """About how many bytes the batches from `start` to `end` have."""
    size, at = 0.0, start
    while at < end:
        segment = log.segment_at(at)
        behind = min(end, segment.end_offset)
        if behind <= at:
            break
        size += segment.size * (behind - at) / (segment.end_offset - segment.base_offset)
        at = behind
    return int(size)
