"""Makes a backup: of a running node by a checkpoint, of a stopped one by its lock.

The nodes of a cluster are asked for their checkpoints over the network, see `cluster`.

Invariant: the backup has its name only when it is whole, verified and durable. Until then it lies
beside it, under the name with `.partial` behind it.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from millstream import __version__
from millstream.cli.backup.copying import copy_file, read_blocks, sync_tree, verify_copies
from millstream.cli.backup.manifest import (
    FILES,
    FORMAT,
    Backup,
    Manifest,
    sync_directory,
    write_manifest,
)
from millstream.cli.inspection import is_data_directory
from millstream.cli.render import Refused
from millstream.engine.checkpoints.checkpoint import CHECKPOINT, LOCK, MANIFEST
from millstream.errors import StartupError
from millstream.storage.files.directory import (
    CLEAN,
    ENCRYPTED,
    JOURNAL,
    KEYRING,
    LOGS,
    META,
    locked,
)
from millstream.storage.files.disk import DIRECTORY_MODE, DiskFiles
from millstream.storage.files.replacing import TEMPORARY
from millstream.storage.files.skipped_commands import SKIPPED
from millstream.storage.log.segment import CLEANED, LOG

if TYPE_CHECKING:
    from millstream.client import Client

PARTIAL = ".partial"

_TOP_FILES = (META, JOURNAL, KEYRING, ENCRYPTED, SKIPPED)

Progress = Callable[[int], object]


class Source(NamedTuple):
    """Files to copy, with the bytes of each that count."""

    read: Callable[[str, int], Iterable[bytes]]  # The first bytes of a file, in blocks.
    sizes: dict[str, int]
    torn: frozenset[str] = frozenset()  # May end with part of a write.


class Made(NamedTuple):
    backup: Backup
    problems: list[str]  # Damage that the node has as well.


def check_target(target: Path) -> None:
    if target.exists():
        raise Refused(f"{target} exists: name a directory that does not, such as one of today")


@contextmanager
def running_source(client: "Client", data_dir: Path | None) -> Iterator[Source]:
    """The checkpoint of a running node on this machine; removed behind the copying."""
    made = client.checkpoints.make()
    try:
        root = data_dir or Path(made.data_dir)
        with _only_backup(root):
            yield _read_checkpoint(root / CHECKPOINT, made.id, made.data_dir)
    finally:
        client.checkpoints.remove()


@contextmanager
def stopped_source(data_dir: Path) -> Iterator[Source]:
    """The directory of a node that does not run; `StartupError` if one does."""
    if not is_data_directory(data_dir):
        raise Refused(f"{data_dir} is not a data directory: pass the data_dir of a node")
    with locked(DiskFiles(data_dir), str(data_dir)):
        sizes = {
            str(path.relative_to(data_dir)): path.stat().st_size
            for path in [
                *(data_dir / name for name in _TOP_FILES),
                *sorted((data_dir / LOGS).rglob("*")),
            ]
            if path.is_file() and path.suffix not in (TEMPORARY, CLEANED)
        }
        is_clean = (data_dir / CLEAN).exists()
        yield Source(_below(data_dir), sizes, frozenset() if is_clean else _last_segments(sizes))


def make_backup(source: Source, target: Path, advance: Progress) -> Made:
    """Copy, verify and name it. After any error there is no `target`."""
    partial = target.with_name(target.name + PARTIAL)
    if partial.exists():
        shutil.rmtree(partial)  # Of a backup that was interrupted.
    partial.mkdir(mode=DIRECTORY_MODE, parents=True)
    copies = partial / FILES
    files = {
        name: copy_file(source.read(name, size), copies / name, size, advance)
        for name, size in sorted(source.sizes.items())
    }
    (copies / LOGS).mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    problems = verify_copies(copies, files, torn=source.torn)
    meta = json.loads((copies / META).read_bytes())
    manifest = Manifest(
        format=FORMAT,
        version=__version__,
        made_ms=int(time.time() * 1000),
        node_id=meta["node_id"],
        cluster_id=meta["cluster_id"],
        files=files,
    )
    sync_tree(copies)
    write_manifest(partial, manifest)
    partial.rename(target)
    sync_directory(target.parent)
    return Made(Backup(target, manifest), problems)


def _read_checkpoint(root: Path, identity: str, data_dir: str) -> Source:
    try:
        body = json.loads((root / MANIFEST).read_bytes())
    except FileNotFoundError:
        body = {}
    except PermissionError:
        raise Refused(f"{root} is closed to this user: run it as the user of the node") from None
    if body.get("id") != identity:
        raise Refused(
            f"the node keeps its data in {data_dir}, and its checkpoint is not at {root}: run "
            "this on the node's machine, and pass --data-dir if its path differs here"
        )
    return Source(_below(root), body["files"])


def _below(root: Path) -> Callable[[str, int], Iterable[bytes]]:
    return lambda name, size: read_blocks(root / name, size)


@contextmanager
def _only_backup(data_dir: Path) -> Iterator[None]:
    if not data_dir.is_dir():
        yield  # Another machine: the missing checkpoint is reported.
        return
    try:
        lock = DiskFiles(data_dir).lock(LOCK)
    except BlockingIOError:
        raise Refused(f"another backup of {data_dir} is running: wait for it") from None
    except PermissionError:
        raise Refused(
            f"{data_dir} is closed to this user: run it as the user of the node"
        ) from None
    try:
        yield
    finally:
        lock.close()


def is_running(data_dir: Path) -> bool:
    """Whether a node holds the directory."""
    if not data_dir.is_dir():
        return False
    try:
        with locked(DiskFiles(data_dir), str(data_dir)):
            return False
    except StartupError:
        return True


def _last_segments(names: "dict[str, int]") -> frozenset[str]:
    last: dict[str, str] = {}
    for name in sorted(names):
        if name.endswith(LOG):
            last[name.rpartition("/")[0]] = name
    return frozenset(last.values())
