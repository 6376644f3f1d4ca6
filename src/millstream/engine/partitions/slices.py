"""Values of the read path (wants, slices, places), and the slice of a replica for a reader."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from millstream.errors import (
    OffsetOutOfRange,
    RequestError,
    StaleLeaderEpoch,
    StorageError,
    UnknownLeaderEpoch,
    read_refusal,
)
from millstream.model import Epoch, Isolation, Offset, Position, TopicPartition
from millstream.replication.replica import Replica
from millstream.storage.log.aborted import Aborted
from millstream.storage.sealing.ranges import LogRange

_log = logging.getLogger(__name__)

ANY_EPOCH = -1


class Want(NamedTuple):
    """A read request for one partition."""

    target: TopicPartition
    offset: Offset
    bytes_max: int
    leader_epoch: int = ANY_EPOCH  # The epoch the reader believes in; a mismatch is refused.
    last_epoch: int = ANY_EPOCH  # Of the record read last: shows whether the reader's log diverged.


class FilteredBatches(NamedTuple):
    """The batches of a range of the log that passed the filters, in memory."""

    data: bytes
    passed_bytes: int  # Without the skip marker at the end.
    base_offset: Offset
    end_offset: Offset  # Where reading goes on.
    read_bytes: int  # Of the log, for this range.
    skipped_bytes: int = 0  # Of the log, passed over by an index; an estimate.

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self) -> bytes:
        return self.data


class Slice(NamedTuple):
    """The answer to a want: whole batches, or an error."""

    target: TopicPartition
    records: LogRange | FilteredBatches | None = None
    high_watermark: Offset = -1
    last_stable_offset: Offset = -1
    log_start_offset: Offset = -1
    aborted: Sequence[Aborted] = ()
    error: RequestError | None = None
    diverging: Position | None = None  # Where the reader's log diverges from ours; no records then.

    @property
    def size(self) -> int:
        return 0 if self.records is None else self.records.size

    @property
    def gained_bytes(self) -> int:
        """The bytes that count for a long poll: skip markers do not."""
        return self.records.passed_bytes if isinstance(self.records, FilteredBatches) else self.size


class Earliest(Struct, frozen=True): ...


class Latest(Struct, frozen=True): ...


class AtTime(Struct, frozen=True):
    timestamp_ms: int


class AtMaxTimestamp(Struct, frozen=True): ...


class LastRecords(Struct, frozen=True):
    count: int


Place = Earliest | Latest | AtTime | AtMaxTimestamp | LastRecords


class OffsetAndTimestamp(NamedTuple):
    """An offset, and the timestamp of its record where the question was about time, else -1."""

    offset: Offset
    timestamp_ms: int = -1
    leader_epoch: int = ANY_EPOCH


def read_slice(
    replica: Replica,
    want: Want,
    *,
    bytes_max: int,
    isolation: Isolation,
    may_exceed: bool,
    reads_one: bool = False,
    verified_bytes_max: int | None = None,
) -> Slice:
    """Read a slice of a replica that is ready.

    With `may_exceed` at least one batch, or a large batch could never be read; with `reads_one`
    one batch at most. Raises `NotVerified` if more than `verified_bytes_max` must be verified
    first.
    """
    if want.leader_epoch != ANY_EPOCH:
        check_epoch(want.target, want.leader_epoch, replica)
    log, start = replica.log, replica.log.start_offset
    if not start <= want.offset <= log.end_offset:
        raise OffsetOutOfRange(want.target, want.offset, start, log.end_offset)
    high_watermark, stable = replica.high_watermark, replica.last_stable_offset
    if want.last_epoch != ANY_EPOCH:
        diverging = _divergence(want, replica)
        if diverging is not None:
            return Slice(want.target, None, high_watermark, stable, start, diverging=diverging)
    end = stable if isolation is Isolation.READ_COMMITTED else high_watermark
    limit = min(want.bytes_max, bytes_max)
    try:
        chunk = log.read(
            want.offset,
            bytes_max=1 if reads_one else limit,
            end_offset=end,
            verified_bytes_max=verified_bytes_max,
        )
    except StorageError as problem:
        raise refuse_read(replica, want.target, problem) from problem
    if chunk is not None and chunk.size > limit and not may_exceed:
        chunk = None
    aborted: Sequence[Aborted] = ()
    if chunk is not None and isolation is Isolation.READ_COMMITTED:
        aborted = log.producers.aborted(want.offset, chunk.end_offset)
    return Slice(want.target, chunk, high_watermark, stable, start, aborted)


def refuse_read(replica: Replica, target: TopicPartition, problem: StorageError) -> RequestError:
    """The error for a reader; a replica that cannot be read for good resigns as leader."""
    if replica.unreadable(problem):
        _log.error(
            "gave up leading what cannot be read topic=%s partition=%d problem=%s",
            target.topic,
            target.partition,
            problem,
        )
    return read_refusal(*target, problem)


def visible_end(replica: Replica, isolation: Isolation) -> Offset:
    """The end offset that a reader may read to."""
    if isolation is Isolation.READ_COMMITTED:
        return replica.last_stable_offset
    return replica.high_watermark


def check_epoch(target: TopicPartition, believed: int, replica: Replica) -> None:
    """Raise unless the client's leader epoch is this replica's (KIP-320)."""
    current = replica.core.epoch
    if believed in (ANY_EPOCH, current):
        return
    if believed < current:
        raise StaleLeaderEpoch(f"{target} is in epoch {current}, not {believed}")
    raise UnknownLeaderEpoch(f"{target} is in epoch {current}, not yet {believed}")


def _divergence(want: Want, replica: Replica) -> Position | None:
    """Where the reader's log diverges from this one; None if it does not."""
    end = replica.consensus_log.epoch_end(Epoch(want.last_epoch))
    if end is None:
        log = replica.log
        raise OffsetOutOfRange(want.target, want.offset, log.start_offset, log.end_offset)
    is_shared = end.epoch == want.last_epoch and want.offset <= end.end_offset
    return None if is_shared else end
