"""One sync round of a log: gathered on the event loop, carried out on a worker thread.

Owns what another thread does for a log, and holds all it needs, so that the loop may go on
appending, rolling, truncating and removing meanwhile. No lock is needed because of one rule: the
thread writes and syncs, but only the loop gives files their names and takes them away. An index is
written aside here, and gets its name in `Log.end_sync`, if its segment is still what it was.
"""

import logging
from collections.abc import Sequence

from millstream.errors import is_transient
from millstream.model import Buffer
from millstream.ports import File, Files
from millstream.storage.log.segment import PRODUCERS, TEMPORARY, Segment, file_path
from millstream.storage.log.snapshots import Snapshot

_log = logging.getLogger(__name__)


class Round:
    """What was there when the round began."""

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
        self.sizes: list[tuple[Segment, int]] = []  # Of what is in `to_sync`.
        self.directories: list[str] = []
        self.segments: list[Segment] = []  # To get an index.
        self.snapshots: list[Snapshot] = []  # Of producers, to be stored.
        self.to_remove: list[Segment] = []  # To be removed when all the rest is durable.
        self.changes = 0
        self.names = 0
        # What the thread managed to write aside.
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
            # Somebody deleted the whole log: nobody waits for it any more.
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
            if write_aside(self.files, path, [snapshot.data]):
                self.stored.append(snapshot)


def write_aside(files: Files, path: str, chunks: Sequence[Buffer]) -> bool:
    """Write and sync a file that a rename will put in its place.

    False if the disk is full or no descriptor is free: what is written this way saves time at the
    next start, no more, and must not stop a log from being synced.
    """
    try:
        file = files.open(path + TEMPORARY, create=True)
        file.truncate(0)
        file.write(0, chunks)
        file.sync()
    except OSError as problem:
        if not is_transient(problem):
            raise
        _log.warning("not written path=%s problem=%s", path, problem.strerror)
        files.remove(path + TEMPORARY)
        return False
    return True
