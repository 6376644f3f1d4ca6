"""Runs one sync round of a log: prepared on the event loop, executed on a worker thread.

Owns the work of the thread and holds all it needs, so that the loop may append, roll, truncate and
remove meanwhile.

Invariant: the thread writes and syncs, only the loop renames and removes files; so no lock is
needed. An index is written aside here, and gets its name in `Log.end_sync`, if its segment has not
changed.
"""

from millstream.ports import File, Files
from millstream.storage.files.replacing import write_aside
from millstream.storage.log.segment import PRODUCERS, Segment, file_path
from millstream.storage.log.snapshots import Snapshot


class Round:
    """The files and sizes at the begin of the round."""

    __slots__ = (
        "changes",
        "directories",
        "directory",
        "files",
        "indexed",
        "names",
        "segments",
        "sizes",
        "snapshots",
        "stored",
        "to_remove",
        "to_sync",
    )

    def __init__(self, files: Files, directory: str) -> None:
        self.files = files
        self.directory = directory
        self.to_sync: list[File] = []
        self.sizes: list[tuple[Segment, int]] = []  # Of the files in `to_sync`.
        self.directories: list[str] = []
        self.segments: list[Segment] = []  # To get an index.
        self.snapshots: list[Snapshot] = []  # Of producers, to be stored.
        self.to_remove: list[Segment] = []  # To be removed when all else is durable.
        self.changes = 0
        self.names = 0
        # The files that the thread wrote aside.
        self.indexed: list[Segment] = []
        self.stored: list[Snapshot] = []

    def run(self) -> None:
        """Blocks. `OSError` if anything may not be durable."""
        try:
            for file in self.to_sync:
                file.sync()
            for path in self.directories:
                self.files.sync_directory(path)
            self._write_aside()
        except FileNotFoundError:
            # The whole log was deleted: no producer waits for it any more.
            if self.files.exists(self.directory):
                raise

    def _write_aside(self) -> None:
        for segment in self.segments:
            try:
                chunks = segment.encoded_index()
            except FileNotFoundError:
                continue  # The log was cut meanwhile, and the segment is no part of it any more.
            if write_aside(self.files, segment.index_path, chunks):
                self.indexed.append(segment)
        for snapshot in self.snapshots:
            path = file_path(self.directory, snapshot.offset, PRODUCERS)
            if write_aside(self.files, path, snapshot.state.encode()):
                self.stored.append(snapshot)
