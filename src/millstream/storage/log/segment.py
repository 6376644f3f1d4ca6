"""A segment: one file of consecutive batches, and its figures in memory.

Owns the names of a log's files, the few numbers per segment that stay in memory, and the readers of
its bytes. Does not own order or durability: `log` decides when to append, seal, sync and remove.

Invariant: bytes behind `size` do not count. A failed write may have left them, and the next one
overwrites them.

Invariant: the numbers of a sealed segment never change. Truncation or compaction puts another
`Segment` in its place, so a thread that rewrites or reads one compares identity to see whether the
log still holds it. A `FileRange` needs nothing but its file, from any thread.
"""

from array import array
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from fastcrc import crc32

from millstream.codec.batch import HEADER_BYTES, Header, read_header, verify_batch
from millstream.errors import (
    CorruptBatch,
    DamagedLog,
    InvalidBatch,
    StorageError,
    storage_error,
)
from millstream.model import Boundary, Buffer, Offset
from millstream.ports import File, Files
from millstream.storage.log.index import (
    NO_TIMESTAMP,
    PROOF_BYTES,
    Proof,
    Table,
    decode_proof,
    dense_flag,
    encode_index,
)
from millstream.storage.log.verifying import BadRange, Part, Unverified, prefix_check
from millstream.storage.sealing.batches import Sealer

LOG = ".log"
INDEX = ".index"
PRODUCERS = ".producers"
CLEANED = ".cleaned"
TERMS = ".terms"

# How much is read to find the next header: the default interval of index entries.
WALK_BYTES = 4096
SCAN_BYTES = 2**20

_CHECKED_FROM = 21  # Where the part of a batch begins that its checksum covers.
_UNKNOWN_MS = 2**63 - 1


def file_path(directory: str, offset: Offset, suffix: str) -> str:
    return f"{directory}/{offset:020d}{suffix}"


class FileRange(NamedTuple):
    """Whole batches in a file. Stays readable after the segment was deleted or replaced."""

    file: File
    at: int
    size: int
    base_offset: Offset  # Of the first batch.
    end_offset: Offset  # Where reading goes on behind the last batch.
    segment: "Segment | None" = None  # Where it lies; gets the failure of a read.

    def read(self) -> bytes:
        """All the bytes, unverified, for a reader that checks them or only passes them on.

        A permanent failure is noted in the segment: every later search there is refused, and the
        replica learns of it.
        """
        try:
            data = self.file.read(self.at, self.size)
        except OSError as problem:
            raise self._noted(storage_error(problem, self._place)) from problem
        if len(data) != self.size:
            raise self._noted(DamagedLog(f"{self._place}: {len(data)} of {self.size} bytes"))
        return data

    def read_chunks(self) -> list[Buffer]:
        """The same for a sender, in as many pieces as they happen to be in."""
        return [self.read()]

    @property
    def source(self) -> "FileRange":
        """Where the bytes lie that `read` reads."""
        return self

    @property
    def _place(self) -> str:
        path = "" if self.segment is None else f"{self.segment.path}: "
        return f"{path}reading from offset {self.base_offset}"

    def _noted(self, problem: StorageError) -> StorageError:
        if self.segment is not None and not problem.is_transient:
            self.segment.failure = problem
        return problem

    @property
    def descriptor(self) -> int:
        """Of the file, to send from; -1 where there is none."""
        return self.file.fileno()

    def part(self, start: int, size: int) -> "FileRange":
        """Some of the same bytes, which need not be whole batches, for a sender with little room.

        It keeps the offsets of the whole: no reader decodes a part.
        """
        assert start >= 0
        assert start + size <= self.size
        return self._replace(at=self.at + start, size=size)

    def headers(self) -> Iterator[tuple[int, Header]]:
        """Each batch's position in the file and its header, unverified."""
        return read_headers(self.file, self.at, self.at + self.size)

    def batches(self) -> Iterator[tuple[Header, memoryview]]:
        """Each batch, its checksum verified; `DamagedLog` at the first that is damaged."""
        for position, header in read_headers(self.file, self.at, self.at + self.size):
            data = _read(self.file, position, header.size)
            try:
                yield verify_batch(data), memoryview(data)
            except (CorruptBatch, InvalidBatch) as problem:
                raise DamagedLog(f"batch at offset {header.base_offset}: {problem}") from problem

    def verify(self) -> int:
        """Check every batch and the order of their offsets; return how many there are."""
        count, end_offset = 0, self.base_offset
        try:
            for position, header in verify_range(self.file, self.at, self.at + self.size):
                if header.base_offset < end_offset or header.end_offset > self.end_offset:
                    raise DamagedLog(f"offset {header.base_offset} at {position} is out of order")
                count, end_offset = count + 1, header.end_offset
        except (CorruptBatch, InvalidBatch) as problem:
            raise DamagedLog(f"behind offset {end_offset}: {problem}") from problem
        except OSError as problem:
            raise storage_error(problem, f"behind offset {end_offset}") from problem
        return count


class Segment:
    """One segment of a log.

    `size`, `end_offset` and `max_timestamp` (-1 if no record has one) are what retention asks for;
    `Log.contents` gives the bytes. `file` and `table` are pinned here while the segment has no
    index on disk; of all others the cache opens them on demand.
    """

    __slots__ = (
        "base_offset",
        "damage",
        "directory",
        "end_offset",
        "entry_count",
        "failure",
        "file",
        "files",
        "is_dense",
        "last",
        "last_position",
        "max_timestamp",
        "opened_ms",
        "size",
        "synced_size",
        "table",
        "unverified",
        "widest",
    )

    def __init__(self, files: Files, directory: str, base_offset: Offset) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset  # As in the file's name; the first batch may lie behind it.
        self.end_offset = base_offset
        self.size = 0
        self.synced_size = 0  # Of the bytes written in this life, those that a round made durable.
        self.max_timestamp = NO_TIMESTAMP
        self.opened_ms = _UNKNOWN_MS  # When the first batch came, as far as it is known.
        self.last: Header | None = None  # The last batch; known while there is no index on disk.
        self.last_position = 0
        self.file: File | None = None
        self.table: Table | None = None
        self.entry_count = 0  # These two are of the index on disk.
        self.widest = 0
        self.is_dense = True  # Whether each batch begins where the one before it ends.
        # Bytes that were on disk at the start and are not verified yet; None: this process wrote or
        # verified all of them.
        self.unverified: Unverified | None = None
        self.damage: tuple[BadRange, ...] = ()  # Known so far, in order.
        self.failure: StorageError | None = None  # Why some of it could not be read, for good.

    def __repr__(self) -> str:
        return f"<Segment {self.path} {self.base_offset}..{self.end_offset} {self.size} bytes>"

    @property
    def path(self) -> str:
        return file_path(self.directory, self.base_offset, LOG)

    @property
    def index_path(self) -> str:
        return file_path(self.directory, self.base_offset, INDEX)

    @property
    def terms_path(self) -> str:
        """Of the secondary index."""
        return file_path(self.directory, self.base_offset, TERMS)

    @property
    def is_proven(self) -> bool:
        """Whether an index on disk vouches for all of it."""
        return self.table is None

    def restore_last_batch(self, proof: Proof) -> None:
        """Take the last batch from the index, whose checksum covers all fields of its header."""
        delta = proof.end_offset - proof.last_base_offset - 1
        self.last = Header(
            base_offset=proof.last_base_offset,
            size=proof.size - proof.last_position,
            epoch=proof.last_epoch,
            crc=proof.last_crc,
            attributes=0,
            last_offset_delta=delta,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            count=0,
        )

    @classmethod
    def from_proof(cls, files: Files, directory: str, proof: Proof) -> "Segment":
        segment = cls(files, directory, proof.base_offset)
        segment.end_offset = proof.end_offset
        segment.size = proof.size
        segment.max_timestamp = proof.max_timestamp
        segment.opened_ms = proof.opened_ms
        segment.last_position = proof.last_position
        segment.entry_count = proof.entry_count
        segment.widest = proof.widest
        segment.is_dense = proof.is_dense
        return segment

    def extend(self, headers: Sequence[Header], interval_bytes: int) -> None:
        """Record batches that were written at the end."""
        table = self.table
        assert table is not None, "only a pinned segment grows"
        position, end_offset = self.size, self.end_offset
        for header in headers:
            if header.base_offset != end_offset:
                self.is_dense = False
            end_offset = header.base_offset + header.last_offset_delta + 1
            if position >= table.due_at:
                table.add(header.base_offset, position, self.max_timestamp)
                table.due_at = position + interval_bytes
            # An empty batch stands for offsets only; its time is that of records long gone.
            if header.max_timestamp > self.max_timestamp and header.count:
                self.max_timestamp = header.max_timestamp
            self.last_position = position
            position += header.size
        self.last = header
        self.size = position
        self.end_offset = end_offset

    def cut(self, file: File, table: Table, size: int) -> "Segment":
        """The segment as it is when its file ends at `size`, which is where a batch begins."""
        assert 0 < size <= self.size
        shorter = Segment(self.files, self.directory, self.base_offset)
        shorter.opened_ms = self.opened_ms
        shorter.file = file
        shorter.table = table.cut(size)
        shorter.size = shorter.table.positions[-1]
        shorter.end_offset = shorter.table.offset(len(shorter.table) - 1)
        shorter.is_dense = self.is_dense
        shorter.max_timestamp = shorter.table.times[-1]
        shorter.table.due_at = size  # No entry is missing before it.
        shorter.extend([header for _, header in read_headers(file, shorter.size, size)], 0)
        assert shorter.size == size
        if self.unverified is not None:
            end = min(size, self.unverified.end)
            end_offset = min(shorter.end_offset, self.unverified.end_offset)
            shorter.unverified = self.unverified.cut(end, end_offset)
        shorter.damage = tuple(bad for bad in self.damage if bad.end_position <= size)
        return shorter

    def with_rebuilt_table(self, file: File, interval_bytes: int) -> "Segment":
        """The same segment with its table, built again from the headers in the file."""
        again = Segment(self.files, self.directory, self.base_offset)
        again.opened_ms = self.opened_ms
        again.table = Table()
        for _, header in read_headers(file, 0, self.size):
            again.extend([header], interval_bytes)
        return again

    def proof(self) -> Proof:
        """The proof for the index of this segment, once the bytes are synced."""
        last, table = self.last, self.table
        assert last is not None
        assert table is not None
        return Proof(
            base_offset=self.base_offset,
            first_offset=table.first_offset,
            end_offset=self.end_offset,
            size=self.size,
            opened_ms=self.opened_ms,
            max_timestamp=self.max_timestamp,
            last_position=self.last_position,
            last_base_offset=last.base_offset,
            last_epoch=last.epoch,
            last_crc=last.crc,
            widest=table.widest,
            entry_count=len(table),
            entries_crc=0,
            flags=dense_flag(self.is_dense),
        )

    def release_file(self) -> bool:
        """Unpin the file, to be opened again on demand; False if it is needed.

        It is, as long as a round has to sync it, or a failed write left bytes behind its end.
        """
        if self.file is None:
            return True
        if self.synced_size != self.size or self.file.size() != self.size:
            return False
        self.file = None
        return True

    def encoded_index(self) -> list[bytes]:
        """Encode the index, once the bytes are synced. Blocks."""
        table = self.table
        assert table is not None
        if self.is_dense or self.damage:
            table.checks = array("I")
        else:
            self._complete_checks(table)
        return encode_index(self.proof(), table)

    def _complete_checks(self, table: Table) -> None:
        file = self.file or self.files.open(self.path)
        try:
            for at in range(len(table.checks), len(table)):
                end = table.positions[at + 1] if at + 1 < len(table) else self.size
                headers = [header for _, header in read_headers(file, table.positions[at], end)]
                table.checks.append(prefix_check(headers))
        except DamagedLog:
            # The next reader finds it. An index without checks is still right about all else.
            table.checks = array("I")

    # -- verification --------------------------------------------------------------------------

    def part(self, file: File, table: Table) -> Part:
        """The unverified part, for `Part.bad_ranges`."""
        unverified = self.unverified
        assert unverified is not None
        path, end, end_offset = self.path, unverified.end, unverified.end_offset
        boundaries, sealer = unverified.boundaries, unverified.sealer
        return Part(file, path, table, end, end_offset, self.is_dense, boundaries, sealer)

    def defer_seals(self, boundaries: Sequence[Boundary], sealer: Sealer) -> None:
        """Have readers check the seals of a scanned segment: a start checks checksums only, because
        to open every batch would double its time."""
        if self.size and not self.damage:
            self.unverified = Unverified(self.size, self.end_offset, boundaries, sealer)

    def verified(self, start: int, end: int, bad: Sequence[BadRange]) -> list[BadRange]:
        """Note that the stretches from `start` to `end` were verified; return damage that is new.

        Damaged stretches count as verified too: `damage` keeps readers off them.
        """
        known = {damage.position for damage in self.damage}
        new = [damage for damage in bad if damage.position not in known]
        self.damage = tuple(sorted((*self.damage, *new), key=attrgetter("position")))
        if self.unverified is not None:
            self.unverified.add(start, min(end, self.unverified.end))
            if self.unverified.is_done:
                self.unverified = None
        return new

    def note_damage(self, bad: BadRange) -> bool:
        """Keep readers off a batch that did not open; False if it was known. On any thread."""
        if any(damage.position == bad.position for damage in self.damage):
            return False
        self.damage = tuple(sorted((*self.damage, bad), key=attrgetter("position")))
        return True

    def unpin(self) -> None:
        """Drop file and table: the index on disk has all from here on."""
        assert self.table is not None
        self.entry_count, self.widest = len(self.table), self.table.widest
        self.file = self.table = self.last = None


def read_headers(file: File, at: int, end: int) -> Iterator[tuple[int, Header]]:
    """Each batch's position and header from `at` to `end`, reading little more than the headers.

    Nothing is verified but that the batches fill the range exactly; else `DamagedLog`.
    """
    chunk, start = b"", at
    while at < end:
        if at + HEADER_BYTES > start + len(chunk):
            chunk, start = _read(file, at, min(WALK_BYTES, end - at)), at
        try:
            header = read_header(chunk, at - start)
        except (CorruptBatch, InvalidBatch) as problem:
            raise DamagedLog(f"no batch at position {at}: {problem}") from problem
        if header.size > end - at:
            raise DamagedLog(f"the batch at position {at} reaches beyond {end}")
        yield at, header
        at += header.size


def verify_range(file: File, at: int, end: int) -> Iterator[tuple[int, Header]]:
    """Like `read_headers`, but verifies every batch; raises `CorruptBatch` or `InvalidBatch`.

    A wrong length must not make us hold gigabytes, so long batches are checked piece by piece.
    """
    chunk, start = b"", at
    while at < end:
        header = None
        if at + HEADER_BYTES <= start + len(chunk):
            header = read_header(chunk, at - start)
        if header is None or at + header.size > start + len(chunk):
            chunk, start = file.read(at, min(SCAN_BYTES, end - at)), at
            header = read_header(chunk)
        if header.size > end - at:
            raise CorruptBatch(f"batch of {header.size} bytes, {end - at} are there")
        if at + header.size <= start + len(chunk):
            header = verify_batch(chunk, at - start)
        else:
            _verify_pieces(file, at, header)
        yield at, header
        at += header.size


def _verify_pieces(file: File, at: int, header: Header) -> None:
    crc = 0
    end = at + header.size
    for piece in range(at + _CHECKED_FROM, end, SCAN_BYTES):
        crc = crc32.iscsi(file.read(piece, min(SCAN_BYTES, end - piece)), crc)
    if crc != header.crc:
        raise CorruptBatch(f"checksum {crc:#010x}, the batch says {header.crc:#010x}")


def _read(file: File, at: int, size: int) -> bytes:
    try:
        data = file.read(at, size)
    except OSError as problem:
        raise storage_error(problem, f"reading at position {at}") from problem
    if len(data) < size:
        raise DamagedLog(f"{len(data)} of {size} bytes at position {at}")
    return data


class _SyncedBytesLost(DamagedLog):
    """The segment ends before what its index proves."""


def read_proof(files: Files, segment: Segment, file: File, file_size: int) -> Proof | None:
    """The proof in the segment's index; None if there is none or it does not fit the file."""
    try:
        index = files.open(segment.index_path)
    except FileNotFoundError:
        return None
    try:
        proof = decode_proof(index.read(0, PROOF_BYTES))
        index_size = PROOF_BYTES + proof.entries_bytes
        if proof.base_offset != segment.base_offset or index.size() != index_size:
            return None
        if proof.size > file_size:
            # A truncation removes the index first, and durably.
            lost = f"{segment.path} has {file_size} bytes, but {proof.size} were synced"
            raise _SyncedBytesLost(lost)
    except _SyncedBytesLost:
        raise
    except DamagedLog:
        return None
    # Nothing shortens or replaces a segment before its index is gone for good: where the two do not
    # agree, the segment has changed by itself, and `verifying` says where.
    return proof
