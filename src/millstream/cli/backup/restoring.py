"""Makes a data directory of a backup, as a cluster of its own.

Invariant: `millstream.json` is written last. A node does not start on a directory that was restored
in part.
"""

from pathlib import Path
from random import SystemRandom

from millstream.cli.backup.copying import Advance, checksum_of, copy_file, sync_tree
from millstream.cli.backup.manifest import FILES, MANIFEST, CopiedFile, Manifest, read_manifest
from millstream.cli.render import Refused
from millstream.model import NodeId
from millstream.storage.files.directory import KEYRING, LOGS, META, write_meta
from millstream.storage.files.disk import DIRECTORY_MODE, DiskFiles

_MAY_BE_THERE = {"lost+found", "lock"}


def check_backup(directory: Path, advance: Advance) -> Manifest:
    """Compare every file with the manifest; `Refused` names the first that differs."""
    manifest = read_manifest(directory)
    for name, written in manifest.files.items():
        _compare(directory, name, _checksum(directory, name, advance), written)
    return manifest


def restore_backup(directory: Path, data_dir: Path, advance: Advance) -> tuple[Manifest, str]:
    """Copy the files to `data_dir`, which is new or empty; returns the id of the new cluster.

    With encryption the id stays: the keys of the keyring are bound to it.
    """
    manifest = read_manifest(directory)
    _check_empty(data_dir)
    data_dir.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    data_dir.chmod(DIRECTORY_MODE)
    for name, written in manifest.files.items():
        if name == META:
            continue
        source = directory / FILES / name
        if not source.exists():
            raise Refused(f"{source} is missing: restore from another backup")
        copied = copy_file(source, data_dir / name, source.stat().st_size, advance)
        _compare(directory, name, copied, written)
    (data_dir / LOGS).mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    sync_tree(data_dir)
    node_id = NodeId(manifest.node_id)
    kept = manifest.cluster_id if KEYRING in manifest.files else None
    cluster_id = write_meta(DiskFiles(data_dir), node_id, SystemRandom(), cluster_id=kept)
    return manifest, cluster_id


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


def _compare(directory: Path, name: str, stored: CopiedFile, written: CopiedFile) -> None:
    if stored != written:
        raise Refused(
            f"{directory / FILES / name} has changed since the backup: {stored.size} bytes with "
            f"checksum {stored.crc32c}, written were {written.size} with {written.crc32c}; restore "
            "from another backup"
        )
