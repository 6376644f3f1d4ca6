"""Files that lose what was not synced: the disk under crash tests and the cluster simulator.

`CrashingFiles` implements `ports.Files` in memory. Of every file and directory it keeps what is
visible (the page cache), what is durable, and the operations in between, so that `power_cut` can
choose what of them reached the disk. It assumes no courtesy: a file whose directory was not synced
may vanish, a renamed file may be empty, a failed sync loses what it should have kept. All
randomness comes from the `Random` that is passed in.
"""

import errno
from collections.abc import Callable, Sequence
from random import Random

from millstream.model import Buffer
from millstream.storage.files.memory import place, resize
from millstream.storage.files.paths import split_path

SECTOR_BYTES = 512


class Content:
    """One file on the disk, whatever it is called.

    A snapshot shares the buffers with the original; the first that changes them makes a copy.
    """

    __slots__ = ("durable", "is_shared", "lost", "pending", "visible")

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.visible = bytearray(data)
        self.durable = bytearray(data)
        # Unsynced, in order: (position, bytes) was written, (size, None) was a truncation.
        self.pending: list[tuple[int, bytes | None]] = []
        self.lost = False  # A sync failed: visible shows bytes that are on no disk.
        self.is_shared = False

    def write(self, at: int, data: bytes) -> None:
        self._own()
        place(self.visible, at, data)
        self.pending.append((at, data))

    def truncate(self, size: int) -> None:
        self._own()
        resize(self.visible, size)
        self.pending.append((size, None))

    def sync(self) -> None:
        if self.pending:
            self._own()
            _replay(self.durable, self.pending)
            self.pending = []

    def fail_sync(self) -> None:
        """Forget what was unsynced without keeping it, as Linux does: the pages count as clean."""
        self._own()
        self.lost = self.lost or bool(self.pending)
        self.pending = []

    def forget_cached(self) -> None:
        if self.lost:
            self._own()
            self.visible = bytearray(self.durable)
            _replay(self.visible, self.pending)
            self.lost = False

    def flip(self, position: int, mask: int) -> None:
        assert position < len(self.durable), "only what is on the disk can rot there"
        self._own()
        self.durable[position] ^= mask
        if position < len(self.visible):
            self.visible[position] ^= mask

    def copy(self) -> "Content":
        copy = Content()
        copy.visible, copy.durable, copy.pending = self.visible, self.durable, self.pending
        copy.lost = self.lost
        copy.is_shared = self.is_shared = True
        return copy

    def _own(self) -> None:
        if self.is_shared:
            self.visible, self.durable = bytearray(self.visible), bytearray(self.durable)
            self.pending = list(self.pending)
            self.is_shared = False


class Directory:
    """Names, visible and durable. Unsynced changes are (old name, new name, node), in order.

    Without an old name the node was created, without a new one removed.
    """

    __slots__ = ("durable", "pending", "visible")

    def __init__(self) -> None:
        self.visible: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[tuple[str | None, str | None, Node]] = []

    def change(self, old: str | None, new: str | None, node: "Node") -> None:
        self.pending.append((old, new, node))
        _rename(self.visible, old, new, node)

    def sync(self) -> None:
        for change in self.pending:
            _rename(self.durable, *change)
        self.pending = []

    def fail_sync(self) -> None:
        """Change nothing: file systems keep metadata that they could not write, or stop."""


Node = Content | Directory


class Fate:
    """What a power cut spares: nothing unsynced. The other fates are kinder or crueller."""

    def names(self, count: int) -> int:
        """How many of a directory's `count` unsynced changes survive, oldest first."""
        return 0

    def image(self, content: Content) -> bytearray:
        """What the file holds afterwards."""
        return bytearray(content.durable)


class Torn(Fate):
    """In order: some whole operations of each file, and possibly a part of the next write."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def names(self, count: int) -> int:
        return self.random.randint(0, count)

    def image(self, content: Content) -> bytearray:
        data = bytearray(content.durable)
        kept = self.random.randint(0, len(content.pending))
        _replay(data, content.pending[:kept])
        if kept < len(content.pending):
            at, written = content.pending[kept]
            if written and self.random.random() < 0.5:
                place(data, at, written[: self.random.randrange(len(written))])
        return data


class Reordered(Torn):
    """Any sectors of the unsynced writes, any truncations; the rest is old bytes or zeros.

    The file system may also have noted the size of a file whose data never came.
    """

    def image(self, content: Content) -> bytearray:
        data = bytearray(content.durable)
        survival = self.random.random()
        for at, written in content.pending:
            if written is None:
                if self.random.random() < survival:
                    resize(data, at)
                continue
            for start, end in _sectors(at, at + len(written)):
                if self.random.random() < survival:
                    place(data, start, written[start - at : end - at])
        if len(data) < len(content.visible) and self.random.random() < 0.25:
            resize(data, self.random.randint(len(data), len(content.visible)))
        return data


class Kept(Fate):
    """Exactly the first `size` unsynced bytes of every file, and all names."""

    def __init__(self, size: int) -> None:
        self.size = size

    def names(self, count: int) -> int:
        return count

    def image(self, content: Content) -> bytearray:
        data = bytearray(content.durable)
        left = self.size
        for at, written in content.pending:
            if written is None:
                resize(data, at)
                continue
            if left <= 0:
                break
            place(data, at, written[:left])
            left -= len(written)
        return data


class CrashingFile:
    """A handle; it dies with the process or the power."""

    def __init__(self, files: "CrashingFiles", path: str, content: Content) -> None:
        self._files = files
        self._path = path
        self._content = content
        self._life = files.life
        self._is_closed = False

    def size(self) -> int:
        self._check()
        return len(self._content.visible)

    def read(self, at: int, size: int) -> bytes:
        self._check()
        assert at >= 0
        assert size >= 0
        self._files.admit_read(self._path)
        return bytes(self._content.visible[at : at + size])

    def write(self, at: int, chunks: Sequence[Buffer]) -> None:
        self._operate("write")
        assert at >= 0
        data = b"".join(chunks)
        if not data:
            return
        fits = self._files.admit_write(data, growth=at + len(data) - len(self._content.visible))
        if fits:
            self._content.write(at, data[:fits])
        if fits < len(data):
            raise OSError(self._files.write_error, "write failed", self._path)

    def truncate(self, size: int) -> None:
        self._operate("truncate")
        self._files.take_space(size - len(self._content.visible))
        self._content.truncate(size)

    def sync(self) -> None:
        self._operate("sync")
        self._files.sync_node(self._content, self._path)

    def forget_cached(self) -> None:
        self._check()
        self._content.forget_cached()

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._is_closed = True
        self._files.unlock(self)

    def _operate(self, kind: str) -> None:
        self._check()
        self._files.operate(kind, self._path)
        self._check()

    def _check(self) -> None:
        if self._life != self._files.life:
            raise OSError(errno.EIO, "dead handle: the power was cut since it was opened")
        if self._is_closed:
            raise OSError(errno.EBADF, "closed")


class Snapshot:
    """A disk at one moment; `CrashingFiles.restore` goes back to it, as often as one likes."""

    def __init__(self, root: Directory, space_left: int | None) -> None:
        self.root = root
        self.space_left = space_left


class CrashingFiles:
    """Implements `ports.Files` over a disk that outlives any number of power cuts.

    `on_operation(kind, path)` is called before each operation that changes or syncs something; it
    may raise, take a snapshot, or cut the power. `space_left` is None or the bytes that still fit.
    """

    def __init__(self) -> None:
        self.life = 0  # Handles of an earlier life are dead.
        self.operation_count = 0
        self.on_operation: Callable[[str, str], None] | None = None
        self.space_left: int | None = None
        self.write_error = errno.ENOSPC
        self._root = Directory()
        self._locks: dict[str, CrashingFile] = {}
        self._write_failure: tuple[int, int, int] | None = None  # In how many, bytes kept, errno.
        self._sync_failure: tuple[int, int] | None = None
        self._read_failure: tuple[str, int] | None = None

    # -- crashes -----------------------------------------------------------------------------

    def power_cut(
        self,
        random: Random | None = None,
        *,
        reorder: bool = False,
        worst: bool = False,
        kept_bytes: int | None = None,
    ) -> None:
        """Lose power: every handle dies, unsynced operations survive or not.

        With `random`, of each file and directory a prefix in order, the next write torn; with
        `reorder` any sectors of it. `worst` loses all that was not synced. `kept_bytes` keeps that
        many unsynced bytes of each file, to try every byte of a write.
        """
        fate = Fate()
        if kept_bytes is not None:
            fate = Kept(kept_bytes)
        elif not worst:
            assert random is not None, "give a random, or say worst=True"
            fate = Reordered(random) if reorder else Torn(random)
        self.kill()
        before, self._root = self._root, _after(self._root, fate, {})
        self._give_space(_size(before) - _size(self._root))

    def kill(self) -> None:
        """End the process, as kill -9 does: handles die, locks go, the page cache stays."""
        self.life += 1
        self._locks = {}

    def snapshot(self) -> Snapshot:
        """Costs by the number of files and unsynced operations, not by their size."""
        return Snapshot(_copy(self._root, {}), self.space_left)

    def restore(self, snapshot: Snapshot) -> None:
        """Return to that disk. Handles die; counters, hook and planned failures stay."""
        self.kill()
        self._root = _copy(snapshot.root, {})
        self.space_left = snapshot.space_left

    # -- faults ------------------------------------------------------------------------------

    def fail_write(self, nth: int = 1, *, kept: int = 0, error: int = errno.ENOSPC) -> None:
        """Let the `nth` write from here fail, after `kept` of its bytes were written."""
        assert nth >= 1
        self._write_failure = (nth, kept, error)

    def fail_sync(self, nth: int = 1, *, error: int = errno.EIO) -> None:
        """Let the `nth` sync from here, of a file or a directory, fail.

        A file loses what was unsynced for good, though reads go on to show it until
        `forget_cached` or a power cut. A directory's changes stay unsynced.
        """
        assert nth >= 1
        self._sync_failure = (nth, error)

    def fail_reads(self, suffix: str, *, error: int = errno.EIO) -> None:
        """Let every read of files whose path ends in `suffix` fail, until `heal`."""
        self._read_failure = (suffix, error)

    def heal(self) -> None:
        """Call off the failures that were planned and have not happened."""
        self._write_failure = self._sync_failure = self._read_failure = None

    def flip_bit(self, path: str, position: int, *, bit: int = 0) -> None:
        """Damage a durable byte, as a disk does."""
        self._content(path).flip(position, 1 << bit)

    def unsynced_bytes(self, path: str) -> int:
        return sum(len(data) for _, data in self._content(path).pending if data is not None)

    # -- ports.Files -------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> CrashingFile:
        parent, name = self._parent(path)
        entry = parent.visible.get(name)
        if isinstance(entry, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if entry is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.operate("create", path)
            self._refuse_if_full()
            entry = Content()
            parent.change(None, name, entry)
        return CrashingFile(self, path, entry)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def list(self, directory: str) -> list[str]:
        entry = self._find(directory)
        if isinstance(entry, Content):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", directory)
        return sorted(entry.visible) if entry is not None else []

    def make_directory(self, path: str) -> None:
        parts = split_path(path)
        directory = self._root
        for depth, part in enumerate(parts, start=1):
            entry = directory.visible.get(part)
            if isinstance(entry, Content):
                raise FileExistsError(errno.EEXIST, "a file is in the way", path)
            if entry is None:
                self.operate("make_directory", "/".join(parts[:depth]))
                self._refuse_if_full()
                entry = Directory()
                directory.change(None, part, entry)
            directory = entry

    def remove(self, path: str) -> None:
        entry = self._find(path)
        if isinstance(entry, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if entry is not None:
            self._remove(path, entry)

    def remove_directory(self, path: str) -> None:
        """One operation for each file, as on a real disk: a crash leaves the rest."""
        entry = self._find(path)
        if isinstance(entry, Content):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        if entry is None:
            return
        for name, node in sorted(entry.visible.items()):
            inner = f"{path}/{name}"
            if isinstance(node, Directory):
                self.remove_directory(inner)
            else:
                self._remove(inner, node)
        self._remove(path, entry)

    def rename(self, source: str, target: str) -> None:
        parent, old = self._parent(source)
        new_parent, new = self._parent(target)
        assert parent is new_parent, "a rename across directories is not modelled"
        if old not in parent.visible:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        replaced = parent.visible.get(new)
        if isinstance(replaced, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", target)
        self.operate("rename", target)
        if replaced is not None and new != old:
            self._give_space(len(replaced.visible))
        parent.change(old, new, parent.visible[old])

    def link(self, source: str, target: str) -> None:
        parent, name = self._parent(target)
        if name in parent.visible:
            raise FileExistsError(errno.EEXIST, "a file is in the way", target)
        old_parent, old = self._parent(source)
        if old not in old_parent.visible:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self.operate("link", target)
        parent.change(None, name, old_parent.visible[old])

    def sync_directory(self, path: str) -> None:
        entry = self._find(path)
        if not isinstance(entry, Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.operate("sync_directory", path)
        self.sync_node(entry, path)

    def lock(self, path: str) -> CrashingFile:
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        file = self._locks[path] = self.open(path, create=True)
        return file

    # -- for handles -------------------------------------------------------------------------

    def operate(self, kind: str, path: str) -> None:
        """Count an operation and let the test look in, which may end this life."""
        self.operation_count += 1
        if self.on_operation is not None:
            life = self.life
            self.on_operation(kind, path)
            if life != self.life:
                raise OSError(errno.EIO, "the power was cut before this operation")

    def admit_read(self, path: str) -> None:
        if self._read_failure is not None and path.endswith(self._read_failure[0]):
            raise OSError(self._read_failure[1], "read failed", path)

    def admit_write(self, data: bytes, *, growth: int) -> int:
        """How many bytes of `data` get written; fewer than all means the write fails."""
        if self._write_failure is not None:
            nth, kept, error = self._write_failure
            self._write_failure = (nth - 1, kept, error) if nth > 1 else None
            if nth == 1:
                self.write_error = error
                kept = min(kept, len(data) - 1)
                self._give_space(-max(0, growth - (len(data) - kept)))
                return kept
        if self.space_left is None or growth <= self.space_left:
            self._give_space(-max(0, growth))
            return len(data)
        self.write_error = errno.ENOSPC
        fits = max(0, len(data) - growth) + self.space_left
        fits = min(fits, len(data) - 1)
        self.space_left = 0
        return fits

    def take_space(self, growth: int) -> None:
        """Refuse what does not fit; shrinking gives space back."""
        if self.space_left is not None:
            if growth > self.space_left:
                raise OSError(errno.ENOSPC, "no space left")
            self.space_left -= growth

    def sync_node(self, node: Node, path: str) -> None:
        if self._sync_failure is not None:
            nth, error = self._sync_failure
            self._sync_failure = (nth - 1, error) if nth > 1 else None
            if nth == 1:
                node.fail_sync()
                raise OSError(error, "sync failed", path)
        node.sync()

    def unlock(self, file: CrashingFile) -> None:
        self._locks = {path: held for path, held in self._locks.items() if held is not file}

    # -- parts -------------------------------------------------------------------------------

    def _remove(self, path: str, node: Node) -> None:
        parent, name = self._parent(path)
        self.operate("remove", path)
        if isinstance(node, Content):
            self._give_space(len(node.visible))
        parent.change(name, None, node)

    def _refuse_if_full(self) -> None:
        """A name needs space too, though not a measured amount of it."""
        if self.space_left is not None and self.space_left <= 0:
            raise OSError(errno.ENOSPC, "no space left")

    def _give_space(self, size: int) -> None:
        if self.space_left is not None:
            self.space_left += size

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for part in split_path(path):
            if not isinstance(node, Directory):
                return None
            node = node.visible.get(part)
        return node

    def _content(self, path: str) -> Content:
        entry = self._find(path)
        assert isinstance(entry, Content), f"no file {path}"
        return entry

    def _parent(self, path: str) -> tuple[Directory, str]:
        directory, _, name = path.rpartition("/")
        assert split_path(path), "the root has no parent"
        parent = self._find(directory)
        if not isinstance(parent, Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return parent, name


def _size(node: Node) -> int:
    if isinstance(node, Content):
        return len(node.visible)
    return sum(map(_size, node.visible.values()))


def _replay(data: bytearray, operations: Sequence[tuple[int, bytes | None]]) -> None:
    for at, written in operations:
        if written is None:
            resize(data, at)
        else:
            place(data, at, written)


def _rename(names: dict[str, Node], old: str | None, new: str | None, node: Node) -> None:
    if old is not None:
        names.pop(old, None)
    if new is not None:
        names[new] = node


def _sectors(start: int, end: int) -> list[tuple[int, int]]:
    """Cut a range where sectors begin."""
    cuts = range(start - start % SECTOR_BYTES + SECTOR_BYTES, end, SECTOR_BYTES)
    return list(zip([start, *cuts], [*cuts, end], strict=True))


def _after(directory: Directory, fate: Fate, done: dict[int, Node]) -> Directory:
    """The tree that is found when the power is back."""
    names = dict(directory.durable)
    for change in directory.pending[: fate.names(len(directory.pending))]:
        _rename(names, *change)
    after = Directory()
    for name, node in sorted(names.items()):
        if id(node) not in done:  # During a move one file may have two names.
            if isinstance(node, Directory):
                done[id(node)] = _after(node, fate, done)
            else:
                done[id(node)] = Content(fate.image(node))
        after.durable[name] = done[id(node)]
    after.visible = dict(after.durable)
    return after


def _copy(directory: Directory, done: dict[int, Node]) -> Directory:
    def copied(node: Node) -> Node:
        if id(node) not in done:
            done[id(node)] = _copy(node, done) if isinstance(node, Directory) else node.copy()
        return done[id(node)]

    copy = Directory()
    copy.visible = {name: copied(node) for name, node in directory.visible.items()}
    copy.durable = {name: copied(node) for name, node in directory.durable.items()}
    copy.pending = [(old, new, copied(node)) for old, new, node in directory.pending]
    return copy
