"""Caches open files and loaded indexes for all logs of a node, least recently used out first.

Owns the bounds: every evicted file or index can be opened or read again. A segment without an index
on disk pins its own file and table. Such a file counts as open, and is closed once it is synced, if
too many others are open; such a table is not counted. An index is redundant: if it is lost or fails
its checksum while the node runs, it is rebuilt from the headers of its segment, so a reader never
sees the difference.
"""

import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from millstream.codec.batch import Header
from millstream.errors import (
    DamagedLog,
    ReadPending,
    StorageError,
    is_transient,
    storage_error,
)
from millstream.model import Boundary, Offset
from millstream.ports import File
from millstream.storage.log.index import PROOF_BYTES, Table, decode_proof
from millstream.storage.log.segment import WALK_BYTES, Segment, read_headers
from millstream.storage.log.verifying import INLINE_BYTES_MAX, BadRange, Part
from millstream.storage.sealing.batches import Sealer

_log = logging.getLogger(__name__)

# Pinned files that are tried, one after the other, to close one. If all of these wait for a sync
# there is one open file too many, until the next one is opened.
PINNED_LOOKED_AT = 16


class View(NamedTuple):
    """A segment that can be searched. Its batches were verified since the node started."""

    segment: Segment
    file: File
    table: Table
    report: Callable[[Segment, BadRange], None]

    @property
    def is_plain(self) -> bool:
        """Whether every byte was verified and is sound, as all bytes that this process wrote."""
        return self.segment.unverified is None and not self.segment.damage

    def headers(self, at: int, end: int, after: Offset = 0) -> Iterator[tuple[int, Header]]:
        """Position and header of each batch from `at` to `end`, like `read_headers`.

        `DamagedBatch` where a damaged one stands; those that end at or before `after` are left out.
        """
        return read_headers(self.file, at, end) if self.is_plain else self._sound(at, end, after)

    def verify(self, start: int, end: int) -> None:
        """Verify the stretches that hold these bytes, unless that was done before."""
        unverified = self.segment.unverified
        if unverified is None or unverified.covers(start, end):
            return
        work = self.verification(start, end)
        work.run()
        work.finish()

    def verification(self, start: int, end: int) -> "Verification":
        """Stretches that were not verified since the node started."""
        part = self.segment.part(self.file, self.table)
        return Verification(self, part, *part.aligned(start, end))

    def verification_again(
        self,
        boundaries: Sequence[Boundary],
        start: int = 0,
        end: int | None = None,
        *,
        sealer: Sealer | None = None,
    ) -> "Verification":
        """Stretches of a segment that grows no more, whatever was verified before."""
        segment = self.segment
        ends = segment.size, segment.end_offset
        dense = segment.is_dense
        part = Part(self.file, segment.path, self.table, *ends, dense, boundaries, sealer)
        return Verification(self, part, *part.aligned(start, segment.size if end is None else end))

    def _sound(self, at: int, end: int, after: Offset) -> Iterator[tuple[int, Header]]:
        positions = self.table.positions
        while at < end:
            index = bisect_right(positions, at)
            stretch_end = min(end, positions[index]) if index < len(positions) else end
            self.verify(at, stretch_end)
            skipped = next(
                (bad for bad in self.segment.damage if bad.position <= at < bad.end_position), None
            )
            if skipped is not None:
                if skipped.end_offset > after:
                    raise skipped.problem()
                at = skipped.end_position
                continue
            ahead = [bad.position for bad in self.segment.damage if bad.position > at]
            stop = min([stretch_end, *ahead])
            yield from read_headers(self.file, at, stop)
            at = stop


class Verification:
    """Stretches of one segment to be verified, on a thread if they are long."""

    __slots__ = ("_bad", "_end", "_part", "_start", "_view")

    def __init__(self, view: View, part: Part, start: int, end: int) -> None:
        self._view = view
        self._part = part
        self._start = start
        self._end = end
        self._bad: list[BadRange] = []

    @property
    def size(self) -> int:
        return self._end - self._start

    def run(self) -> None:
        """Blocks; touches the file only. `StorageError` if it cannot be read."""
        self._bad = self._part.bad_ranges(self._start, self._end)

    def fail(self, problem: StorageError) -> None:
        """The disk refused to read the range: it is damaged for readers."""
        part, start, end = self._part, self._start, self._end
        first, last = part.table.floor_position(start), part.table.floor_position(end)
        behind = part.table.offset(last) if part.table.positions[last] == end else part.end_offset
        offset = part.table.offset(first)
        self._bad = [BadRange(part.path, start, end - start, offset, behind, str(problem))]

    def finish(self) -> None:
        """Back on the event loop: record the verified range, and report damage once."""
        segment = self._view.segment
        for bad in segment.verified(self._start, self._end, self._bad):
            self._view.report(segment, bad)


class IndexRebuild:
    """The table of a segment whose index is lost, to be built on a thread: about 10 s for a GiB of
    small batches.
    """

    __slots__ = ("_cache", "_file", "_segment", "_table")

    def __init__(self, cache: "LogCache", segment: Segment, file: File) -> None:
        self._cache = cache
        self._segment = segment
        self._file = file
        self._table: Table | None = None

    @property
    def size(self) -> int:
        return self._segment.size

    def run(self) -> None:
        """Blocks; touches the file only. `StorageError` if it cannot be read."""
        self._table = self._segment.with_rebuilt_table(self._file, WALK_BYTES).table

    def fail(self, problem: StorageError) -> None:
        self._segment.failure = problem

    def finish(self) -> None:
        self._cache.rebuilt(self._segment, self._table)


class LongWork(Protocol):
    """Work for a thread: `run` blocks and touches files only, the others run on the loop."""

    @property
    def size(self) -> int: ...

    def run(self) -> None: ...

    def fail(self, problem: StorageError) -> None: ...

    def finish(self) -> None: ...


class NotVerified(Exception):
    """Bytes must be verified, or indexed again, before they are read: run `work.run` on a
    thread, then `work.finish` on the event loop, then read again.
    """

    def __init__(self, work: Verification | IndexRebuild) -> None:
        super().__init__(f"{work.size} bytes are not verified or indexed yet")
        self.work = work


class LogCache:
    def __init__(self, *, index_bytes_max: int, open_files_max: int) -> None:
        assert index_bytes_max > 0
        assert open_files_max > 0
        self._index_bytes_max = index_bytes_max
        self._open_files_max = open_files_max
        self._open: OrderedDict[Segment, File] = OrderedDict()
        self._pinned: OrderedDict[Segment, None] = OrderedDict()  # Their files are in themselves.
        self._tables: OrderedDict[Segment, Table] = OrderedDict()
        self._tables_bytes = 0
        self._held_tables: dict[Segment, Table] = {}  # Their indexes on disk were given up.
        self._rebuilding: set[Segment] = set()
        self.on_damage: Callable[[Segment, BadRange], None] = _log_damage
        # Has long work carried out on a thread; None where the caller may block.
        self.work_soon: Callable[[LongWork], None] | None = None

    @property
    def open_count(self) -> int:
        return len(self._open) + len(self._pinned)

    @property
    def index_bytes(self) -> int:
        return self._tables_bytes

    def view(self, segment: Segment) -> View:
        """Open file and table of the segment; `StorageError` if it cannot be read."""
        file, table = segment.file, segment.table
        return View(
            segment,
            self.file(segment) if file is None else file,
            self.table(segment) if table is None else table,
            self.on_damage,
        )

    def file(self, segment: Segment) -> File:
        """The open file. A reader may go on reading it after the segment was removed."""
        if segment.file is not None:
            return segment.file
        file = self._open.get(segment)
        if file is not None:
            self._open.move_to_end(segment)
            return file
        try:
            file = segment.files.open(segment.path)
        except OSError as problem:
            raise storage_error(problem, segment.path) from problem
        self._make_room()
        self._open[segment] = file
        return file

    def pin(self, segment: Segment) -> None:
        """Count the file of a segment that was opened to be written."""
        self._make_room()
        self._pinned[segment] = None

    def table(self, segment: Segment) -> Table:
        """The index of the segment; raises `ReadPending` while a thread builds it."""
        if segment.table is not None:
            return segment.table
        table = self._held_tables.get(segment)
        if table is not None:
            return table
        table = self._tables.get(segment)
        if table is not None:
            self._tables.move_to_end(segment)
            return table
        if segment.failure is not None:
            raise type(segment.failure)(str(segment.failure))
        if segment not in self._rebuilding:
            table = self._load(segment)
        if table is None:
            table = self._rebuild_now(segment)
        self.keep_table(segment, table)
        return table

    def _rebuild_now(self, segment: Segment) -> Table:
        """Build a lost index again; a long one on a thread, and `ReadPending` until then."""
        if self.work_soon is not None and segment.size > INLINE_BYTES_MAX:
            if segment not in self._rebuilding:
                work = IndexRebuild(self, segment, self.file(segment))
                self._rebuilding.add(segment)
                self.work_soon(work)
            raise ReadPending(f"{segment.path}: its index is lost and is being built again")
        table = segment.with_rebuilt_table(self.file(segment), WALK_BYTES).table
        assert table is not None
        return table

    def rebuilt(self, segment: Segment, table: Table | None) -> None:
        """The work of an `IndexRebuild` has ended; without a table it failed."""
        self._rebuilding.discard(segment)
        if table is not None:
            self.keep_table(segment, table)

    def rebuild(self, segment: Segment) -> IndexRebuild | None:
        """What must be done on a thread before the segment can be searched; None if nothing."""
        if segment.table is not None or segment in self._tables or segment in self._held_tables:
            return None
        table = self._load(segment)
        if table is None:
            return IndexRebuild(self, segment, self.file(segment))
        self.keep_table(segment, table)
        return None

    def hold_table(self, segment: Segment) -> None:
        """Keep the table until the segment is forgotten: its index on disk is about to go."""
        self._held_tables[segment] = self.table(segment)

    def keep_table(self, segment: Segment, table: Table) -> None:
        self.forget_table(segment)
        self._tables[segment] = table
        self._tables_bytes += table.size_bytes
        while self._tables_bytes > self._index_bytes_max and len(self._tables) > 1:
            _, evicted = self._tables.popitem(last=False)
            self._tables_bytes -= evicted.size_bytes

    def forget_table(self, segment: Segment) -> None:
        table = self._tables.pop(segment, None)
        if table is not None:
            self._tables_bytes -= table.size_bytes

    def forget(self, segment: Segment) -> None:
        self._open.pop(segment, None)
        self._pinned.pop(segment, None)
        self._held_tables.pop(segment, None)
        self.forget_table(segment)

    def _make_room(self) -> None:
        """Close the file that was used or pinned longest ago, where that is possible."""
        if self.open_count < self._open_files_max:
            return
        if self._open:
            self._open.popitem(last=False)  # Closes with its last reader.
            return
        for segment in list(islice(self._pinned, PINNED_LOOKED_AT)):
            if segment.release_file():
                del self._pinned[segment]
                return
            self._pinned.move_to_end(segment)

    def reopen(self, segment: Segment) -> None:
        """Pin a proven segment, so that it can grow."""
        file, table = self.file(segment), self.table(segment)
        try:
            index = segment.files.open(segment.index_path)
            segment.restore_last_batch(decode_proof(index.read(0, PROOF_BYTES)))
        except (OSError, DamagedLog):
            for _, header in read_headers(file, segment.last_position, segment.size):
                segment.last = header
        self.forget(segment)
        segment.file, segment.table = file, table

    def _load(self, segment: Segment) -> Table | None:
        """The table from the index on disk; None if that is lost and must be built again."""
        try:
            file = segment.files.open(segment.index_path)
            data = file.read(0, file.size())
            proof = decode_proof(data[:PROOF_BYTES])
            if (proof.size, proof.end_offset) != (segment.size, segment.end_offset):
                raise DamagedLog("index of another state of the segment")
            return Table.decode(data[PROOF_BYTES:], proof)
        except (OSError, DamagedLog) as problem:
            if isinstance(problem, OSError) and is_transient(problem):
                # The index is fine, and walking the segment would take long.
                raise storage_error(problem, segment.index_path) from problem
            _log.warning("index rebuilt in memory segment=%s reason=%r", segment.path, str(problem))
            return None


def _log_damage(segment: Segment, bad: BadRange) -> None:
    _log.error("damage segment=%s problem=%s", segment.path, bad.problem())
