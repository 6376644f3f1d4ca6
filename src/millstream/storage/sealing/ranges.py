"""Reads batches of a log that has sealed ones: as bytes, batch by batch, or in pieces for a sender.

A batch that does not open is damaged, whatever its checksum says. It is noted in its segment, so
that readers of its offsets are refused from then on, and all other records are served.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from millstream.codec.batch import HEADER_BYTES, Header, read_header
from millstream.errors import (
    CorruptBatch,
    DamagedBatch,
    DamagedLog,
    InvalidBatch,
    storage_error,
)
from millstream.model import Buffer, Offset
from millstream.storage.log.segment import FileRange, Segment
from millstream.storage.log.verifying import BadRange
from millstream.storage.sealing.batches import BadSeal, Sealer, measure

# What one read of a log returns at most, unless a single batch is larger: it is opened in one turn
# of the event loop, 1 MiB in 0.1 to 0.8 ms, and each batch costs some 4 us beside.
READ_BYTES_MAX = 2**20
READ_BATCHES_MAX = 1_000

Report: TypeAlias = Callable[[Segment, BadRange], None]


class SealedRange(NamedTuple):
    """Whole batches of a log, opened when they are read. `size` counts them opened."""

    stored: FileRange
    sealer: Sealer
    report: Report
    size: int
    end_offset: Offset
    opened: list[bytes]  # Of a range that is sent in parts: what the first of them has opened.

    @property
    def base_offset(self) -> Offset:
        return self.stored.base_offset

    @property
    def segment(self) -> Segment | None:
        return self.stored.segment

    @property
    def at(self) -> int:
        return 0

    @property
    def descriptor(self) -> int:
        """There is no file that holds these bytes."""
        return -1

    @property
    def source(self) -> FileRange:
        return self.stored

    def read(self) -> bytes:
        return b"".join(self.read_chunks())

    def read_chunks(self) -> list[Buffer]:
        """Header and payload of each batch. `DamagedBatch` at the first that does not open."""
        data = self.stored.read()
        try:
            return self.sealer.open_all(data)
        except BadSeal as problem:
            reason, at = problem.args
            raise self._noted(read_header(data, at), self.stored.at + at, reason) from None
        except (CorruptBatch, InvalidBatch) as problem:
            raise DamagedLog(f"behind offset {self.base_offset}: {problem}") from problem

    def batches(self) -> Iterator[tuple[Header, memoryview]]:
        """Each batch, verified and opened; `DamagedLog` at the first that is damaged."""
        position = self.stored.at
        for header, data in self.stored.batches():
            try:
                opened = memoryview(b"".join(self.sealer.open(header, data)))
            except BadSeal as problem:
                raise self._noted(header, position, str(problem)) from None
            position += header.size
            yield read_header(opened), opened

    def part(self, start: int, size: int) -> "SealedPart":
        """Some of the same bytes: only a single batch is too large to be sent at once."""
        assert start >= 0
        assert start + size <= self.size
        return SealedPart(self, start, size)

    def _noted(self, header: Header, position: int, reason: str) -> DamagedBatch:
        segment = self.segment
        path = "" if segment is None else segment.path
        offsets = header.base_offset, header.end_offset
        bad = BadRange(path, position, header.size, *offsets, reason)
        if segment is not None and segment.note_damage(bad):
            self.report(segment, bad)
        return bad.problem()


class SealedPart(NamedTuple):
    """A piece of a range that is sent piece by piece; the first one opens it for all."""

    whole: SealedRange
    start: int
    size: int

    @property
    def at(self) -> int:
        return self.start

    @property
    def descriptor(self) -> int:
        return -1

    @property
    def source(self) -> FileRange:
        return self.whole.stored

    def read(self) -> bytes:
        opened = self.whole.opened
        if not opened:
            opened.append(self.whole.read())
        return opened[0][self.start : self.start + self.size]

    def read_chunks(self) -> list[Buffer]:
        return [self.read()]

    def part(self, start: int, size: int) -> "SealedPart":
        return self._replace(start=self.start + start, size=size)


LogRange: TypeAlias = FileRange | SealedRange


def opened_range(stored: FileRange | None, sealer: Sealer, report: Report) -> SealedRange | None:
    """The range for a reader of the log, which must know its size in clear.

    It may end earlier: after `READ_BATCHES_MAX` batches.
    """
    if stored is None:
        return None
    at, end = stored.at, stored.at + stored.size
    try:
        measured, size = measure(stored.file, at, end, READ_BATCHES_MAX)
        if measured < end:
            following = read_header(stored.file.read(measured, HEADER_BYTES))
            stored = stored._replace(size=measured - at, end_offset=following.base_offset)
    except OSError as problem:
        raise storage_error(problem, f"reading from offset {stored.base_offset}") from problem
    except (struct.error, CorruptBatch, InvalidBatch) as problem:
        raise DamagedLog(f"behind offset {stored.base_offset}: {problem}") from problem
    return SealedRange(stored, sealer, report, size, stored.end_offset, [])


def lazily_opened(stored: FileRange, sealer: Sealer | None, report: Report) -> LogRange:
    """The range for a reader that does not ask for its size: that is the stored one."""
    if sealer is None:
        return stored
    return SealedRange(stored, sealer, report, stored.size, stored.end_offset, [])
