"""Replicas of a partition: an id for each placement, moves that end, are cancelled or overtaken."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.control.assignments import (
    Assignment,
    cancelled,
    finished,
    founded,
    moved,
    nodes_of,
    raised,
    replica_on,
)
from millstream.model import NodeId, ReplicaId, replica_id


def nodes(*ids: int) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, ids))


def replica(node: int, incarnation: int = 0) -> ReplicaId:
    return replica_id(NodeId(node), incarnation)


def test_newcomers_have_the_offset_of_the_move_and_the_others_stay_as_they_are() -> None:
    after = moved(founded(nodes(1, 2, 3)), nodes(4, 2, 1), 7)

    assert after.replicas == (
        replica_id(NodeId(4), 7),
        replica_id(NodeId(2)),
        replica_id(NodeId(1)),
    )
    assert after.leaving == (replica(3),)
    assert (after.nodes, after.adding, after.is_moving) == ((4, 2, 1), (4,), True)
    assert after.founders == founded(nodes(1, 2, 3)).founders
    assert not finished(after).is_moving


def test_another_order_is_no_move() -> None:
    after = moved(founded(nodes(1, 2, 3)), nodes(3, 1, 2), 7)

    assert (after.nodes, after.is_moving) == ((3, 1, 2), False)


def test_a_cancelled_move_takes_back_the_same_replicas_also_after_a_second_one() -> None:
    before = founded(nodes(1, 2, 3))

    back = cancelled(moved(moved(before, nodes(4, 2, 3), 7), nodes(5, 6, 3), 8), 9)

    assert set(back.replicas) == set(before.replicas)
    assert set(nodes_of(back.leaving)) == {4, 5, 6}
    assert (back.is_moving, back.adding) == (True, ())


def test_a_replica_that_was_given_up_comes_back_as_another_one() -> None:
    away = finished(moved(founded(nodes(1, 2)), nodes(1), 7))

    back = moved(away, nodes(1, 2), 9)

    assert replica_on(NodeId(2), away) is None
    assert replica_on(NodeId(2), back) == replica(2, 9)


def test_a_raised_partition_keeps_a_replica_that_was_leaving() -> None:
    after = raised(moved(founded(nodes(1, 2)), nodes(1), 7), nodes(2, 3), 8)

    assert after.replicas == (
        replica_id(NodeId(1)),
        replica_id(NodeId(2)),
        replica_id(NodeId(3), 8),
    )
    assert after.leaving == ()


TARGETS = st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True)
STEPS = st.lists(st.one_of(TARGETS, st.just("cancel"), st.just("finish")), max_size=12)


@given(STEPS)
def test_a_node_has_one_replica_and_what_was_given_up_never_comes_back(
    steps: list[list[int] | str],
) -> None:
    assignment: Assignment = founded(nodes(1, 2, 3))
    given_up: set[int] = set()
    for offset, step in enumerate(steps, start=1):
        if isinstance(step, list):
            assignment = moved(assignment, nodes(*step), offset)
        elif step == "cancel" and assignment.is_moving:
            assignment = cancelled(assignment, offset)
        elif step == "finish" and assignment.is_moving:
            given_up |= set(assignment.leaving)
            assignment = finished(assignment)

        assert len(set(nodes_of(assignment.all))) == len(assignment.all)
        assert set(assignment.before) <= set(assignment.all)
        assert not given_up & set(assignment.all)
        assert bool(assignment.leaving) <= assignment.is_moving
