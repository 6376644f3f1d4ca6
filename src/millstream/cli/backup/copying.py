"""Copies files in blocks with their checksums, and verifies the batches of copied segments."""

import os
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path

from fastcrc import crc32

from millstream.cli.backup.manifest import FILES, Backup, CopiedFile, sync_directory
from millstream.cli.inspection import open_for_reading
from millstream.cli.render import Refused
from millstream.errors import CorruptBatch, DamagedLog, InvalidBatch
from millstream.storage.files.disk import DIRECTORY_MODE, FILE_MODE
from millstream.storage.log.segment import LOG, verify_range

BLOCK_BYTES = 4 * 2**20

Advance = Callable[[int], object]


def read_blocks(path: Path, size: int) -> Iterator[bytes]:
    """The first `size` bytes; fewer where the file is shorter."""
    with path.open("rb") as reader:
        while size and (block := reader.read(min(size, BLOCK_BYTES))):
            yield block
            size -= len(block)


def copy_file(blocks: Iterable[bytes], target: Path, size: int, advance: Advance) -> CopiedFile:
    """Write `size` bytes and sync them; `Refused` if there are fewer."""
    target.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    checksum, left = 0, size
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(target, flags, FILE_MODE), "wb") as writer:
        for block in blocks:
            writer.write(block)
            checksum = crc32.iscsi(block, checksum)
            left -= len(block)
            advance(len(block))
        if left:
            raise Refused(f"{target.name} has {size - left} of {size} bytes: begin again")
        writer.flush()
        os.fsync(writer.fileno())
    return CopiedFile(size=size, crc32c=f"{checksum:08x}")


def copy_from_backup(backup: Backup, name: str, data_dir: Path, advance: Advance) -> None:
    """Copy a file of a backup; `Refused` if it is not as it was written."""
    source = backup.path / FILES / name
    if not source.exists():
        raise Refused(f"{source} is missing: restore from another backup")
    size = source.stat().st_size
    copied = copy_file(read_blocks(source, size), data_dir / name, size, advance)
    compare(source, copied, backup.manifest.files[name])


def compare(path: Path, stored: CopiedFile, written: CopiedFile) -> None:
    if stored != written:
        raise Refused(
            f"{path} has changed since the backup: {stored.size} bytes with checksum "
            f"{stored.crc32c}, written were {written.size} with {written.crc32c}; restore from "
            "another backup"
        )


def checksum_of(path: Path, advance: Advance) -> CopiedFile:
    checksum = size = 0
    with path.open("rb") as reader:
        while block := reader.read(BLOCK_BYTES):
            checksum = crc32.iscsi(block, checksum)
            size += len(block)
            advance(len(block))
    return CopiedFile(size=size, crc32c=f"{checksum:08x}")


def verify_copies(directory: Path, names: Iterable[str], *, torn: Container[str]) -> list[str]:
    """What is wrong with the batches of the copied segments, a sentence for each file.

    `torn` may end with part of a write: the next start cuts it off.
    """
    problems = []
    for name in names:
        if not name.endswith(LOG):
            continue
        file = open_for_reading(directory / name)
        position = 0
        try:
            for position, header in verify_range(file, 0, file.size()):
                position += header.size
        except (CorruptBatch, InvalidBatch, DamagedLog) as problem:
            if name not in torn:
                problems.append(f"{name} behind position {position}: {problem}")
        finally:
            file.close()
    return problems


def sync_tree(root: Path) -> None:
    """Make the names of all files survive a power cut."""
    for directory in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        sync_directory(directory)
