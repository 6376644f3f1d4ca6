"""Functions over the epoch boundaries of a log: ends of epochs, positions, boundaries to drop.

Pure, over boundaries in order, shared by every `LogView`. `base_offset` is the offset of the first
batch held, `end_offset` the end of the log. Several boundaries may start at the same offset, and
each of them counts.
"""

from bisect import bisect_right
from collections.abc import Sequence

from millstream.model import ORIGIN, Boundary, Epoch, Offset, Position, ReplicaId


def last_position(boundaries: Sequence[Boundary], end_offset: Offset) -> Position:
    """Return where a log with these boundaries and this end stands."""
    return Position(boundaries[-1].epoch, end_offset) if boundaries else ORIGIN


def voters_in_force(
    boundaries: Sequence[Boundary], founders: frozenset[ReplicaId]
) -> frozenset[ReplicaId]:
    """Return the last boundary's voters; they hold from the moment it is written."""
    return boundaries[-1].voters if boundaries else founders


def may_campaign(boundaries: Sequence[Boundary], node: ReplicaId, high_watermark: Offset) -> bool:
    """Is `node` a voter in the last boundary known to be committed, or in any later one?

    A leader that opens an epoch without itself may be the only one that holds it. Until that epoch
    is committed it is needed, to be elected once more by voters that cannot win against its longer
    log (Ongaro's dissertation, section 4.2.2).
    """
    return any(node in boundary.voters for boundary in prune(boundaries, high_watermark))


def epoch_end(
    boundaries: Sequence[Boundary], epoch: Epoch, *, base_offset: Offset, end_offset: Offset
) -> Position | None:
    """Return where the newest epoch that is not above `epoch` ends; see `LogView.epoch_end`."""
    after = _index_after(boundaries, epoch)
    if after == 0:
        return ORIGIN if base_offset == 0 else None
    end = boundaries[after].start_offset if after < len(boundaries) else end_offset
    return Position(boundaries[after - 1].epoch, end)


def contains(
    boundaries: Sequence[Boundary], position: Position, *, base_offset: Offset, end_offset: Offset
) -> bool:
    """Does the log pass through `position`, at or after its first batch?"""
    if position == ORIGIN:
        return base_offset == 0
    after = _index_after(boundaries, position.epoch)
    if after == 0 or boundaries[after - 1].epoch != position.epoch:
        return False
    start = max(boundaries[after - 1].start_offset, base_offset)
    end = boundaries[after].start_offset if after < len(boundaries) else end_offset
    return start <= position.end_offset <= end


def between(
    boundaries: Sequence[Boundary], after: Position, end_offset: Offset
) -> tuple[Boundary, ...]:
    """Return the boundaries that travel with the records from `after` up to `end_offset`."""
    newer = boundaries[_index_after(boundaries, after.epoch) :]
    return tuple(boundary for boundary in newer if boundary.start_offset <= end_offset)


def up_to(boundaries: Sequence[Boundary], offset: Offset) -> tuple[Boundary, ...]:
    """Return the boundaries that start at or before `offset`: a reset carries these, and a log
    that lost its tail keeps these."""
    return tuple(boundary for boundary in boundaries if boundary.start_offset <= offset)


def cut(boundaries: Sequence[Boundary], epoch: Epoch) -> list[Boundary]:
    """Return what a truncation leaves: by epoch, because an offset does not tell them apart."""
    return list(boundaries[: _index_after(boundaries, epoch)])


def prune(boundaries: Sequence[Boundary], start_offset: Offset) -> list[Boundary]:
    """Return what a log that now starts at `start_offset` must keep.

    The last boundary that starts strictly before it opened the epoch of the record just before it.
    That record is committed, so this boundary is: whatever a replica falls back to is committed.
    """
    before = sum(boundary.start_offset < start_offset for boundary in boundaries)
    return list(boundaries[max(before - 1, 0) :])


def _index_after(boundaries: Sequence[Boundary], epoch: Epoch) -> int:
    return bisect_right(boundaries, epoch, key=lambda boundary: boundary.epoch)
