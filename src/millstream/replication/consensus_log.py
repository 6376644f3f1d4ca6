"""A partition's log as consensus sees it: records in segments, boundaries and votes in the journal.

Keeps the two consistent. Implements `raft.log_view.LogView`: a call that the disk refuses raises
`StorageError` and leaves everything as it was, but for a cut, which may have gone part of the way.

Invariant: records are written first and their boundary second, because recovery cuts records
without a boundary, and drops boundaries beyond the last record.
"""

from collections.abc import Sequence
from typing import NamedTuple

from millstream import boundaries as arithmetic
from millstream.codec.batch import Header, verify_batches
from millstream.errors import DiskFailed, StorageError
from millstream.model import (
    Boundary,
    Buffer,
    Epoch,
    HardState,
    LogId,
    Offset,
    Position,
    ReplicaId,
)
from millstream.ports import Clock
from millstream.raft.log_view import Base
from millstream.storage.journal.journal import Journal
from millstream.storage.log.log import Log


class Stamped(NamedTuple):
    """Batches as a leader writes them: their headers, and the chunks that are their bytes."""

    headers: Sequence[Header]
    chunks: Sequence[Buffer]


class ConsensusLog:
    def __init__(
        self,
        log_id: LogId,
        log: Log,
        journal: Journal,
        clock: Clock,
        *,
        founders: frozenset[ReplicaId],
        fetch_bytes_max: int,
    ) -> None:
        self.log = log
        self.cuts = 0  # How often something was cut off: a sync begun before proves nothing.
        self._id = log_id
        self._journal = journal
        self._clock = clock
        self._founders = founders
        self._fetch_bytes_max = fetch_bytes_max
        self._follow(journal.state(log_id).boundaries)
        # The last answer of `last`, and the boundaries that it was made from: each step asks often.
        self._last = arithmetic.last_position(self._boundaries, log.end_offset)
        self._last_boundaries = self._boundaries
        # The journal holds boundaries of records that a cut removed: they do not count.
        self._is_cut_short = False

    # -- reads -----------------------------------------------------------------------------

    @property
    def last(self) -> Position:
        last, boundaries, end_offset = self._last, self._boundaries, self.log.end_offset
        if last.end_offset != end_offset or boundaries is not self._last_boundaries:
            last = self._last = arithmetic.last_position(boundaries, end_offset)
            self._last_boundaries = boundaries
        return last

    @property
    def start_offset(self) -> Offset:
        return self.log.start_offset

    @property
    def boundaries(self) -> Sequence[Boundary]:
        return self._boundaries

    @property
    def voters(self) -> frozenset[ReplicaId]:
        return self._voters

    def contains(self, position: Position) -> bool:
        return arithmetic.contains(
            self._boundaries,
            position,
            base_offset=self.log.base_offset,
            end_offset=self.log.end_offset,
        )

    def epoch_end(self, epoch: Epoch) -> Position | None:
        return arithmetic.epoch_end(
            self._boundaries,
            epoch,
            base_offset=self.log.base_offset,
            end_offset=self.log.end_offset,
        )

    def epoch_at(self, offset: Offset) -> Epoch | None:
        """The epoch that the record at `offset` was written in, or would be."""
        earlier = arithmetic.up_to(self._boundaries, offset)
        return earlier[-1].epoch if earlier else None

    def base(self) -> Base:
        start = self.log.base_offset
        return Base(start, arithmetic.up_to(self._boundaries, start))

    def read(self, after: Position) -> tuple[tuple[Boundary, ...], bytes]:
        # A follower may stand at the batch that holds the log start, before the start itself.
        offset = max(after.end_offset, self.log.start_offset)
        records = self.log.read(
            offset, bytes_max=self._fetch_bytes_max, end_offset=self.log.end_offset
        )
        end = after.end_offset if records is None else records.end_offset
        boundaries = arithmetic.between(self._boundaries, after, end)
        return boundaries, b"" if records is None else records.read()

    # -- writes ----------------------------------------------------------------------------

    def vote(self, hard_state: HardState) -> None:
        self._journal.vote(self._id, hard_state)

    def open_epoch(self, boundary: Boundary) -> None:
        assert boundary.start_offset == self.log.end_offset, "a boundary out of place"
        self._finish_cut()
        self._open(boundary)

    def append(self, records: object) -> None:
        assert isinstance(records, Stamped)
        epoch = self._boundaries[-1].epoch
        for header in records.headers:
            assert header.epoch == epoch
        self.log.append(records.chunks, records.headers, now_ms=self._clock.now_ms())

    def extend(self, boundaries: tuple[Boundary, ...], records: object) -> None:
        """Write what a leader sent; bytes that the link broke raise `CorruptBatch`."""
        assert isinstance(records, bytes)
        headers = verify_batches(records) if records else []
        before = self.last
        self._check_story(boundaries, headers)
        self._finish_cut()
        try:
            if headers:
                self.log.append([records], headers, now_ms=self._clock.now_ms())
            for boundary in boundaries:
                self._open(boundary)
        except StorageError as problem:
            self._take_back(before, problem)
            raise

    def truncate(self, to: Position) -> None:
        """Records go first. Where the disk refuses, the log ends there: a shorter cut than asked
        for, and boundaries that start beyond the end count no more, as after a power cut.
        """
        self.cuts += 1
        try:
            if to.end_offset < self.log.end_offset:
                self.log.truncate(to.end_offset)
            self._journal.cut_epochs(self._id, to.epoch)
        finally:
            self._recall()
            kept = arithmetic.up_to(self._boundaries, self.log.end_offset)
            self._is_cut_short = len(kept) < len(self._boundaries)
            self._follow(kept)

    def reset(self, start_offset: Offset, boundaries: tuple[Boundary, ...]) -> None:
        self.cuts += 1
        self._journal.reset(self._id, start_offset, boundaries)
        # Records may go only once the journal no longer speaks for them: else a power cut would
        # leave the old boundaries over an empty log, a place where this replica never was.
        self._journal.sync_now()
        self._recall()
        self._is_cut_short = False
        try:
            self.log.reset(start_offset)
        except StorageError as problem:
            # The journal speaks for an empty log, and old files are left under names that the next
            # appends would use. Opening the log again removes them; nothing may be written before.
            raise DiskFailed(
                f"{self.log.directory}: old records could not be removed: {problem}; "
                "restart the node"
            ) from problem

    def advance_start(self, start_offset: Offset) -> None:
        if start_offset <= self.log.start_offset or not self.log.is_folded:
            return  # While it folds, a follower waits for the leader to say so again.
        self._finish_cut()
        self.log.finish_cut()
        self._journal.move_start(self._id, start_offset)
        self._recall()
        self.log.advance_start(start_offset)

    # -- parts -----------------------------------------------------------------------------

    def _open(self, boundary: Boundary) -> None:
        self._journal.open_epoch(self._id, boundary)
        self._recall()

    def _recall(self) -> None:
        self._follow(self._journal.state(self._id).boundaries)

    def _follow(self, boundaries: Sequence[Boundary]) -> None:
        self._boundaries = boundaries
        self._voters = arithmetic.voters_in_force(boundaries, self._founders)

    def _finish_cut(self) -> None:
        """Write a cut to the journal that it refused after the records were cut."""
        if self._is_cut_short:
            self._journal.cut_epochs(self._id, self.last.epoch)
            self._is_cut_short = False

    def _take_back(self, before: Position, problem: StorageError) -> None:
        """Cut off what was written before `problem`; if that is refused, too, fail for good.

        Records without their boundary would pass for records of the epoch before.
        """
        if self.last == before and self.log.end_offset == before.end_offset:
            return
        try:
            self.truncate(before)
        except StorageError as second:
            raise DiskFailed(
                f"{self.log.directory}: refused ({problem}) and could not be taken back "
                f"({second}); restart the node"
            ) from problem

    def _check_story(self, boundaries: Sequence[Boundary], headers: Sequence[Header]) -> None:
        """Assert that every record follows the boundary of its epoch, and every boundary the record
        before it: else the leader or this replica has a bug.
        """
        epoch = self.last.epoch
        end = self.log.end_offset
        coming = list(boundaries)
        for header in headers:
            while coming and coming[0].start_offset <= header.base_offset:
                assert coming[0].start_offset == end, "a boundary out of place"
                epoch = coming.pop(0).epoch
            assert header.epoch == epoch, "a record without its epoch"
            assert header.base_offset >= end, "a record twice"
            end = header.end_offset
        assert all(boundary.start_offset == end for boundary in coming), "a boundary out of place"
