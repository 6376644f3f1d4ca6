"""The interface between consensus and a log.

Owns the contract; `replication.consensus_log` implements it on storage and journal, the simulator
on a fake that forgets. Records are opaque here. `boundaries` has the arithmetic for all
implementations.

Invariant: boundaries and records, read in order, are one sequence, and a position `(epoch of the
last boundary, end_offset)` names a place in it. An offset alone does not.

Durability. Calls write and return; nothing is durable until the driver reports it by
`Core.durable`. Four rules bind the driver:

- What a log holds when its `Core` is made counts as durable: recovery syncs what it kept, also
  after a crash of the process alone.
- Votes, boundaries, cuts, resets and start offsets go to one journal, in the order of the calls,
  and a crash keeps a prefix of them. So no boundary is ever on disk without the vote before it.
- Records that `advance_start` or `reset` drop may leave the disk only when the journal entry that
  says so is durable; until then a crash must find the old log. A segment that was begun by a reset
  proves nothing without that entry: the end of a log is the end of its last batch, or its start.
- A sync that was under way while `truncate` or `reset` was called proves nothing: its result is
  dropped and another sync begun. The same bytes may have been cut off and written anew since.

Errors. A method that cannot write raises `StorageError` and leaves the log as it was. The core
then stays as it was, too, and tries the same write again later.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from millstream.model import Boundary, Epoch, HardState, Offset, Position, ReplicaId


class Base(NamedTuple):
    """Where a replica must start that the log cannot lead on from where it is."""

    start_offset: Offset
    boundaries: tuple[Boundary, ...]


class LogView(Protocol):
    """One replica's log, its epoch boundaries and its vote."""

    @property
    def last(self) -> Position:
        """Where the log ends: the epoch of the last boundary, even one without records yet, and
        the end offset. `ORIGIN` if nothing was ever written."""

    @property
    def start_offset(self) -> Offset:
        """The log start that users see. Records before it were committed and are deleted. It may
        lie inside a batch, and moves by `advance_start` or by the driver's retention, at most to
        `Core.start_offset_max`."""

    @property
    def boundaries(self) -> Sequence[Boundary]:
        """The boundaries held, oldest first. Not to be changed by the caller."""

    @property
    def voters(self) -> frozenset[ReplicaId]:
        """The voters in force: those of the last boundary, committed or not. Without a boundary
        the founding voters. Every founder must be given the same set, for ever; a newcomer gets
        any set of nodes to ask, without itself."""

    def contains(self, position: Position) -> bool:
        """Does the log pass through `position`, and can it be read from there on?"""

    def epoch_end(self, epoch: Epoch) -> Position | None:
        """Where the newest epoch that is not above `epoch` ends in this log. If there is none:
        `ORIGIN` for a log that is held from offset 0 on, None for one that begins later."""

    def base(self) -> Base:
        """The offset of the first batch held (`start_offset` lies in it or is it), and all
        boundaries known that start at or before it. A replica that starts there can read on."""

    def read(self, after: Position) -> tuple[tuple[Boundary, ...], object]:
        """Some of what follows `after`, which the log contains: at least one boundary or batch
        unless `after` is the end, a bounded amount, without a gap. A boundary comes only if all
        records before it lie before `after` or come too. Records are falsy if there are none."""

    def vote(self, hard_state: HardState) -> None:
        """Note the epoch entered and the vote given in it, before anything of that epoch."""

    def open_epoch(self, boundary: Boundary) -> None:
        """Append a boundary: its epoch is new, its start is the end of the log."""

    def append(self, records: object) -> None:
        """Append what the leader proposed: records stamped with its epoch and the next offset."""

    def extend(self, boundaries: tuple[Boundary, ...], records: object) -> None:
        """Append what a leader's `read` gave, each boundary exactly where it belongs. All or
        nothing; asserts that each boundary starts where the log then ends."""

    def truncate(self, to: Position) -> None:
        """Drop every record from `to.end_offset` on and every boundary above `to.epoch`. Often no
        record goes, only a boundary that starts at the end."""

    def reset(self, start_offset: Offset, boundaries: tuple[Boundary, ...]) -> None:
        """Drop everything and continue, empty, at `start_offset` with these boundaries. Records
        held may lie behind it, but none of an epoch that these boundaries name there. A crash
        leaves the log from before or the one from after."""

    def advance_start(self, start_offset: Offset) -> None:
        """Move the log start up; batches wholly before it may go. Of the boundaries, the last one
        that starts *strictly* before it is kept with all later ones, so the first one kept is
        always committed."""
