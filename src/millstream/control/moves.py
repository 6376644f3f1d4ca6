"""How the voters of a partition become others, one at a time, and how a node is emptied. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millstream.control.balance import Candidate, relocated
from millstream.control.catalog import Catalog, Topic
from millstream.control.commands import Replicas
from millstream.control.nodes import Node, Nodes
from millstream.errors import InvalidReplication
from millstream.errors.cluster import NodeRefused
from millstream.model import ReplicaId

VOTERS_KEPT = 3  # So many vote while replicas are exchanged, though fewer are to vote in the end.

Voters = frozenset[ReplicaId]


def next_voters(voters: Voters, planned: Voters, *, me: ReplicaId, lost: Voters) -> Voters | None:
    """The voters after the next change towards `planned`, all of which are in step; None if no
    voter but the leader, `me`, is left to go.

    A lost voter goes before another comes: of two, a lost one and a newcomer, all three others
    would have to live. Else newcomers come first, one for each that goes.
    """
    newcomers, leavers = planned - voters, sorted(voters - planned - {me})
    dead = [each for each in leavers if each in lost]
    is_crowded = len(voters) > max(len(planned), VOTERS_KEPT)
    if leavers and (dead or is_crowded or not newcomers):
        return voters - {(dead or leavers)[0]}
    return voters | {min(newcomers)} if newcomers else None


class Relocation(NamedTuple):
    topic: Topic
    partition: int
    nodes: Replicas


def evacuation(
    nodes: Nodes, catalog: Catalog, node: Node, places: Sequence[Candidate]
) -> Iterator[Relocation]:
    """Where the replicas of a node go, partition by partition; `NodeRefused` if there is no place.

    A node that leaves for a successor gives all of them to it.
    """
    if node.successor is not None:
        places = [place for place in places if place.node_id == node.successor]
    held = Counter(
        each
        for topic in catalog.topics()
        if not topic.is_view
        for replicas in topic.placement
        for each in replicas
    )
    for topic, partition in catalog.partitions_on(node.node_id):
        replicas = topic.placement[partition]
        if node.node_id in replicas:
            try:
                target = relocated(nodes, places, replicas, node.node_id, held)
            except InvalidReplication as problem:
                raise NodeRefused(
                    f"node {node.node_id} cannot leave: {topic.name}-{partition}: {problem}"
                ) from None
            yield Relocation(topic, partition, target)


def moving_count(catalog: Catalog) -> int:
    """How many partitions move."""
    return sum(
        assignment.is_moving
        for topic in catalog.topics()
        for assignment in topic.assignments.values()
    )
