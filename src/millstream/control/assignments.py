"""The replicas of one partition over its life: founded, raised, moved, moved back.

Owns which replica ids there are. Pure: an id follows from the node and the offset of the command
that placed it, so it is the same on every node.

Invariant: a node has at most one replica of a partition, and a replica that was given up by
`finished` never comes back: its node gets another id.
"""

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from millstream.control.commands import Replicas
from millstream.model import NodeId, Offset, ReplicaId, node_of, replica_id

ReplicaIds = tuple[ReplicaId, ...]

PLACEMENTS_KEPT = 1_024  # Topics of thousands of partitions have few different ones.


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    founders: frozenset[ReplicaId]  # They voted first, and never change.
    replicas: ReplicaIds  # Those that are to vote; the first is preferred as leader.
    leaving: ReplicaIds = ()  # Still there, and given up once the others vote.
    before: ReplicaIds = ()  # Where a move that is cancelled goes back to. Empty: nothing moves.
    moved_offset: Offset = 0  # Of the command that began the move.

    @property
    def is_moving(self) -> bool:
        return bool(self.before)

    @property
    def all(self) -> ReplicaIds:
        """All replicas that hold records, or are about to."""
        return self.replicas + self.leaving

    @property
    def nodes(self) -> Replicas:
        """The nodes that are to hold the partition."""
        return nodes_of(self.replicas)

    @property
    def adding(self) -> Replicas:
        """The nodes that come with the move."""
        return nodes_of(
            each for each in self.replicas if self.is_moving and each not in self.before
        )


def nodes_of(replicas: Iterable[ReplicaId]) -> Replicas:
    return tuple(map(node_of, replicas))


def replica_on(node: NodeId, assignment: Assignment) -> ReplicaId | None:
    """The replica of a node; None if it has none."""
    for replica in assignment.all:
        if node_of(replica) == node:
            return replica
    return None


@lru_cache(maxsize=PLACEMENTS_KEPT)
def founded(nodes: Replicas) -> Assignment:
    """The first replicas of a partition. Partitions on the same nodes share one assignment."""
    replicas = tuple(map(replica_id, nodes))
    return Assignment(founders=frozenset(replicas), replicas=replicas)


def raised(assignment: Assignment, added: Replicas, offset: Offset) -> Assignment:
    """More replicas. A node that was about to give its replica up keeps it."""
    replicas, leaving = _placed(assignment, assignment.nodes + added, offset)
    return msgspec.structs.replace(assignment, replicas=replicas, leaving=leaving)


def moved(assignment: Assignment, nodes: Replicas, offset: Offset) -> Assignment:
    """Other replicas. Those that are there stay until the others vote."""
    before = assignment.before or assignment.replicas
    replicas, leaving = _placed(assignment, nodes, offset)
    is_done = not leaving and set(replicas) == set(before)  # At most their order has changed.
    return msgspec.structs.replace(
        assignment,
        replicas=replicas,
        leaving=leaving,
        before=() if is_done else before,
        moved_offset=offset,
    )


def cancelled(assignment: Assignment, offset: Offset) -> Assignment:
    """Back to the replicas before the move; they hold all their records still."""
    return moved(assignment, nodes_of(assignment.before), offset)


def finished(assignment: Assignment) -> Assignment:
    """Those that are to vote do, and the others are given up for ever."""
    return msgspec.structs.replace(assignment, leaving=(), before=())


def _placed(
    assignment: Assignment, nodes: Replicas, offset: Offset
) -> tuple[ReplicaIds, ReplicaIds]:
    assert offset > 0, "the incarnation 0 is that of founders"
    known = {node_of(replica): replica for replica in assignment.all}
    replicas = tuple(known.get(node) or replica_id(node, offset) for node in nodes)
    return replicas, tuple(each for each in assignment.all if each not in replicas)
