"""What all logs of a node share: open files and loaded indexes, each bounded, oldest use first out.

Owns nothing but the bounds: whatever it forgets can be opened or read again. A segment without an
index on disk pins its own file and table. Such a file counts as open, and is let go of once it is
synced, if too many others are open; such a table is not counted. The one thing to know: an index is
redundant. If it is lost or fails its checksum while the node runs, it is built again from
the headers of its segment, so a reader never sees the difference.
"""

import logging
from collections import OrderedDict
from itertools import islice
from typing import NamedTuple

from millstream.errors import DamagedLog, is_transient, storage_error
from millstream.ports import File
from millstream.storage.index import PROOF_BYTES, Table, decode_proof
from millstream.storage.segment import WALK_BYTES, Segment

_log = logging.getLogger(__name__)

# Pinned files that are asked, one after the other, whether they can be let go of. If all of these
# wait for a sync there is one open file too many, until the next one is opened.
PINNED_LOOKED_AT = 16


class View(NamedTuple):
    """A segment that can be searched."""

    segment: Segment
    file: File
    table: Table


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

    @property
    def open_count(self) -> int:
        return len(self._open) + len(self._pinned)

    @property
    def index_bytes(self) -> int:
        return self._tables_bytes

    def view(self, segment: Segment) -> View:
        """Open what is needed to search; `StorageError` if the segment cannot be read."""
        file, table = segment.file, segment.table
        return View(
            segment,
            self.file(segment) if file is None else file,
            self.table(segment) if table is None else table,
        )

    def file(self, segment: Segment) -> File:
        """The open file. Whoever holds it may go on reading, whatever happens to the segment."""
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
        if segment.table is not None:
            return segment.table
        table = self._tables.get(segment)
        if table is not None:
            self._tables.move_to_end(segment)
            return table
        table = self._load(segment)
        self._tables[segment] = table
        self._tables_bytes += table.size_bytes
        while self._tables_bytes > self._index_bytes_max and len(self._tables) > 1:
            _, evicted = self._tables.popitem(last=False)
            self._tables_bytes -= evicted.size_bytes
        return table

    def forget(self, segment: Segment) -> None:
        self._open.pop(segment, None)
        self._pinned.pop(segment, None)
        table = self._tables.pop(segment, None)
        if table is not None:
            self._tables_bytes -= table.size_bytes

    def _make_room(self) -> None:
        """Let go of the file that was used or pinned longest ago, where that is possible."""
        if self.open_count < self._open_files_max:
            return
        if self._open:
            self._open.popitem(last=False)  # Closes with its last reader.
            return
        for segment in list(islice(self._pinned, PINNED_LOOKED_AT)):
            if segment.let_go():
                del self._pinned[segment]
                return
            self._pinned.move_to_end(segment)

    def _load(self, segment: Segment) -> Table:
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
            table = segment.rewalked(self.file(segment), WALK_BYTES).table
            assert table is not None
            return table
