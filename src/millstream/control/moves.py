"""How the voters of a partition become others, one at a time, how a node is emptied, and how
replicas are spread anew over the nodes. Pure.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from millstream.control.balance import Candidate, relocated
from millstream.control.catalog import Catalog, Topic
from millstream.control.commands import Replicas
from millstream.control.nodes import Node, Nodes
from millstream.errors import InvalidReplication
from millstream.errors.cluster import NodeRefused
from millstream.model import NodeId, ReplicaId

VOTERS_KEPT = 3  # So many vote while replicas are exchanged, though fewer are to vote in the end.

Voters = frozenset[ReplicaId]
# A topic by its name, and the number of a partition.
_Partition = tuple[str, int]


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


def rebalancing(
    catalog: Catalog, places: Sequence[Candidate], *, count_max: int
) -> Generator[None, None, list[Relocation]]:
    """The partitions that change so that all nodes hold about as many, and prefer to lead as many:
    at most so many, by topic and number. In steps of one change.

    A replica moves from a node that holds more to one that holds at least two fewer, never onto a
    machine that has the partition, and never so that it is in fewer racks. Then preferred leaders
    are exchanged within their replicas, which moves no records.

    Partitions that move already are left alone, and so are nodes that are not among `places`.
    """
    plan = _Plan(catalog, places)
    for change in (plan.move_replica, plan.exchange_leader):
        while plan.changed_count < count_max and change():
            yield
    return plan.relocations()


class _Plan:
    def __init__(self, catalog: Catalog, places: Sequence[Candidate]) -> None:
        self._places = {place.node_id: place for place in places}
        self._topics = {topic.name: topic for topic in catalog.topics() if not topic.is_view}
        self._replicas: dict[_Partition, Replicas] = {}
        # The partitions of each node, and those it is preferred to lead, in their order.
        self._held: dict[NodeId, dict[_Partition, None]] = {node: {} for node in self._places}
        self._led: dict[NodeId, dict[_Partition, None]] = {node: {} for node in self._places}
        self._changed: set[_Partition] = set()
        for topic in self._topics.values():
            for number, replicas in enumerate(topic.placement):
                if not topic.assignment(number).is_moving:
                    self._put((topic.name, number), replicas)

    @property
    def changed_count(self) -> int:
        return len(self._changed)

    def relocations(self) -> list[Relocation]:
        return [
            Relocation(self._topics[name], number, self._replicas[name, number])
            for name, number in sorted(self._changed)
            if self._replicas[name, number] != self._topics[name].placement[number]
        ]

    def move_replica(self) -> bool:
        """Move one replica to a node that holds fewer; return whether there was one to move."""
        for giver, taker in self._pairs(self._held):
            for partition in self._held[giver]:
                replicas = self._replicas[partition]
                if self._may_move(replicas, giver, taker):
                    self._change(
                        partition, tuple(taker if node == giver else node for node in replicas)
                    )
                    return True
        return False

    def exchange_leader(self) -> bool:
        """Prefer another replica of a partition as leader; return whether that was of use."""
        for giver, taker in self._pairs(self._led):
            for partition in self._led[giver]:
                replicas = self._replicas[partition]
                if taker in replicas:
                    others = [node for node in replicas if node != taker]
                    self._change(partition, (taker, *others))
                    return True
        return False

    def _change(self, partition: _Partition, replicas: Replicas) -> None:
        before = self._replicas[partition]
        for node in before:
            self._held.get(node, {}).pop(partition, None)
        self._led.get(before[0], {}).pop(partition, None)
        self._put(partition, replicas)
        self._changed.add(partition)

    def _put(self, partition: _Partition, replicas: Replicas) -> None:
        self._replicas[partition] = replicas
        for node in replicas:
            if node in self._held:
                self._held[node][partition] = None
        if replicas[0] in self._led:
            self._led[replicas[0]][partition] = None

    def _pairs(
        self, shares: Mapping[NodeId, Mapping[_Partition, None]]
    ) -> list[tuple[NodeId, NodeId]]:
        """Nodes whose shares differ by two at least, the farthest apart first."""
        counts = {node: len(share) for node, share in shares.items()}
        pairs = [
            (giver, taker)
            for giver in sorted(counts)
            for taker in sorted(counts)
            if counts[giver] - counts[taker] >= 2
        ]
        return sorted(pairs, key=lambda pair: counts[pair[1]] - counts[pair[0]])

    def _may_move(self, replicas: Replicas, giver: NodeId, taker: NodeId) -> bool:
        others = [self._places[node] for node in replicas if node != giver and node in self._places]
        place = self._places[taker]
        if taker in replicas or place.machine in {each.machine for each in others}:
            return False
        return _racks([*others, place]) >= _racks([*others, self._places[giver]])


def _racks(places: Iterable[Candidate]) -> int:
    return len({place.rack for place in places})
