"""Real files: the one module of storage that talks to the operating system.

Owns descriptors, and making the kernel keep the promises of `ports.Files`: all of a write or an
error, durable after a sync, never outside of the root. A descriptor closes with the last reference
to its file, as sockets do, so a reader may finish on a segment that was deleted meanwhile. Made for
Linux and macOS; elsewhere it can be imported, not used.
"""

import errno
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from millstream.errors import OUT_OF_RESOURCES
from millstream.model import Buffer
from millstream.storage.files.paths import split_path

if sys.platform != "win32":
    import fcntl

_CHUNKS_MAX = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in getattr(os, "sysconf_names", ()) else 16
_OPEN_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)


class DiskFile:
    """An open descriptor.

    To let go of a file that another thread may still use, drop the reference: `close` frees the
    number at once, and the next file to be opened would get it.
    """

    __slots__ = ("_descriptor", "_path")

    def __init__(self, descriptor: int, path: str | Path) -> None:
        self._descriptor = descriptor
        self._path = path

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, at: int, size: int) -> bytes:
        assert at >= 0
        assert size >= 0
        data = os.pread(self._descriptor, size, at)
        if len(data) == size or not data:
            return data
        # One call may return less than there is, always so above 2 GiB.
        parts = [data]
        missing = size - len(data)
        while missing and (data := os.pread(self._descriptor, missing, at + size - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def write(self, at: int, chunks: Sequence[Buffer]) -> None:
        assert at >= 0
        while len(chunks) > _CHUNKS_MAX:
            at = self._write_group(at, chunks[:_CHUNKS_MAX])
            chunks = chunks[_CHUNKS_MAX:]
        self._write_group(at, chunks)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        if self._descriptor < 0:  # Python answers with ValueError here, and only here.
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._path))
        try:
            if sys.platform == "darwin":
                # On macOS fsync stops at the drive's own cache.
                fcntl.fcntl(self._descriptor, fcntl.F_FULLFSYNC)
            elif hasattr(os, "fdatasync"):
                os.fdatasync(self._descriptor)
            else:
                os.fsync(self._descriptor)
        except OSError as problem:
            raise _failed_sync(problem, self._path) from problem

    def forget_cached(self) -> None:
        if sys.platform == "linux":
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def _write_group(self, at: int, chunks: Sequence[Buffer]) -> int:
        end = at + sum(map(len, chunks))
        if end == at:
            return at  # macOS refuses a write of no chunks.
        # Old versions of macOS have no pwritev; the slow way then does it all.
        written = os.pwritev(self._descriptor, chunks, at) if hasattr(os, "pwritev") else 0
        if at + written < end:
            self._write_remaining(at + written, memoryview(b"".join(chunks))[written:])
        return end

    def _write_remaining(self, at: int, data: memoryview) -> None:
        """Continue after a short write: the next call raises the reason, or succeeds."""
        while data:
            written = os.pwrite(self._descriptor, data, at)
            if written == 0:
                raise OSError(errno.EIO, "the disk takes no more bytes", str(self._path))
            data = data[written:]
            at += written


_log = logging.getLogger(__name__)

# The data is its owner's alone.
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
OTHERS = 0o077


class DiskFiles:
    """Implements `ports.Files` under `root`, which `make_directory("")` creates."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._prefix = f"{root}/"

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        real = self._name(path)
        flags = _OPEN_FLAGS | os.O_CREAT if create else _OPEN_FLAGS
        return DiskFile(os.open(real, flags, FILE_MODE), real)

    def exists(self, path: str) -> bool:
        return os.access(self._name(path), os.F_OK)

    def list(self, directory: str) -> list[str]:
        try:
            with os.scandir(self._name(directory)) as entries:
                return sorted(entry.name for entry in entries)
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        real = self._real(path)
        if path:
            real.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            return
        # Only this call can make the root itself durable: its parents lie outside of it.
        missing = [each for each in (real, *real.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
            _sync_directory(each.parent)
        if not real.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(real))
        _tighten(real)

    def remove(self, path: str) -> None:
        self._real(path).unlink(missing_ok=True)

    def remove_directory(self, path: str) -> None:
        assert path, "the root stays"
        try:
            import shutil

            shutil.rmtree(self._real(path))
        except FileNotFoundError:
            return

    def rename(self, source: str, target: str) -> None:
        self._real(source).replace(self._real(target))

    def link(self, source: str, target: str) -> None:
        self._real(target).hardlink_to(self._real(source))

    def sync_directory(self, path: str) -> None:
        _sync_directory(self._real(path))

    def lock(self, path: str) -> DiskFile:
        if sys.platform == "win32":
            raise OSError(errno.ENOTSUP, "a directory cannot be locked here", path)
        file = self.open(path, create=True)
        # The lock belongs to the descriptor: it goes when that closes, or when the process dies.
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file

    def _name(self, path: str) -> str:
        """The same as `_real`, for thousands of files: a `Path` takes 10 us to be made."""
        split_path(path)  # Checks it.
        return self._prefix + path

    def _real(self, path: str) -> Path:
        return self.root.joinpath(*split_path(path))


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as problem:
        raise _failed_sync(problem, path) from problem
    finally:
        os.close(descriptor)


def _failed_sync(problem: OSError, path: str | Path) -> OSError:
    """The error of a sync, which is final whatever its number says.

    The kernel may have dropped the dirty pages of a sync that failed for want of memory, so a
    second sync that succeeds would prove nothing.
    """
    if problem.errno not in OUT_OF_RESOURCES:
        return problem
    return OSError(errno.EIO, f"sync failed: {problem.strerror}", str(path))


def _tighten(root: Path) -> None:
    """Close a directory to others than its owner, or name one that is not ours to close."""
    status = root.stat()
    if not status.st_mode & OTHERS or not hasattr(os, "geteuid"):
        return
    if status.st_uid == os.geteuid():
        root.chmod(DIRECTORY_MODE)
        _log.info("closed the data directory to other users path=%s", root)
    else:
        _log.warning("other users can read the data directory, which is not ours path=%s", root)
