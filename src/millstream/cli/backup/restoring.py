"""Makes a data directory of a backup, as a cluster of its own: one node, which others may join.

Invariant: `millstream.json` is written last. A node does not start on a directory that was restored
in part.
"""

from pathlib import Path
from random import SystemRandom
from typing import NamedTuple

from millstream.cli.backup.copying import (
    Advance,
    checksum_of,
    compare,
    copy_from_backup,
    sync_tree,
)
from millstream.cli.backup.manifest import (
    FILES,
    MANIFEST,
    NODE,
    Backup,
    CopiedFile,
    read_manifest,
)
from millstream.cli.backup.merging import ALONE, merge, read_cluster, write_merged
from millstream.cli.render import Refused
from millstream.model import NodeId
from millstream.storage.files.directory import KEYRING, LOGS, META, write_meta
from millstream.storage.files.disk import DIRECTORY_MODE, DiskFiles

_MAY_BE_THERE = {"lost+found", "lock"}
_MISSING_SHOWN_MAX = 5


class Restored(NamedTuple):
    node_id: int
    cluster_id: str
    missing: list[str]  # Partitions that are empty, because no backup has them.


def read_backups(directory: Path) -> list[Backup]:
    """The backup of a node, or those of the nodes of a cluster; `Refused` if there is none."""
    below = sorted(path.parent for path in directory.glob(f"{NODE}*/{MANIFEST}"))
    paths = [directory] if (directory / MANIFEST).exists() or not below else below
    return [Backup(path, read_manifest(path)) for path in paths]


def check_backup(backup: Backup, advance: Advance) -> None:
    """Compare every file with the manifest; `Refused` names the first that differs."""
    for name, written in backup.manifest.files.items():
        stored = _checksum(backup.path, name, advance)
        compare(backup.path / FILES / name, stored, written)


def restore_backups(
    backups: list[Backup], data_dir: Path, advance: Advance, *, is_partial: bool = False
) -> Restored:
    """Make `data_dir`, which is new or empty. `Refused` if partitions are missing, unless it may be
    `is_partial`.

    With encryption the id of the cluster stays: the keys of the keyring are bound to it.
    """
    _check_empty(data_dir)
    is_cluster = len(backups) > 1 or read_cluster(backups[0]) is not None
    merged = merge(backups) if is_cluster else None
    missing = merged.missing if merged else []
    if missing and not is_partial:
        shown = ", ".join(missing[:_MISSING_SHOWN_MAX])
        raise Refused(
            f"{len(missing)} partitions are on nodes that are not in the backup: {shown}"
            f"{', …' if len(missing) > _MISSING_SHOWN_MAX else ''}. Put the backups of all nodes "
            "into one directory and restore that, or pass --partial to have them empty"
        )
    data_dir.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    data_dir.chmod(DIRECTORY_MODE)
    if merged:
        write_merged(merged, data_dir, advance)
    else:
        for name in sorted(backups[0].manifest.files.keys() - {META}):
            copy_from_backup(backups[0], name, data_dir, advance)
    (data_dir / LOGS).mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    sync_tree(data_dir)
    manifest = backups[0].manifest
    node_id = ALONE if merged else NodeId(manifest.node_id)
    kept = manifest.cluster_id if KEYRING in manifest.files else None
    cluster_id = write_meta(DiskFiles(data_dir), node_id, SystemRandom(), cluster_id=kept)
    return Restored(node_id, cluster_id, missing)


def _check_empty(data_dir: Path) -> None:
    if data_dir.exists() and not data_dir.is_dir():
        raise Refused(f"{data_dir} is a file: name a new or empty directory")
    names = {path.name for path in data_dir.iterdir()} if data_dir.exists() else set()
    strangers = sorted(names - _MAY_BE_THERE)
    if strangers:
        raise Refused(
            f"{data_dir} is not empty, it holds {strangers[0]}: name a new or empty directory"
        )


def _checksum(directory: Path, name: str, advance: Advance) -> CopiedFile:
    path = directory / FILES / name
    if not path.exists():
        raise Refused(f"{path} is missing, which {MANIFEST} names: restore from another backup")
    return checksum_of(path, advance)
