"""Stores snapshots of a log's producers at some offsets, to save a replay.

Owns the files and which of them count. A snapshot at offset `n` is the fold over everything below
`n`, so it is right only while those batches are in the log: truncation drops the snapshots behind
the cut before anything is appended there. The last two are kept, should one be damaged.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from millstream.codec.batch import Header
from millstream.codec.markers import Marker, decode_marker
from millstream.errors import (
    CorruptBatch,
    DamagedLog,
    InvalidBatch,
    ReadPending,
    StorageError,
    is_transient,
    storage_error,
)
from millstream.model import Buffer, Offset
from millstream.ports import Files
from millstream.storage.files.replacing import TEMPORARY
from millstream.storage.log.cache import View
from millstream.storage.log.producers import FrozenProducers, Producers
from millstream.storage.log.segment import PRODUCERS, FileRange, file_path
from millstream.storage.log.verifying import INLINE_BYTES_MAX
from millstream.storage.sealing.batches import Sealer
from millstream.storage.sealing.ranges import lazily_opened

KEPT = 2
PRODUCER_BYTES = 100  # Of one in a snapshot, about.

_log = logging.getLogger(__name__)


class Snapshot(NamedTuple):
    """What the producers were when the log ended at `offset`."""

    offset: Offset
    state: FrozenProducers


class SnapshotLoad:
    """The newest snapshot that can be read, to be loaded on a thread if it is large."""

    __slots__ = ("_due", "_files", "_paths", "_producer_ids_max", "end_offset", "outcome")

    def __init__(
        self,
        files: Files,
        end_offset: Offset,
        due: Sequence[Snapshot],
        paths: Sequence[tuple[Offset, str]],
        producer_ids_max: int,
    ) -> None:
        self.end_offset = end_offset  # Of the log, when it was asked for.
        self.outcome: tuple[Offset, Producers] | None = None
        self._files = files
        self._due = due
        self._paths = paths
        self._producer_ids_max = producer_ids_max

    @property
    def size(self) -> int:
        if self._due:
            state = self._due[0].state
            return state.aborted.size + PRODUCER_BYTES * len(state.producers)
        try:
            return max((self._files.open(path).size() for _, path in self._paths), default=0)
        except OSError:
            return 0  # `load` reports it.

    def run(self) -> None:
        """Blocks; touches files only. `StorageError` if one cannot be read for the moment."""
        self.outcome = self.load()

    def fail(self, problem: StorageError) -> None:
        """No snapshot can be used: all of the log is read instead."""
        self.outcome = 0, Producers(producer_ids_max=self._producer_ids_max)

    def finish(self) -> None:
        """The next `Snapshots.load` takes the outcome."""

    def load(self) -> tuple[Offset, Producers]:
        for offset, state in self._due:
            data = b"".join(state.encode())
            return offset, Producers.decode(data, producer_ids_max=self._producer_ids_max)
        for offset, path in self._paths:
            try:
                file = self._files.open(path)
                data = file.read(0, file.size())
                return offset, Producers.decode(data, producer_ids_max=self._producer_ids_max)
            except (DamagedLog, OSError) as problem:
                if isinstance(problem, OSError) and is_transient(problem):
                    # The file is fine, and may know of batches that retention has taken since.
                    raise storage_error(problem, path) from problem
                _log.warning("producer snapshot not used path=%s reason=%r", path, str(problem))
        return 0, Producers(producer_ids_max=self._producer_ids_max)


LoadSoon = Callable[[SnapshotLoad], None]


class Snapshots:
    __slots__ = ("_directory", "_files", "_loading", "due", "offsets")

    def __init__(self, files: Files, directory: str, offsets: Iterable[Offset] = ()) -> None:
        self._files = files
        self._directory = directory
        self.offsets = sorted(offsets)  # On disk.
        self.due: list[Snapshot] = []  # Taken, for the next sync round to store.
        self._loading: SnapshotLoad | None = None

    @property
    def newest(self) -> Offset:
        """The offset of the newest one; 0 if there is none."""
        return max([0, *self.offsets, *(due.offset for due in self.due)])

    def take(self, offset: Offset, producers: Producers) -> None:
        if offset not in self.offsets and all(offset != due.offset for due in self.due):
            self.due = [*self.due, Snapshot(offset, producers.freeze())][-KEPT:]

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
        self._loading = None  # The log may come to the same offsets again, with other batches.
        self.due = [due for due in self.due if due.offset <= end_offset]
        gone = [offset for offset in self.offsets if offset > end_offset]
        for offset in gone:
            self._files.remove(self._path(offset))
        self.offsets = [offset for offset in self.offsets if offset <= end_offset]
        return bool(gone)

    def load(
        self, *, end_offset: Offset, producer_ids_max: int, soon: "LoadSoon | None" = None
    ) -> tuple[Offset, Producers]:
        """The newest whole snapshot up to `end_offset`, with its offset; else 0 and no producers.

        A truncation that the disk refused part-way may have left others behind it. With `soon` that
        has large ones read on a thread, and `ReadPending` is raised until they are.
        """
        loading = self._loading
        if loading is not None and loading.end_offset == end_offset:
            if loading.outcome is None:
                raise ReadPending(f"{self._directory}: its producers are being read")
            self._loading = None
            return loading.outcome
        due = [snapshot for snapshot in reversed(self.due) if snapshot.offset <= end_offset]
        offsets = [offset for offset in reversed(self.offsets) if offset <= end_offset]
        paths = [(offset, self._path(offset)) for offset in offsets]
        work = SnapshotLoad(self._files, end_offset, due[:1], paths, producer_ids_max)
        if soon is None or work.size <= INLINE_BYTES_MAX:
            return work.load()
        self._loading = work
        soon(work)
        raise ReadPending(f"{self._directory}: its producers are being read")

    def _path(self, offset: Offset) -> str:
        return file_path(self._directory, offset, PRODUCERS)


def replay(
    producers: Producers, batches: Iterable[tuple[View, int, Header]], sealer: Sealer | None = None
) -> Iterator[Offset]:
    """Fold batches of a log over what its producers were; yield where each of them ends."""
    for view, position, header in batches:
        marker = None
        if header.is_control and header.count:
            batch = FileRange(
                view.file,
                position,
                header.size,
                header.base_offset,
                header.end_offset,
                None if sealer is None else view.segment,
            )
            try:
                marker = decode_marker(lazily_opened(batch, sealer, view.report).read())
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
