"""Stores snapshots of a log's producers at some offsets, to save a replay.

Owns the files and which of them count. A snapshot at offset `n` is the fold over everything below
`n`, so it is right only while those batches are in the log: truncation drops the snapshots behind
the cut before anything is appended there. The last two are kept, should one be damaged.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from millstream.codec.batch import Header
from millstream.codec.markers import Marker, decode_marker
from millstream.errors import (
    CorruptBatch,
    DamagedLog,
    InvalidBatch,
    is_transient,
    storage_error,
)
from millstream.model import Buffer, Offset
from millstream.ports import Files
from millstream.storage.log.cache import View
from millstream.storage.log.producers import Producers
from millstream.storage.log.segment import PRODUCERS, TEMPORARY, FileRange, file_path

KEPT = 2

_log = logging.getLogger(__name__)


class Snapshot(NamedTuple):
    """What `Producers.encode` said when the log ended at `offset`."""

    offset: Offset
    data: bytes


class Snapshots:
    __slots__ = ("_directory", "_files", "due", "offsets")

    def __init__(self, files: Files, directory: str, offsets: Iterable[Offset] = ()) -> None:
        self._files = files
        self._directory = directory
        self.offsets = sorted(offsets)  # On disk.
        self.due: list[Snapshot] = []  # Taken, for the next sync round to store.

    @property
    def newest(self) -> Offset:
        """The offset of the newest one; 0 if there is none."""
        return max([0, *self.offsets, *(due.offset for due in self.due)])

    def take(self, offset: Offset, producers: Producers) -> None:
        if offset not in self.offsets and all(offset != due.offset for due in self.due):
            self.due = [*self.due, Snapshot(offset, producers.encode())][-KEPT:]

    def confirm(self, stored: Iterable[Snapshot]) -> bool:
        """Give those their names that were stored aside and still count; True if any did.

        The same offset is not enough: the log may have been cut and have come there again.
        """
        confirmed = []
        for snapshot in stored:
            path = self._path(snapshot.offset)
            if any(snapshot is due for due in self.due):
                self._files.rename(path + TEMPORARY, path)
                confirmed.append(snapshot)
            else:
                self._files.remove(path + TEMPORARY)
        self.due = [due for due in self.due if due not in confirmed]
        self.offsets = sorted({*self.offsets, *(snapshot.offset for snapshot in confirmed)})
        while len(self.offsets) > KEPT:
            self._files.remove(self._path(self.offsets.pop(0)))
        return bool(confirmed)

    def drop_behind(self, end_offset: Offset) -> bool:
        """The log ends here; True if files were removed, which must be made durable."""
        self.due = [due for due in self.due if due.offset <= end_offset]
        gone = [offset for offset in self.offsets if offset > end_offset]
        for offset in gone:
            self._files.remove(self._path(offset))
        self.offsets = [offset for offset in self.offsets if offset <= end_offset]
        return bool(gone)

    def load(self, *, end_offset: Offset, producer_ids_max: int) -> tuple[Offset, Producers]:
        """The newest whole snapshot up to `end_offset`, with its offset; else 0 and no producers.

        A truncation that the disk refused part-way may have left others behind it.
        """
        for due in reversed(self.due):
            if due.offset <= end_offset:
                return due.offset, Producers.decode(due.data, producer_ids_max=producer_ids_max)
        for offset in reversed([offset for offset in self.offsets if offset <= end_offset]):
            try:
                file = self._files.open(self._path(offset))
                data = file.read(0, file.size())
                return offset, Producers.decode(data, producer_ids_max=producer_ids_max)
            except (DamagedLog, OSError) as problem:
                path = self._path(offset)
                if isinstance(problem, OSError) and is_transient(problem):
                    # The file is fine, and may know of batches that retention has taken since.
                    raise storage_error(problem, path) from problem
                _log.warning("producer snapshot not used path=%s reason=%r", path, str(problem))
        return 0, Producers(producer_ids_max=producer_ids_max)

    def _path(self, offset: Offset) -> str:
        return file_path(self._directory, offset, PRODUCERS)


def replay(producers: Producers, batches: Iterable[tuple[View, int, Header]]) -> Iterator[Offset]:
    """Fold batches of a log over what its producers were; yield where each of them ends."""
    for view, position, header in batches:
        marker = None
        if header.is_control and header.count:
            batch = FileRange(
                view.file, position, header.size, header.base_offset, header.end_offset
            )
            try:
                marker = decode_marker(batch.read())
            except (CorruptBatch, InvalidBatch) as problem:
                raise DamagedLog(f"marker at {header.base_offset}: {problem}") from problem
        producers.apply(header, marker)
        yield header.end_offset


def read_markers(chunks: Sequence[Buffer], headers: Sequence[Header]) -> dict[Offset, Marker]:
    """The markers among the batches; an emptied one, which compaction leaves, says nothing."""
    data = b"".join(chunks)
    markers = {}
    at = 0
    for header in headers:
        if header.is_control and header.count:
            markers[header.base_offset] = decode_marker(data, at)
        at += header.size
    return markers
