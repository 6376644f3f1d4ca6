"""What must hold after every event, each with a name.

Each invariant looks at the node that an event touched; what it must remember of the past it keeps,
or finds in the `Witness`, which knows what was ever committed. The core's own assertions count as
invariants, too. Logs are compared only when they changed.
"""

from typing import TYPE_CHECKING, Protocol

from millstream.model import ORIGIN, Epoch, Offset, Position, ReplicaId
from millstream.raft import Role
from tests.simulation.core_log import Batch, FakeLog

if TYPE_CHECKING:
    from tests.simulation.core_group import Group, Node


class Violation(AssertionError):
    """An invariant does not hold."""


class Witness:
    """What was committed, acknowledged and deleted, ever."""

    def __init__(self) -> None:
        self.committed: list[Batch] = []
        self.index_of: dict[Offset, int] = {}  # Of the committed batch that starts there.
        self.position = ORIGIN  # The newest place that a leader knows to be on a majority.
        self.acknowledged: list[Batch] = []  # What producers were told is safe.
        self.deleted_to: Offset = 0  # How far leaders' retention went.
        self.leaders: dict[Epoch, ReplicaId] = {}

    @property
    def end_offset(self) -> Offset:
        return self.committed[-1].end_offset if self.committed else 0

    def commit(self, batches: list[Batch]) -> None:
        for batch in batches:
            self.index_of[batch.base_offset] = len(self.committed)
            self.committed.append(batch)

    def agrees(self, log: FakeLog, end_offset: Offset) -> bool:
        """Is what `log` holds up to `end_offset` what was committed there?"""
        batches = log.records.batches
        if not batches or batches[0].base_offset >= end_offset:
            return True
        first = self.index_of.get(batches[0].base_offset)
        if first is None:
            return False
        count = min(len(batches), len(self.committed) - first)
        ours = [b for b in batches[:count] if b.end_offset <= end_offset]
        return self.committed[first : first + len(ours)] == ours

    def is_complete(self, log: FakeLog) -> bool:
        """Does `log` hold all that is committed and not deleted?"""
        records = log.records
        is_long_enough = records.end_offset >= self.end_offset
        reaches_back = records.base_offset <= self.deleted_to
        return is_long_enough and reaches_back and self.agrees(log, self.end_offset)


class Invariant(Protocol):
    def check(self, group: "Group", node: "Node") -> None: ...


class SingleLeaderPerEpoch:
    def check(self, group: "Group", node: "Node") -> None:
        if node.is_leader:
            owner = group.witness.leaders.setdefault(node.core.epoch, node.me)  # type: ignore[union-attr]
            require(owner == node.me, self, f"{owner} and {node.me} lead epoch {node.core.epoch}")  # type: ignore[union-attr]


class MonotonicHighWatermark:
    """Within one life: after a restart the high watermark is unknown for a while."""

    def __init__(self) -> None:
        self._last: dict[tuple[ReplicaId, int], Offset] = {}

    def check(self, group: "Group", node: "Node") -> None:
        if node.core is None:
            return
        now = node.core.high_watermark
        before = self._last.get((node.me, node.life), 0)
        require(now >= before, self, f"node {node.me} went from {before} back to {now}")
        require(now <= node.log.last.end_offset, self, "beyond the end of the log")
        self._last[node.me, node.life] = now


class CommittedNeverChanges:
    """The first to see a high watermark says what is committed; all others must agree."""

    def __init__(self) -> None:
        self._seen: dict[ReplicaId, tuple[int, Offset, Offset]] = {}

    def check(self, group: "Group", node: "Node") -> None:
        if node.core is None:
            return
        witness, log = group.witness, node.log
        watermark, end_offset = node.core.high_watermark, witness.end_offset
        if watermark > end_offset:
            fresh = [b for b in log.records.batches if end_offset < b.end_offset <= watermark]
            require(fresh[0].base_offset == end_offset, self, "a hole in what is committed")
            require(fresh[-1].end_offset == watermark, self, "a watermark inside a batch")
            if node.is_leader and fresh[-1].epoch != node.core.epoch:
                group.seen["commits by a boundary alone"] += 1
            witness.commit(fresh)
        if node.core.is_established:
            witness.position = max(witness.position, Position(node.core.epoch, watermark))
        facts = (log.changes, watermark, witness.end_offset)
        if self._seen.get(node.me) != facts:
            self._seen[node.me] = facts
            require(witness.agrees(log, watermark), self, f"node {node.me} up to {watermark}")


class AcknowledgedIsCommitted:
    def __init__(self) -> None:
        self._checked = 0

    def check(self, group: "Group", node: "Node") -> None:
        witness = group.witness
        for batch in witness.acknowledged[self._checked :]:
            index = witness.index_of.get(batch.base_offset)
            is_committed = index is not None and witness.committed[index] == batch
            require(is_committed, self, f"a producer was told that {batch} is safe")
        self._checked = len(witness.acknowledged)


class LogIsWellFormed:
    """The two files tell one story, and no epoch is out of place."""

    def check(self, group: "Group", node: "Node") -> None:
        journal, records = node.log.journal, node.log.records
        epochs = [b.epoch for b in journal.boundaries]
        starts = [b.start_offset for b in journal.boundaries]
        require(epochs == sorted(set(epochs)), self, "epochs do not ascend")
        require(starts == sorted(starts), self, "boundaries are out of order")
        require(not starts or starts[-1] <= records.end_offset, self, "boundary beyond the end")
        require(records.base_offset <= journal.start_offset, self, "starts after its start")
        require(journal.start_offset <= records.end_offset, self, "ends before its start")
        require(journal.start_offset <= group.witness.end_offset, self, "deleted too much")
        at = -1
        for batch in records.batches:
            while at + 1 < len(starts) and starts[at + 1] <= batch.base_offset:
                at += 1
            require(at >= 0 and epochs[at] == batch.epoch, self, "a record in a wrong epoch")


class OffsetsNeverSkip:
    """Every offset holds a record that somebody proposed: opening an epoch takes none."""

    def check(self, group: "Group", node: "Node") -> None:
        end_offset = node.log.records.base_offset
        for batch in node.log.records.batches:
            require(batch.base_offset == end_offset, self, f"nothing at {end_offset}")
            end_offset = batch.end_offset
        require(end_offset <= group.end_offset_max, self, "an offset without a record")


class LogMatching:
    """Two logs that share an epoch are the same up to where either leaves it, as far back as
    both still reach."""

    def check(self, group: "Group", node: "Node") -> None:
        for other in group.nodes.values():
            if other is not node:
                self._compare(node.log, other.log)

    def _compare(self, a: FakeLog, b: FakeLog) -> None:
        ours, theirs = a.journal.boundaries, b.journal.boundaries
        known = {boundary.epoch for boundary in theirs}
        newest = next((x.epoch for x in reversed(ours) if x.epoch in known), None)
        if newest is None:
            return
        oldest = max(ours[0].epoch, theirs[0].epoch)
        mine = [x for x in ours if oldest <= x.epoch <= newest]
        yours = [x for x in theirs if oldest <= x.epoch <= newest]
        require(mine == yours, self, "boundaries differ below a shared epoch")
        start = max(a.records.base_offset, b.records.base_offset)
        end = min(a.epoch_end(newest), b.epoch_end(newest)).end_offset  # type: ignore[type-var, union-attr]
        mine = [x for x in a.records.batches if x.base_offset >= start and x.end_offset <= end]  # type: ignore[misc]
        yours = [x for x in b.records.batches if x.base_offset >= start and x.end_offset <= end]  # type: ignore[misc]
        require(mine == yours, self, "records differ below a shared epoch")


class LeaderCompleteness:
    """The newest leader holds all that is committed, records and boundaries."""

    def check(self, group: "Group", node: "Node") -> None:
        witness = group.witness
        if not node.is_leader or node.core.epoch != max(witness.leaders):  # type: ignore[union-attr]
            return
        require(witness.is_complete(node.log), self, f"node {node.me} misses committed records")
        is_deleted = node.log.start_offset > witness.position.end_offset
        is_held = is_deleted or node.log.contains(witness.position)
        require(is_held, self, f"node {node.me} misses {witness.position}")


class ElectableHoldsCommitted:
    """Even if the power went now, no node without all committed records could be elected, by the
    voters that its own log names. Sees most bugs long before they do harm."""

    def check(self, group: "Group", node: "Node") -> None:
        witness = group.witness
        for candidate in group.nodes.values():
            voters = candidate.log.voters
            if witness.is_complete(candidate.log):
                continue
            last = candidate.log.last
            votes = sum(
                voter == candidate.me or group.nodes[voter].log.synced <= last for voter in voters
            )
            if 2 * votes > len(voters):
                raise Violation(f"{type(self).__name__}: {candidate.me} at {last} by {voters}")


class OnlyWhenChanged:
    """Runs invariants that depend on logs and commits alone, when one of them changed."""

    def __init__(self, *inner: Invariant) -> None:
        self._inner = inner
        self._seen: dict[ReplicaId, tuple[object, ...]] = {}

    def check(self, group: "Group", node: "Node") -> None:
        role = node.core.role if node.core is not None else None
        epoch = node.core.epoch if role is Role.LEADER else None  # type: ignore[union-attr]
        facts = (node.log.changes, node.log.synced, group.witness.end_offset, role, epoch)
        if self._seen.get(node.me) != facts:
            self._seen[node.me] = facts
            for invariant in self._inner:
                invariant.check(group, node)


def invariants() -> list[Invariant]:
    return [
        SingleLeaderPerEpoch(),
        MonotonicHighWatermark(),
        CommittedNeverChanges(),
        AcknowledgedIsCommitted(),
        OnlyWhenChanged(
            LogIsWellFormed(),
            OffsetsNeverSkip(),
            LogMatching(),
            LeaderCompleteness(),
            ElectableHoldsCommitted(),
        ),
    ]


def require(condition: bool, invariant: object, detail: str) -> None:
    if not condition:
        raise Violation(f"{type(invariant).__name__}: {detail}")
