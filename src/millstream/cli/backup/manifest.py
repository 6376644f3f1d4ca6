"""The manifest of a backup: every file with its size and checksum, and where it comes from.

Invariant: `backup.json` is written last, so a directory without it is no backup. Its own checksum
tells a manifest that was changed from one that was written.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple

import msgspec
from fastcrc import crc32

from millstream.cli.render import Refused

MANIFEST = "backup.json"
FORMAT = 1
NODE = "node-"  # Begins the name of each node's backup in that of a cluster.
FILES = "files"  # The directory of the copies, beside the manifest.


class CopiedFile(msgspec.Struct, frozen=True, kw_only=True):
    size: int
    crc32c: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    version: str  # Of the Millstream that made the backup.
    made_ms: int
    node_id: int
    cluster_id: str
    files: dict[str, CopiedFile]

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files.values())

    @property
    def logs(self) -> set[str]:
        return {path.rpartition("/")[0] for path in self.files if path.startswith("logs/")}


class Backup(NamedTuple):
    path: Path
    manifest: Manifest


def write_manifest(directory: Path, manifest: Manifest) -> None:
    body = msgspec.json.encode(manifest)
    data = json.dumps({"checksum": f"{crc32.iscsi(body):08x}", "backup": json.loads(body)})
    path = directory / MANIFEST
    with path.with_suffix(".tmp").open("wb") as file:
        file.write(data.encode())
        file.flush()
        os.fsync(file.fileno())
    path.with_suffix(".tmp").replace(path)
    sync_directory(directory)


def read_manifest(directory: Path) -> Manifest:
    """`Refused` if it is no backup, a damaged one, or one of a newer Millstream."""
    path = directory / MANIFEST
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise Refused(
            f"{directory} is no backup: it has no {MANIFEST}. A backup that was interrupted has "
            "none; make it again with: millstream backup"
        ) from None
    try:
        outer = json.loads(data)
        version = outer["backup"]["format"]
        if isinstance(version, int) and version > FORMAT:
            raise Refused(
                f"{path} has format {version}, and this Millstream reads format {FORMAT}: "
                "restore it with the Millstream that made it, or a newer one"
            )
        manifest = msgspec.convert(outer["backup"], type=Manifest)
        is_sound = f"{crc32.iscsi(msgspec.json.encode(manifest)):08x}" == outer["checksum"]
    except (ValueError, KeyError, TypeError, msgspec.ValidationError):
        is_sound = False
    if not is_sound or any(_leaves(name) for name in manifest.files):
        raise Refused(f"{path} is damaged: restore from another backup")
    return manifest


def _leaves(name: str) -> bool:
    """Whether a path leads out of its directory."""
    return name.startswith("/") or ".." in name.split("/")


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
