"""Placement of replicas: different machines, then racks, evenly; voters of the control log."""

from collections import Counter
from uuid import UUID

import msgspec
import pytest

from millstream.control.balance import Candidate, added, candidates, control_voters, spread
from millstream.control.commands import ChangeNode, InviteNode, RegisterNode
from millstream.control.state import State
from millstream.errors import InvalidReplication
from millstream.model import NodeId


def places(*racks: str, machines: int | None = None) -> list[Candidate]:
    return [
        Candidate(NodeId(at), f"machine-{at % (machines or len(racks))}", rack)
        for at, rack in enumerate(racks, start=1)
    ]


def cluster(count: int, machine: str = "") -> State:
    state = State()
    for node_id in range(1, count + 1):
        command = RegisterNode(
            node_id=node_id,
            directory_id=UUID(int=node_id),
            peer=("host", 1),
            listeners={"kafka": ("host", 1)},
            roles=("controller", "broker"),
            version="",
            joined_ms=0,
            machine=machine,
        )
        secret = bytes([node_id]) * 32
        state.nodes.apply(InviteNode(secret_hash=secret, made_ms=0, expires_ms=9), 0)
        state.nodes.apply(msgspec.structs.replace(command, invitation=secret), node_id)
    return state


def test_leaders_and_replicas_are_spread_evenly() -> None:
    placement = spread(places("", "", ""), 6, 3, first=1)

    assert Counter(replicas[0] for replicas in placement) == {1: 2, 2: 2, 3: 2}
    assert all(set(replicas) == {1, 2, 3} for replicas in placement)


def test_replicas_are_in_different_racks_if_there_are_enough() -> None:
    nodes = places("a", "a", "b", "b", "c", "c")
    racks = {place.node_id: place.rack for place in nodes}

    for replicas in spread(nodes, 12, 3, first=0):
        assert {racks[node] for node in replicas} == {"a", "b", "c"}


def test_no_machine_holds_two_replicas() -> None:
    nodes = places("", "", "", "", machines=2)
    machines = {place.node_id: place.machine for place in nodes}

    for replicas in spread(nodes, 8, 2, first=0):
        assert len({machines[node] for node in replicas}) == 2
    with pytest.raises(InvalidReplication, match="3 replicas asked for, there are 2 nodes"):
        spread(nodes, 1, 3, first=0)


@pytest.mark.parametrize(("count", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (7, 5)])
def test_the_control_log_has_an_odd_number_of_voters(count: int, voters: int) -> None:
    chosen = control_voters(cluster(count).nodes, [NodeId(1)], NodeId(1))

    assert len(chosen) == voters
    assert 1 in chosen


def test_a_voter_is_not_exchanged_without_need() -> None:
    current = [NodeId(2), NodeId(3), NodeId(4)]

    assert control_voters(cluster(4).nodes, current, NodeId(3)) == current


def test_nodes_of_one_machine_have_one_voter() -> None:
    assert control_voters(cluster(5, machine="laptop").nodes, [NodeId(1)], NodeId(1)) == [1]


def test_draining_nodes_take_no_replicas_and_do_not_vote() -> None:
    state = cluster(4)
    state.nodes.apply(ChangeNode(node_id=2, state="draining"), 9)

    assert [place.node_id for place in candidates(state.nodes, [])] == [1, 3, 4]
    assert 2 not in control_voters(state.nodes, [NodeId(1), NodeId(2)], NodeId(1))


@pytest.mark.parametrize("leader", [1, 2])
@pytest.mark.parametrize("count", [3, 5])
def test_a_drained_voter_keeps_its_vote_where_no_active_node_can_take_it(
    count: int, leader: int
) -> None:
    """Two of three voters would make one: the next node that stops would take the log along."""
    state = cluster(count)
    voters = [NodeId(node) for node in range(1, count + 1)]
    state.nodes.apply(ChangeNode(node_id=2, state="draining"), 9)

    assert control_voters(state.nodes, voters, NodeId(leader)) == voters
    # It does not become one while it is drained, and does not stay one when it leaves.
    others = [node for node in voters if node != 2]
    assert 2 not in control_voters(state.nodes, others, NodeId(1))
    state.nodes.apply(ChangeNode(node_id=2, state="leaving"), 10)
    assert 2 not in control_voters(state.nodes, voters, NodeId(1))


def test_the_vote_of_a_drained_node_is_not_given_to_a_node_that_is_down() -> None:
    state = cluster(4)
    state.nodes.apply(ChangeNode(node_id=2, state="draining"), 9)
    voters = [NodeId(1), NodeId(2), NodeId(3)]

    assert control_voters(state.nodes, voters, NodeId(1), down=[NodeId(4)]) == voters
    assert control_voters(state.nodes, voters, NodeId(1)) == [1, 3, 4]


def test_a_node_alone_takes_all_replicas() -> None:
    assert [place.node_id for place in candidates(State().nodes, [NodeId(7)])] == [7]


def test_added_replicas_are_on_other_machines_and_spread() -> None:
    nodes = cluster(4).nodes
    able = candidates(nodes, ())

    more = added(nodes, able, [(NodeId(1),)] * 12, 3)

    assert all(len(set(replicas)) == 2 and 1 not in replicas for replicas in more)
    held = Counter(node for replicas in more for node in replicas)
    assert set(held) == {2, 3, 4}
    assert max(held.values()) - min(held.values()) <= 4


def test_added_replicas_need_as_many_machines() -> None:
    nodes = cluster(4, machine="laptop").nodes

    with pytest.raises(InvalidReplication, match="need as many machines"):
        added(nodes, candidates(nodes, ()), [(NodeId(1),)], 3)
