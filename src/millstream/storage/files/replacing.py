"""Replaces whole files: written and synced aside, then renamed over the old one.

Invariant: a power cut at any moment leaves the old file or the new one, never a part of it.
"""

import logging
from collections.abc import Sequence

from millstream.errors import is_transient
from millstream.model import Buffer
from millstream.ports import Files
from millstream.storage.files.paths import parent_of

TEMPORARY = ".tmp"  # Behind the name of the file.

_log = logging.getLogger(__name__)


def replace_file(files: Files, path: str, chunks: Sequence[Buffer]) -> None:
    """Replace the file at `path`, durably; blocks. After an `OSError` the old one may be there."""
    _write(files, path + TEMPORARY, chunks)
    _rename(files, path)


def try_replace_file(files: Files, path: str, chunks: Sequence[Buffer]) -> bool:
    """The same; False if the disk is full or no descriptor is free: then the old one stays."""
    if not write_aside(files, path, chunks):
        return False
    _rename(files, path)
    return True


def write_aside(files: Files, path: str, chunks: Sequence[Buffer]) -> bool:
    """Write and sync a file that a rename will put in its place.

    False if the disk is full or no descriptor is free: such a file only saves time at the next
    start, and must not stop a log from being synced.
    """
    try:
        _write(files, path + TEMPORARY, chunks)
    except OSError as problem:
        if not is_transient(problem):
            raise
        _log.warning("not written path=%s problem=%s", path, problem.strerror)
        files.remove(path + TEMPORARY)
        return False
    return True


def _write(files: Files, path: str, chunks: Sequence[Buffer]) -> None:
    file = files.open(path, create=True)
    file.truncate(0)
    file.write(0, chunks)
    file.sync()
    file.close()


def _rename(files: Files, path: str) -> None:
    files.rename(path + TEMPORARY, path)
    files.sync_directory(parent_of(path))
