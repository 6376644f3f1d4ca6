"""Backs up a cluster over the network: a checkpoint on every node, then what each of them leads.

All checkpoints are made before the first file is copied. A log is copied from each node that led it
in its checkpoint, from all nodes where none did: one of those copies has every record that was
acknowledged before the backup began.

Invariant: the directory has its name only when the backups of all nodes in it are whole.
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from millstream.cli.backup.making import PARTIAL, Progress, Source, make_backup
from millstream.cli.backup.manifest import NODE, Backup, sync_directory
from millstream.cli.backup.merging import merge, read_cluster
from millstream.client.errors import ClientError, TimedOut, Unreachable
from millstream.engine.checkpoints.checkpoint import MANIFEST
from millstream.model import CONTROL_LOG
from millstream.storage.files.directory import LOGS
from millstream.storage.files.disk import DIRECTORY_MODE

if TYPE_CHECKING:
    from millstream.client import Client
    from millstream.client.extensions.checkpoints import Checkpoint, Checkpoints
    from millstream.client.models import BrokerNode


class Sources(NamedTuple):
    by_node: dict[int, Source]
    problems: list[str]

    @property
    def size_bytes(self) -> int:
        return sum(sum(source.sizes.values()) for source in self.by_node.values())


class MadeAll(NamedTuple):
    path: Path
    backups: list[Backup]
    problems: list[str]


@contextmanager
def cluster_sources(client: "Client", nodes: "Iterable[BrokerNode]") -> Iterator[Sources]:
    """What to copy from each node; the checkpoints are removed behind the copying."""
    made: dict[int, tuple[Checkpoints, Checkpoint]] = {}
    problems: list[str] = []
    try:
        for node in nodes:
            checkpoints = client.checkpoints.of(node)
            try:
                made[node.node_id] = checkpoints, checkpoints.make()
            except (Unreachable, TimedOut) as problem:
                problems.append(f"node {node.node_id} is not in the backup: {problem}")
        notes = {node: _note(*each) for node, each in made.items()}
        yield Sources(
            {
                node: Source(partial(_blocks, *made[node]), sizes)
                for node, sizes in _shared(notes).items()
            },
            problems,
        )
    finally:
        for checkpoints, _ in made.values():
            with suppress(ClientError):  # The next checkpoint replaces it.
                checkpoints.remove()


def make_cluster_backup(sources: Sources, target: Path, advance: Progress) -> MadeAll:
    """Make a backup of each node below `target`. After any error there is no `target`."""
    partly = target.with_name(target.name + PARTIAL)
    if partly.exists():
        shutil.rmtree(partly)  # Of a backup that was interrupted.
    partly.mkdir(mode=DIRECTORY_MODE, parents=True)
    backups, problems = [], list(sources.problems)
    for node, source in sources.by_node.items():
        made = make_backup(source, partly / f"{NODE}{node}", advance)
        backups.append(made.backup)
        problems += made.problems
    problems += _absences(backups)
    partly.rename(target)
    sync_directory(target.parent)
    return MadeAll(target, backups, problems)


class _Note(NamedTuple):
    """The manifest of a checkpoint."""

    sizes: dict[str, int]
    led: frozenset[str]


def _note(checkpoints: "Checkpoints", made: "Checkpoint") -> _Note:
    body = json.loads(b"".join(_blocks(checkpoints, made, MANIFEST, None)))
    return _Note(body["files"], frozenset(body["led"]))


def _blocks(
    checkpoints: "Checkpoints", made: "Checkpoint", name: str, size: int | None
) -> Iterator[bytes]:
    """The first `size` bytes of a file, or all of it."""
    position = 0
    while size is None or position < size:
        block = checkpoints.read(made.id, name, position)
        if not block:
            return
        yield block if size is None else block[: size - position]
        position += len(block)


def _shared(notes: dict[int, _Note]) -> dict[int, dict[str, int]]:
    """The files to copy from each node, with their sizes."""
    led = frozenset[str]().union(*(note.led for note in notes.values()))
    return {
        node: {
            name: size
            for name, size in note.sizes.items()
            if (log := _log_of(name)) is None or log in note.led or log not in led
        }
        for node, note in notes.items()
    }


def _log_of(name: str) -> str | None:
    """The directory of a log; None for other files, and for the control log: all copies of it."""
    parts = name.split("/")
    is_log = parts[0] == LOGS and len(parts) > 2 and parts[1] != str(CONTROL_LOG)
    return parts[1] if is_log else None


def _absences(backups: list[Backup]) -> list[str]:
    """Partitions that no node has copied. An encrypted control log tells none of them."""
    if any(read_cluster(backup) is None for backup in backups):
        return []
    return [f"{name} is not in the backup: no node with it" for name in merge(backups).missing]
