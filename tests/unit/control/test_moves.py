"""Voters change one at a time towards the plan; a node is emptied onto the others, evenly."""

from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.control.balance import candidates
from millstream.control.commands import (
    ChangeNode,
    CreateTopic,
    FinishedMove,
    FinishMoves,
    MoveReplicas,
    Replicas,
)
from millstream.control.moves import evacuation, next_voters
from millstream.control.nodes import NodeState
from millstream.control.state import State
from millstream.errors import InvalidPlacement
from millstream.errors.cluster import NodeRefused
from millstream.model import NodeId, ReplicaId
from tests.unit.control.test_balance import cluster
from tests.unit.control.test_catalog import create

STEPS_MAX = 20


def ids(*numbers: int) -> frozenset[ReplicaId]:
    return frozenset(map(ReplicaId, numbers))


def changes(voters: frozenset[ReplicaId], planned: frozenset[ReplicaId]) -> list[set[int]]:
    """The voters after each change, with a leader that stays as long as it can."""
    seen: list[set[int]] = []
    leader = min(voters)
    for _ in range(STEPS_MAX):
        following = next_voters(voters, planned, me=leader, lost=frozenset())
        if following is None:
            if leader in planned:
                return seen
            leader = min(planned & voters)  # It has handed over.
            continue
        seen.append(set(following))
        voters = following
    raise AssertionError("it does not end")


@pytest.mark.parametrize(
    ("voters", "planned", "path"),
    [
        (ids(1), ids(1, 2, 3), [{1, 2}, {1, 2, 3}]),
        (ids(1, 2, 3), ids(1, 2, 4), [{1, 2, 3, 4}, {1, 2, 4}]),
        (ids(1), ids(2), [{1, 2}, {2}]),
        (ids(1, 2, 3), ids(4), [{1, 2, 3, 4}, {1, 3, 4}, {1, 4}, {4}]),
        (ids(1, 2, 3), ids(1), [{1, 3}, {1}]),
    ],
)
def test_newcomers_come_before_others_go(
    voters: frozenset[ReplicaId], planned: frozenset[ReplicaId], path: list[set[int]]
) -> None:
    assert changes(voters, planned) == path


def test_a_lost_voter_goes_before_another_comes() -> None:
    assert next_voters(ids(1, 2, 3), ids(1, 2, 4), me=ReplicaId(1), lost=ids(3)) == ids(1, 2)
    assert next_voters(ids(1, 2), ids(1, 2, 4), me=ReplicaId(1), lost=ids(3)) == ids(1, 2, 4)


VOTERS = st.frozensets(st.integers(1, 7).map(ReplicaId), min_size=1, max_size=5)


@given(VOTERS, VOTERS)
def test_every_plan_is_reached_by_changes_of_one_voter(
    voters: frozenset[ReplicaId], planned: frozenset[ReplicaId]
) -> None:
    path = changes(voters, planned)

    assert (path or [set(voters)])[-1] == planned
    steps: list[set[int]] = [set(voters), *path]
    for before, after in pairwise(steps):
        assert len(before ^ after) == 1
        assert len(after) >= min(len(voters), len(planned), 3)


# -- nodes that leave ------------------------------------------------------------------------------


def placed(state: State, *placement: tuple[int, ...]) -> CreateTopic:
    command = create("orders")
    nodes = tuple(tuple(map(NodeId, replicas)) for replicas in placement)
    command = msgspec.structs.replace(command, placement=nodes)
    state.catalog.apply(command, 9)
    return command


def test_a_node_is_emptied_onto_the_nodes_that_hold_least() -> None:
    state = cluster(5)
    placed(state, *[(1, 2, 3)] * 8)
    node = state.nodes.find(3)

    moves = list(evacuation(state.nodes, state.catalog, node, candidates(state.nodes, ())))

    assert Counter(move.nodes for move in moves) == {(1, 2, 4): 4, (1, 2, 5): 4}


def test_a_node_whose_replicas_fit_nowhere_cannot_leave() -> None:
    state = cluster(3)
    placed(state, (1, 2, 3))
    node = state.nodes.find(3)

    with pytest.raises(NodeRefused, match="node 3 cannot leave: orders-0: 3 replicas need"):
        list(evacuation(state.nodes, state.catalog, node, candidates(state.nodes, ())))


def test_a_node_with_replicas_is_not_removed_and_an_empty_one_is() -> None:
    state = cluster(4)
    placed(state, (1, 2, 3))

    for act in (state.check, lambda command: state.apply(20, command)):
        with pytest.raises(NodeRefused, match="node 3 holds 1 partitions"):
            act(ChangeNode(node_id=3, state=NodeState.REMOVED.value))
    state.apply(21, ChangeNode(node_id=4, state=NodeState.REMOVED.value))

    assert [node.node_id for node in state.nodes.members()] == [1, 2, 3]


def test_a_move_to_a_removed_node_is_refused_by_every_node_alike() -> None:
    state = cluster(4)
    topic = placed(state, (1, 2, 3))
    state.apply(20, ChangeNode(node_id=4, state=NodeState.REMOVED.value))
    command = MoveReplicas(
        name="orders", topic_id=topic.topic_id, targets={0: (NodeId(1), NodeId(2), NodeId(4))}
    )

    with pytest.raises(InvalidPlacement, match="node 4 is no node of this cluster"):
        state.apply(21, command)


def test_the_word_of_a_leader_that_missed_a_move_finishes_nothing() -> None:
    state = cluster(4)
    topic_id = placed(state, (1, 2, 3)).topic_id

    def move(offset: int, *nodes: int) -> FinishMoves:
        targets: dict[int, Replicas | None] = {0: tuple(map(NodeId, nodes))}
        state.apply(offset, MoveReplicas(name="orders", topic_id=topic_id, targets=targets))
        now = state.catalog.find("orders").assignment(0)
        return FinishMoves(
            name="orders",
            topic_id=topic_id,
            moves=(FinishedMove(partition=0, moved_offset=now.moved_offset, removed=now.leaving),),
        )

    finish = [move(20, 1, 2, 4), move(21, 1, 2, 3), move(22, 1, 2, 4)]

    for offset, stale in enumerate(finish[:2], start=30):
        with pytest.raises(InvalidPlacement, match="has changed since"):
            state.apply(offset, stale)
    state.apply(40, finish[2])

    assert state.catalog.find("orders").assigned(0) == (1, 2, 4)
