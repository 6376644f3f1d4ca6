"""Places replicas on nodes: on different machines, then in different racks, evenly.

Pure: the proposer of a topic computes a placement, and the command carries it. A placement that
cannot be met is refused, never weakened.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from millstream.control.commands import Replicas
from millstream.control.nodes import CONTROLLER, Node, Nodes, NodeState, takes_replicas
from millstream.errors import InvalidReplication
from millstream.model import NodeId

REPLICAS_DEFAULT = 3


class Candidate(NamedTuple):
    """A node that takes replicas."""

    node_id: NodeId
    machine: str
    rack: str


def candidates(nodes: Nodes, founders: Iterable[NodeId]) -> list[Candidate]:
    """The nodes that take new replicas; `founders` where none was ever registered."""
    members = nodes.members()
    if not members:
        return [Candidate(node, f"node-{node}", "") for node in sorted(founders)]
    return [
        Candidate(node.node_id, node.machine_name, node.rack)
        for node in members
        if takes_replicas(node)
    ]


def machine_count(places: Sequence[Candidate]) -> int:
    return len({place.machine for place in places})


def spread(
    places: Sequence[Candidate], partitions: int, replicas: int, *, first: int
) -> tuple[Replicas, ...]:
    """Spread partitions over the nodes, beginning with the node at `first`, and their replicas
    over the nodes that follow."""
    machines = machine_count(places)
    if not 1 <= replicas <= machines:
        raise InvalidReplication(f"{replicas} replicas asked for, there are {machines} nodes")
    order = _alternating(places)
    return tuple(_place(order, first + at, replicas) for at in range(partitions))


def added(
    nodes: Nodes, places: Sequence[Candidate], placement: Sequence[Replicas], replicas: int
) -> tuple[Replicas, ...]:
    """The nodes for more replicas of each partition, so that it has as many as `replicas`."""
    order = _alternating(places)
    chosen = []
    for at, before in enumerate(placement):
        shift = at % max(1, len(order))
        current = [_candidate(nodes, node) for node in before]
        filled = _filled(current, order[shift:] + order[:shift], replicas)
        chosen.append(tuple(place.node_id for place in filled[len(before) :]))
    return tuple(chosen)


def relocated(
    nodes: Nodes,
    places: Sequence[Candidate],
    replicas: Replicas,
    gone: NodeId,
    held: Counter[NodeId],
) -> Replicas:
    """The nodes of a partition without `gone`: the node that takes its place has another machine
    than the others, another rack if that can be, and holds the fewest replicas.

    `held` counts the replicas of each node, and this one with them.
    """
    others = [_candidate(nodes, node) for node in replicas if node != gone]
    machines = {each.machine for each in others}
    racks = {each.rack for each in others}
    free = [each for each in places if each.machine not in machines and each.node_id != gone]
    if not free:
        raise InvalidReplication(
            f"{len(replicas)} replicas need as many machines, and none is free"
        )
    chosen = min(free, key=lambda each: (each.rack in racks, held[each.node_id], each.node_id))
    held[chosen.node_id] += 1
    return tuple(chosen.node_id if node == gone else node for node in replicas)


def _candidate(nodes: Nodes, node_id: NodeId) -> Candidate:
    node = nodes.get(node_id)
    if node is None:
        return Candidate(node_id, f"node-{node_id}", "")
    return Candidate(node_id, node.machine_name, node.rack)


def _alternating(places: Sequence[Candidate]) -> list[Candidate]:
    """The nodes in an order in which neighbours are in different racks, as far as that can be."""
    racks: dict[str, list[Candidate]] = {}
    for place in sorted(places):
        racks.setdefault(place.rack, []).append(place)
    longest = max(map(len, racks.values()), default=0)
    return [rack[at] for at in range(longest) for rack in racks.values() if at < len(rack)]


def _place(order: Sequence[Candidate], at: int, replicas: int) -> Replicas:
    """The first replica goes round the nodes; with each round the others begin one node later."""
    count = len(order)
    leader, others = order[at % count], [order[(at + step) % count] for step in range(1, count)]
    shift = at // count % max(1, count - 1)
    chosen = _filled([leader], others[shift:] + others[:shift], replicas)
    return tuple(place.node_id for place in chosen)


def _filled(
    chosen: Sequence[Candidate], waiting: Sequence[Candidate], replicas: int
) -> list[Candidate]:
    """Take more of the nodes that wait: of other machines, and of other racks where there are."""
    filled = list(chosen)
    while len(filled) < replicas:
        machines = {place.machine for place in filled}
        racks = {place.rack for place in filled}
        free = [place for place in waiting if place.machine not in machines]
        if not free:
            raise InvalidReplication(f"{replicas} replicas need as many machines")
        filled.append(min(free, key=lambda place: place.rack in racks))
    return filled


def control_voter_count(machines: int) -> int:
    """How many nodes vote on the control log."""
    return 5 if machines >= 5 else 3 if machines >= 3 else 1


def control_voters(
    nodes: Nodes,
    current: Sequence[NodeId],
    me: NodeId,
    *,
    down: Collection[NodeId] = (),
) -> list[NodeId]:
    """The nodes that are to vote on the control log, at most one a machine: one with fewer than
    three machines, three from three on, five from five on.

    This node and today's voters come first: a voter is not exchanged for another one without need.
    A node that is `down` does not become one. A voter that is drained gives its vote to an active
    node, and keeps it where there is none: the log would be left to fewer machines.
    """
    able = {
        node.node_id: node
        for node in nodes.members()
        if CONTROLLER in node.roles and node.listeners and _may_vote(node, current)
    }
    count = control_voter_count(len({node.machine_name for node in able.values()}))
    order = dict.fromkeys([me, *sorted(current), *sorted(able)])
    voters: dict[str, NodeId] = {}
    for state in (NodeState.ACTIVE, NodeState.DRAINING):
        for node_id in order:
            node = able.get(node_id)
            if node is None or node.state is not state:
                continue
            is_there = node_id in current or node_id not in down
            if is_there and node.machine_name not in voters and len(voters) < count:
                voters[node.machine_name] = node_id
    return sorted(voters.values())


def _may_vote(node: Node, current: Sequence[NodeId]) -> bool:
    is_drained_voter = node.state is NodeState.DRAINING and node.node_id in current
    return node.state is NodeState.ACTIVE or is_drained_voter
