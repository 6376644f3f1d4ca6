"""Copies files in blocks with their checksums, and verifies the batches of copied segments."""

import os
from collections.abc import Callable, Container, Iterable
from pathlib import Path

from fastcrc import crc32

from millstream.cli.backup.manifest import CopiedFile, sync_directory
from millstream.cli.inspection import open_for_reading
from millstream.cli.render import Refused
from millstream.errors import CorruptBatch, DamagedLog, InvalidBatch
from millstream.storage.files.disk import DIRECTORY_MODE, FILE_MODE
from millstream.storage.log.segment import LOG, verify_range

BLOCK_BYTES = 4 * 2**20

Advance = Callable[[int], object]


def copy_file(source: Path, target: Path, size: int, advance: Advance) -> CopiedFile:
    """Copy the first `size` bytes and sync them; `Refused` if there are fewer."""
    target.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    checksum, left = 0, size
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with source.open("rb") as reader, os.fdopen(os.open(target, flags, FILE_MODE), "wb") as writer:
        while left:
            block = reader.read(min(left, BLOCK_BYTES))
            if not block:
                raise Refused(f"{source} has {size - left} of {size} bytes: begin again")
            writer.write(block)
            checksum = crc32.iscsi(block, checksum)
            left -= len(block)
            advance(len(block))
        writer.flush()
        os.fsync(writer.fileno())
    return CopiedFile(size=size, crc32c=f"{checksum:08x}")


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
