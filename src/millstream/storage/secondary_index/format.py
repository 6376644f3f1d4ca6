"""The file of a secondary index: sorted runs of entries in pages, and a directory of the pages.

    head       256 bytes: magic, version, proof of the segment, counts, place of the directory
    pages      4 KiB each: entries of 8 bytes, a hash in the upper half, in the lower half the base
               offset of a batch, relative to that of the segment
    directory  indexed fields; of each run its place and the offsets that it covers; of each page
               its first hash and its checksum

A run covers consecutive batches, and its entries are sorted by hash. Runs are not merged: a build
needs the memory of one run only, and a search looks at a page or two of each.

Invariant: nothing is trusted without its checksum: head and directory when they are opened, each
page whenever it is read. The head has the proof of the segment's index. An index that was built of
other bytes than the segment has is told by that, whatever happened to the segment since.
"""

import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple, TypeAlias

import msgspec

from millstream.errors import DamagedLog
from millstream.model import Offset
from millstream.storage.log.index import PROOF_BYTES
from millstream.storage.secondary_index.terms import ANY_HASH, IndexedFields

ENTRY_BYTES = 8
PAGE_ENTRIES = 512
PAGE_BYTES = PAGE_ENTRIES * ENTRY_BYTES
HEAD_BYTES = 256
FIELDS_BYTES_MAX = 2**16  # Of the indexed fields in a directory.

_MAGIC = b"MSTI"
_VERSION = 1
_HEAD = Struct(f"<4sI{PROOF_BYTES}sQIIQQI")
_CHECKSUM = Struct("<I")
_PADDING = bytes(HEAD_BYTES - _HEAD.size - _CHECKSUM.size)
_LENGTH = Struct("<I")
_RUN = Struct("<QIQQ")
_OFFSET_BITS = 32
_OFFSET_MASK = 2**_OFFSET_BITS - 1

assert array("I").itemsize == 4
assert array("Q").itemsize == ENTRY_BYTES

Entries: TypeAlias = "array[int]"
ReadPage: TypeAlias = Callable[[int, int], bytes]  # Position and size.


class StoredRun(NamedTuple):
    """A run in a file; the offsets that it covers are relative to the segment's base offset."""

    position: int
    entry_count: int
    start: int
    end: int
    first_hashes: "array[int]"  # Of each page.
    checks: "array[int]"

    @property
    def size(self) -> int:
        return self.entry_count * ENTRY_BYTES

    def offsets(self, term_hash: int, read: ReadPage) -> list[int]:
        """The batches that have an entry of this hash, ascending; `DamagedLog` for a bad page."""
        # A hash may begin in the page before the first one that begins with it.
        first = max(0, bisect_left(self.first_hashes, term_hash) - 1)
        behind = bisect_right(self.first_hashes, term_hash)
        offsets: list[int] = []
        for page in range(first, behind):
            at = page * PAGE_BYTES
            size = min(PAGE_BYTES, self.size - at)
            data = read(self.position + at, size)
            if len(data) != size or zlib.crc32(data) != self.checks[page]:
                raise DamagedLog(f"page at {self.position + at} fails its checksum")
            offsets += find_offsets(decode_entries(data), term_hash)
        return offsets


class MemoryRun(NamedTuple):
    """A run that is not written yet."""

    entries: Entries
    start: int
    end: int

    def offsets(self, term_hash: int, read: ReadPage) -> list[int]:
        return find_offsets(self.entries, term_hash)


Run: TypeAlias = StoredRun | MemoryRun


class Directory(NamedTuple):
    """All of an index but its pages."""

    fields: IndexedFields
    runs: Sequence[StoredRun]


class Head(NamedTuple):
    proof: bytes  # The first bytes of the index of the segment.
    entry_count: int
    run_count: int
    page_count: int
    directory_at: int
    directory_bytes: int
    directory_crc: int

    @classmethod
    def of(cls, proof: bytes, runs: Sequence[StoredRun], position: int, data: bytes) -> "Head":
        """The head of a file with these runs, and its directory `data` at `position`."""
        return cls(
            proof=proof,
            entry_count=sum(run.entry_count for run in runs),
            run_count=len(runs),
            page_count=sum(len(run.checks) for run in runs),
            directory_at=position,
            directory_bytes=len(data),
            directory_crc=zlib.crc32(data),
        )


def entries_of(hashes: "set[int]", offset: Offset) -> list[int]:
    """The entries of one batch, in any order."""
    assert 0 <= offset <= _OFFSET_MASK
    return [term_hash << _OFFSET_BITS | offset for term_hash in hashes]


def unknown_entry(offset: Offset) -> int:
    """The entry of a batch that cannot be decoded."""
    return ANY_HASH << _OFFSET_BITS | offset


def find_offsets(entries: Entries, term_hash: int) -> list[int]:
    low = bisect_left(entries, term_hash << _OFFSET_BITS)
    high = bisect_left(entries, (term_hash + 1) << _OFFSET_BITS, low)
    return [entry & _OFFSET_MASK for entry in entries[low:high]]


def place_run(entries: Entries, *, position: int, start: int, end: int) -> tuple[StoredRun, bytes]:
    """A run of sorted entries as it stands at `position`, and its bytes."""
    data = _little_endian(entries).tobytes()
    first_hashes, checks = array("I"), array("I")
    for at in range(0, len(entries), PAGE_ENTRIES):
        first_hashes.append(entries[at] >> _OFFSET_BITS)
        page = data[at * ENTRY_BYTES : (at + PAGE_ENTRIES) * ENTRY_BYTES]
        checks.append(zlib.crc32(page))
    return StoredRun(position, len(entries), start, end, first_hashes, checks), data


def decode_entries(page: bytes) -> Entries:
    entries = array("Q")
    entries.frombytes(page)
    return _little_endian(entries)


def encode_directory(directory: Directory) -> bytes:
    fields = msgspec.msgpack.encode(directory.fields)
    assert len(fields) <= FIELDS_BYTES_MAX
    runs = directory.runs
    columns = [column for run in runs for column in (run.first_hashes, run.checks)]
    return b"".join(
        [
            _LENGTH.pack(len(fields)),
            fields,
            *[_RUN.pack(run.position, run.entry_count, run.start, run.end) for run in runs],
            *[_little_endian(column).tobytes() for column in columns],
        ]
    )


def decode_directory(data: bytes, head: Head) -> Directory:
    """Read what `encode_directory` wrote; `DamagedLog` if it is not what the head speaks of."""
    if len(data) != head.directory_bytes or zlib.crc32(data) != head.directory_crc:
        raise DamagedLog("the directory fails its checksum")
    (size,) = _LENGTH.unpack_from(data)
    at = _LENGTH.size + size
    fields = msgspec.msgpack.decode(data[_LENGTH.size : at], type=IndexedFields)
    places = [_RUN.unpack_from(data, at + index * _RUN.size) for index in range(head.run_count)]
    at += head.run_count * _RUN.size
    runs = []
    for position, count, start, end in places:
        column_bytes = -(-count // PAGE_ENTRIES) * 4
        columns = [array("I"), array("I")]
        for column in columns:
            column.frombytes(data[at : at + column_bytes])
            at += column_bytes
        first_hashes, checks = map(_little_endian, columns)
        runs.append(StoredRun(position, count, start, end, first_hashes, checks))
    return Directory(fields, runs)


def encode_head(head: Head) -> bytes:
    data = _HEAD.pack(_MAGIC, _VERSION, *head) + _PADDING
    return data + _CHECKSUM.pack(zlib.crc32(data))


def decode_head(data: bytes) -> Head:
    """Read the first `HEAD_BYTES` of a file; `DamagedLog` if they are not a head."""
    if len(data) != HEAD_BYTES:
        raise DamagedLog(f"a head of {len(data)} bytes is cut short")
    (crc,) = _CHECKSUM.unpack_from(data, HEAD_BYTES - _CHECKSUM.size)
    if zlib.crc32(data[: -_CHECKSUM.size]) != crc:
        raise DamagedLog("the head fails its checksum")
    magic, version, *counts = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        raise DamagedLog(f"not a secondary index of version {_VERSION}: {magic!r} {version}")
    return Head(*counts)


def _little_endian(column: "array[int]") -> "array[int]":
    """The disk is little endian, whatever the machine is; the same both ways."""
    if sys.byteorder == "little":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped
