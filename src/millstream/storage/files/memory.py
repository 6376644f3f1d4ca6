"""Files in RAM, for `storage = "memory"`: the same log code on top, nothing left when it ends.

Owns the tree and its bytes; `tests.support.crashing_files` builds on `place` and `resize`.

Invariant: each step on a buffer is a single operation that the interpreter does not interrupt, so
another thread may read while the event loop writes. Views would not be safe: a buffer with a view
cannot grow.
"""

import errno
from collections.abc import Callable, Sequence
from typing import TypeAlias, Union

from millstream.model import Buffer
from millstream.storage.files.paths import split_path


def place(data: bytearray, at: int, chunk: Buffer) -> None:
    """Write `chunk` at `at` as a file system does: a gap before it reads as zeros."""
    assert at >= 0
    if at > len(data):
        data.extend(bytes(at - len(data)))
    if at == len(data):
        data += chunk  # Appending needs no temporary copy; replacing a slice does.
    else:
        data[at : at + len(chunk)] = chunk


def resize(data: bytearray, size: int) -> None:
    """Cut `data` to `size`, or fill it up with zeros."""
    assert size >= 0
    if size > len(data):
        data.extend(bytes(size - len(data)))
    else:
        del data[size:]


class MemoryFile:
    """The content of one file; every `open` returns this object."""

    __slots__ = ("_data", "_release")

    def __init__(self, release: Callable[[], None] | None = None) -> None:
        self._data = bytearray()
        self._release = release

    def size(self) -> int:
        return len(self._data)

    def read(self, at: int, size: int) -> bytes:
        assert at >= 0
        assert size >= 0
        return bytes(self._data[at : at + size])

    def write(self, at: int, chunks: Sequence[Buffer]) -> None:
        for chunk in chunks:
            if len(chunk):  # Writing nothing behind the end grows no file, on a disk neither.
                place(self._data, at, chunk)
            at += len(chunk)

    def truncate(self, size: int) -> None:
        resize(self._data, size)

    def sync(self) -> None:
        """Nothing outlives the process, so there is nothing to make durable."""

    def forget_cached(self) -> None:
        """The memory is the disk."""

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        """Give up the lock, if this is one; content goes with the last reference to it."""
        if self._release is not None:
            self._release()
            self._release = None


_Tree: TypeAlias = dict[str, Union[MemoryFile, "_Tree"]]


class MemoryFiles:
    """Implements `ports.Files`."""

    def __init__(self) -> None:
        self._root: _Tree = {}
        self._locked: set[str] = set()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        parent, name = self._parent(path)
        entry = parent.get(name)
        if isinstance(entry, dict):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if entry is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            entry = parent[name] = MemoryFile()
        return entry

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def list(self, directory: str) -> list[str]:
        entry = self._find(directory)
        if isinstance(entry, MemoryFile):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", directory)
        return sorted(entry or ())

    def make_directory(self, path: str) -> None:
        tree = self._root
        for part in split_path(path):
            entry = tree.setdefault(part, {})
            if isinstance(entry, MemoryFile):
                raise FileExistsError(errno.EEXIST, "a file is in the way", path)
            tree = entry

    def remove(self, path: str) -> None:
        entry = self._find(path)
        if isinstance(entry, dict):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if entry is not None:
            parent, name = self._parent(path)
            del parent[name]

    def remove_directory(self, path: str) -> None:
        entry = self._find(path)
        if isinstance(entry, MemoryFile):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        if entry is not None:
            parent, name = self._parent(path)
            del parent[name]

    def rename(self, source: str, target: str) -> None:
        old_parent, old_name = self._parent(source)
        new_parent, new_name = self._parent(target)
        if old_name not in old_parent:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if isinstance(new_parent.get(new_name), dict):
            raise IsADirectoryError(errno.EISDIR, "is a directory", target)
        new_parent[new_name] = old_parent.pop(old_name)

    def link(self, source: str, target: str) -> None:
        parent, name = self._parent(target)
        if name in parent:
            raise FileExistsError(errno.EEXIST, "a file is in the way", target)
        parent[name] = self.open(source)

    def sync_directory(self, path: str) -> None:
        if not isinstance(self._find(path), dict):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)

    def lock(self, path: str) -> MemoryFile:
        if path in self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        self.open(path, create=True)
        self._locked.add(path)
        return MemoryFile(release=lambda: self._locked.discard(path))

    def _find(self, path: str) -> Union[MemoryFile, "_Tree", None]:
        entry: MemoryFile | _Tree | None = self._root
        for part in split_path(path):
            if not isinstance(entry, dict):
                return None
            entry = entry.get(part)
        return entry

    def _parent(self, path: str) -> tuple[_Tree, str]:
        parts = split_path(path)
        assert parts, "the root has no parent"
        parent = self._find("/".join(parts[:-1]))
        if not isinstance(parent, dict):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return parent, parts[-1]
