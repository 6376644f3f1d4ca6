"""Searches secondary indexes for the batches that may hold a term, on a thread.

Owns opened indexes and how a search goes: run after run, until there are enough batches. Files are
opened for each search, so that indexes hold no descriptors.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from millstream.errors import DamagedLog, storage_error
from millstream.model import Offset
from millstream.ports import File, Files
from millstream.storage.log.index import PROOF_BYTES, decode_proof
from millstream.storage.log.segment import Segment
from millstream.storage.secondary_index.builder import Source
from millstream.storage.secondary_index.format import (
    HEAD_BYTES,
    Directory,
    Head,
    ReadPage,
    Run,
    decode_directory,
    decode_head,
)
from millstream.storage.secondary_index.terms import (
    ANY_HASH,
    AnyTerm,
    EveryTerm,
    Term,
    Terms,
    answerable,
)

CANDIDATES_ENOUGH = 256  # A search ends with the run that has so many.
DIRECTORY_BYTES_MAX = 16 * 2**20  # Of all directories that are kept in memory.
_RUN_BYTES = 200  # What a run takes in memory beside its columns, about.


class SegmentIndex:
    """A complete index on disk. Its directory is loaded when it is needed."""

    __slots__ = (
        "covered_bytes",
        "directory",
        "end_offset",
        "fields",
        "head",
        "path",
        "segment",
        "size_bytes",
    )

    def __init__(
        self, segment: Segment, path: str, head: Head, directory: Directory, size_bytes: int
    ) -> None:
        self.segment = segment
        self.path = path
        self.head = head
        self.fields = directory.fields
        self.directory: Directory | None = directory
        proof = decode_proof(head.proof)
        self.end_offset, self.covered_bytes = proof.end_offset, proof.size
        self.size_bytes = size_bytes

    @property
    def directory_bytes(self) -> int:
        return self.head.page_count * 8 + self.head.run_count * _RUN_BYTES

    def source(self, file: File) -> Source:
        """What a search reads; blocks, `DamagedLog` if the directory is broken."""
        directory = self.directory
        if directory is None:
            directory = self.directory = _load_directory(file, self.head)
        runs = tuple(directory.runs)
        return Source(self.segment.base_offset, self.end_offset, self.fields, runs, file)


class Directories:
    """Drops the directories that were used longest ago, where all together are too large."""

    def __init__(self, bytes_max: int = DIRECTORY_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._used: OrderedDict[SegmentIndex, int] = OrderedDict()
        self.size_bytes = 0

    def use(self, index: SegmentIndex) -> None:
        if index.directory is None:
            return
        self.forget(index)
        self._used[index] = index.directory_bytes
        self.size_bytes += index.directory_bytes
        while self.size_bytes > self._bytes_max and len(self._used) > 1:
            oldest = next(iter(self._used))
            self.forget(oldest)
            oldest.directory = None

    def forget(self, index: SegmentIndex) -> None:
        self.size_bytes -= self._used.pop(index, 0)


def open_index(files: Files, segment: Segment) -> SegmentIndex | None:
    """The index of the segment on disk; None if there is none, or not of these bytes. Blocks."""
    path = segment.terms_path
    try:
        if not files.exists(path):
            return None
        file = files.open(path)
        head = decode_head(file.read(0, HEAD_BYTES))
        if files.open(segment.index_path).read(0, PROOF_BYTES) != head.proof:
            return None
        return SegmentIndex(segment, path, head, _load_directory(file, head), file.size())
    except (FileNotFoundError, DamagedLog):
        return None
    except OSError as problem:
        raise storage_error(problem, path) from problem


def _load_directory(file: File, head: Head) -> Directory:
    return decode_directory(file.read(head.directory_at, head.directory_bytes), head)


class Candidates(NamedTuple):
    """From `start_offset` to `end_offset` only the batches at `offsets` can hold a match."""

    start_offset: Offset
    end_offset: Offset  # Equal to the start: nothing is known.
    ask_again_at: Offset  # Where another search may know more.
    offsets: Sequence[Offset] = ()


class Search:
    """One search: prepared on the event loop, `run` on a thread, then `finish` on the loop."""

    def __init__(
        self,
        sources: Sequence[SegmentIndex | Source],
        terms: Terms,
        *,
        files: Files,
        start_offset: Offset,
        end_offset: Offset,
        ask_again_at: Offset,
    ) -> None:
        self.broken: SegmentIndex | None = None
        self.read_bytes = 0  # Of indexes.
        self.candidates = Candidates(start_offset, start_offset, ask_again_at)
        self._sources = sources
        self._terms = terms
        self._files = files
        self._end_offset = end_offset

    @property
    def has_sources(self) -> bool:
        return bool(self._sources)

    def run(self) -> None:
        """Blocks. An index that cannot be read is `broken`: the search ends before it."""
        start, _, ask_again_at, _ = self.candidates
        end, offsets = start, list[Offset]()
        for source in self._sources:
            try:
                end = self._search(source, start, offsets)
            except (OSError, DamagedLog):
                self.broken = source if isinstance(source, SegmentIndex) else None
                break
            if len(offsets) >= CANDIDATES_ENOUGH:
                ask_again_at = end
            if len(offsets) >= CANDIDATES_ENOUGH or end >= self._end_offset:
                break
        end = min(end, self._end_offset)
        if end <= start:
            return
        # The batch that begins before the start may reach beyond it.
        first = bisect_right(offsets, start)
        kept = [start, *offsets[first:]] if first else offsets
        kept = [offset for offset in kept if offset < end]
        self.candidates = Candidates(start, end, ask_again_at, kept)

    def finish(self, directories: Directories) -> None:
        for source in self._sources:
            if isinstance(source, SegmentIndex):
                directories.use(source)

    def _search(
        self, source: SegmentIndex | Source, start: Offset, offsets: list[Offset]
    ) -> Offset:
        """Add the candidates of one index; return how far it was searched."""
        if isinstance(source, SegmentIndex):
            source = source.source(self._files.open(source.path))
        terms = answerable(self._terms, source.fields)
        assert terms is not None
        base = source.base_offset
        for run in source.runs:
            if base + run.end <= start:
                continue
            relative = batches_of(terms, run, self._reader(source.file))
            relative |= set(run.offsets(ANY_HASH, self._reader(source.file)))
            offsets += sorted(base + offset for offset in relative)
            if len(offsets) >= CANDIDATES_ENOUGH:
                return base + run.end
        return source.end_offset

    def _reader(self, file: File | None) -> ReadPage:
        def read(position: int, size: int) -> bytes:
            assert file is not None
            self.read_bytes += size
            return file.read(position, size)

        return read


def batches_of(terms: Terms, run: Run, read: ReadPage) -> set[int]:
    """The relative offsets of the batches in which every match must be."""
    match terms:
        case Term():
            return set(run.offsets(terms.hash, read))
        case EveryTerm(parts):
            return _joined(parts, run, read, set.intersection)
        case AnyTerm(parts):
            return _joined(parts, run, read, set.union)


def _joined(
    parts: Sequence[Terms],
    run: Run,
    read: ReadPage,
    join: Callable[[set[int], set[int]], set[int]],
) -> set[int]:
    batches = batches_of(parts[0], run, read)
    for part in parts[1:]:
        batches = join(batches, batches_of(part, run, read))
    return batches
