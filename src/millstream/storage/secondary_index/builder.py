"""Builds the secondary index of one segment in steps, also of one that still grows.

A step reads a few batches through the log, on a thread, and keeps their entries in memory; as soon
as there are enough of them they become a run in a file aside. What was built so far can be searched
at any time. `Seal` completes the file when the segment is sealed and all of it was read.

Invariant: a thread computes and writes, and only the event loop changes what a search sees.
"""

import logging
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from millstream.codec.batch import Header
from millstream.codec.records import Record, decode_all, decode_each
from millstream.errors import (
    DamagedLog,
    RequestError,
    StorageError,
    storage_error,
)
from millstream.model import Offset
from millstream.ports import File, Files
from millstream.storage.files.replacing import TEMPORARY
from millstream.storage.log.index import PROOF_BYTES, decode_proof
from millstream.storage.log.segment import Segment
from millstream.storage.sealing.ranges import LogRange
from millstream.storage.secondary_index.format import (
    HEAD_BYTES,
    Directory,
    Head,
    MemoryRun,
    Run,
    StoredRun,
    encode_directory,
    encode_head,
    entries_of,
    place_run,
    unknown_entry,
)
from millstream.storage.secondary_index.terms import IndexedFields, hash_records

STEP_BYTES = 256 * 2**10  # Of the log, read in one step: a few milliseconds of work.
RUN_ENTRIES = 2**18  # 2 MiB of a file; about 10 MiB while they are merged.
COPIED_BYTES = 2**20
DECODED_AT_ONCE = 10_000  # Records: a batch of millions is decoded in parts.

_log = logging.getLogger(__name__)


class Source(NamedTuple):
    """What a search reads: runs, in the order of their offsets, and the file of their pages."""

    base_offset: Offset
    end_offset: Offset  # Batches before it are covered.
    fields: IndexedFields
    runs: tuple[Run, ...]
    file: File | None  # None: no run is in a file.


class Builder:
    def __init__(
        self, files: Files, segment: Segment, fields: IndexedFields, *, decompressed_bytes_max: int
    ) -> None:
        self.segment = segment
        self.fields = fields
        self.end_offset = segment.base_offset
        self.read_bytes = 0
        self.is_failed = False  # What it has can be searched; it does not go on.
        self._files = files
        self._decompressed_bytes_max = decompressed_bytes_max
        self._file: File | None = None
        self._position = HEAD_BYTES
        self._runs: list[StoredRun] = []
        self._pending: list[MemoryRun] = []

    @property
    def path(self) -> str:
        return self.segment.terms_path + TEMPORARY

    @property
    def size_bytes(self) -> int:
        return self._position + sum(len(run.entries) * 8 for run in self._pending)

    @property
    def entry_count(self) -> int:
        stored = sum(run.entry_count for run in self._runs)
        return stored + sum(len(run.entries) for run in self._pending)

    def source(self) -> Source:
        runs: tuple[Run, ...] = (*self._runs, *self._pending)
        return Source(self.segment.base_offset, self.end_offset, self.fields, runs, self._file)

    def step(self, chunk: LogRange) -> "BuildStep":
        return BuildStep(self, chunk)

    def seal(self) -> "Seal":
        return Seal(self)

    def copy_pages(self, file: File, end: int) -> None:
        """Take over the pages of an index of the first part of the segment, on a thread."""
        opened = self._opened()
        for at in range(HEAD_BYTES, end, COPIED_BYTES):
            opened.write(at, [file.read(at, min(COPIED_BYTES, end - at))])

    def resume(self, runs: Sequence[StoredRun], end_offset: Offset, read_bytes: int) -> None:
        """Go on behind these runs, whose pages were copied; on the event loop."""
        for run in runs:
            self._add(run)
        self.end_offset, self.read_bytes = end_offset, read_bytes

    def discard(self) -> None:
        """Remove the file aside."""
        self.is_failed = True
        if self._file is not None:
            with suppress(OSError):  # Opening the log removes it.
                self._files.remove(self.path)

    # -- parts, on a thread ------------------------------------------------------------------------

    def entries(self, chunk: LogRange) -> "array[int]":
        """The entries of these batches, sorted."""
        entries: list[int] = []
        # A read for each batch: the interpreter lets other threads run meanwhile.
        for header, batch in chunk.batches():
            entries += self._entries_of(header, batch)
        entries.sort()
        return array("Q", entries)

    def _entries_of(self, header: Header, batch: memoryview) -> list[int]:
        if header.is_control or not header.count:
            return []
        offset = header.base_offset - self.segment.base_offset
        hashes: set[int] = set()
        try:
            for records in self._decoded(header, batch):
                hashes |= hash_records(records, self.fields)
        except RequestError:  # Its producer wrote this; another limit may let it be decoded.
            return [unknown_entry(offset)]
        return entries_of(hashes, offset)

    def _decoded(self, header: Header, batch: memoryview) -> Iterator[list[Record]]:
        bytes_max = self._decompressed_bytes_max
        if header.count <= DECODED_AT_ONCE:
            yield decode_all(batch, decompressed_bytes_max=bytes_max)
            return
        records = decode_each(batch, decompressed_bytes_max=bytes_max)
        while part := list(islice(records, DECODED_AT_ONCE)):
            yield part

    def written_run(self, runs: list[MemoryRun]) -> StoredRun:
        """Merge runs into one, and write it behind the others."""
        merged: list[int] = []
        for run in runs:
            merged += run.entries
        merged.sort()  # Takes sorted parts as they are.
        stored, data = place_run(
            array("Q", merged), position=self._position, start=runs[0].start, end=runs[-1].end
        )
        self._opened().write(self._position, [data])
        return stored

    def write_rest(self, runs: list[StoredRun], position: int) -> None:
        """Write directory and head behind the pages, and make all of it durable."""
        proof = _read_proof(self._files, self.segment)
        data = encode_directory(Directory(self.fields, runs))
        head = Head.of(proof, runs, position, data)
        file = self._opened()
        file.write(position, [data])
        file.write(0, [encode_head(head)])
        file.sync()

    def _opened(self) -> File:
        file = self._file
        if file is None:
            file = self._files.open(self.path, create=True)
            file.truncate(0)
            self._file = file
        return file

    # -- parts, on the event loop ------------------------------------------------------------------

    def extend(self, chunk: LogRange, pending: list[MemoryRun], stored: StoredRun | None) -> None:
        self._pending = pending
        if stored is not None:
            self._add(stored)
        self.end_offset = chunk.end_offset
        self.read_bytes += chunk.size

    def skip_to(self, offset: Offset) -> None:
        """There is no batch up to `offset`."""
        self.end_offset = max(self.end_offset, offset)

    def _add(self, stored: StoredRun) -> None:
        self._runs.append(stored)
        self._position += stored.size

    @property
    def pending(self) -> list[MemoryRun]:
        return self._pending

    @property
    def state(self) -> tuple[list[StoredRun], int]:
        return self._runs, self._position


class BuildStep:
    """Reads some batches; a `LongWork`."""

    def __init__(self, builder: Builder, chunk: LogRange) -> None:
        self._builder = builder
        self._chunk = chunk
        self._pending: list[MemoryRun] = []
        self._stored: StoredRun | None = None

    @property
    def size(self) -> int:
        return self._chunk.size

    def run(self) -> None:
        builder, chunk = self._builder, self._chunk
        base = builder.segment.base_offset
        start, end = builder.end_offset - base, chunk.end_offset - base
        try:
            pending = [*builder.pending, MemoryRun(builder.entries(chunk), start, end)]
            if sum(len(run.entries) for run in pending) >= RUN_ENTRIES:
                self._stored, pending = builder.written_run(pending), []
        except OSError as problem:
            raise storage_error(problem, builder.path) from problem
        self._pending = pending

    def fail(self, problem: StorageError) -> None:
        self._builder.is_failed = True

    def finish(self) -> None:
        if not self._builder.is_failed:
            self._builder.extend(self._chunk, self._pending, self._stored)


class Seal:
    """Completes the file aside, for a segment that is sealed and was read to its end."""

    size = 0

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.is_done = False

    def run(self) -> None:
        builder = self.builder
        try:
            runs, position = builder.state
            if builder.pending:
                last = builder.written_run(builder.pending)
                runs, position = [*runs, last], position + last.size
            builder.write_rest(runs, position)
            self.is_done = True
        except OSError as problem:
            raise storage_error(problem, builder.path) from problem

    def fail(self, problem: StorageError) -> None:
        self.builder.is_failed = True

    def finish(self) -> None:
        """The caller gives the file its name, if the log still has the segment."""


def _read_proof(files: Files, segment: Segment) -> bytes:
    """The proof in the segment's index; `DamagedLog` unless it is of all of the segment."""
    proof = files.open(segment.index_path).read(0, PROOF_BYTES)
    known = decode_proof(proof)
    if (known.size, known.end_offset) != (segment.size, segment.end_offset):
        raise DamagedLog("index of another state of the segment")
    return proof
