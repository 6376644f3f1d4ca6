"""A plan evens out replicas and preferred leaders, and weakens no partition."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millstream.control.balance import Candidate, candidates
from millstream.control.commands import Replicas
from millstream.control.moves import Relocation, rebalancing
from millstream.control.state import State
from millstream.cooperative import all_at_once
from millstream.model import NodeId
from tests.unit.control.test_balance import cluster
from tests.unit.control.test_moves import placed


def plan(
    state: State, places: list[Candidate] | None = None, count: int = 1_000
) -> list[Relocation]:
    chosen = candidates(state.nodes, ()) if places is None else places
    return all_at_once(rebalancing(state.catalog, chosen, count_max=count))


def placement_after(state: State, moves: list[Relocation]) -> list[Replicas]:
    placement = list(state.catalog.find("orders").placement)
    for move in moves:
        placement[move.partition] = move.nodes
    return placement


def spans(counts: Counter[NodeId], nodes: int) -> int:
    values = [counts[NodeId(node)] for node in range(1, nodes + 1)]
    return max(values) - min(values)


def test_a_new_node_gets_its_share_of_replicas_and_leaders() -> None:
    state = cluster(4)
    placed(state, *[(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 4)

    placement = placement_after(state, plan(state))

    assert spans(Counter(node for replicas in placement for node in replicas), 4) <= 1
    assert spans(Counter(replicas[0] for replicas in placement), 4) <= 1


def test_leaders_are_exchanged_without_a_move() -> None:
    state = cluster(3)
    placed(state, *[(1, 2, 3)] * 6)

    moves = plan(state)

    assert all(set(move.nodes) == {1, 2, 3} for move in moves)
    assert Counter(r[0] for r in placement_after(state, moves)) == {1: 2, 2: 2, 3: 2}


def test_what_is_even_stays() -> None:
    state = cluster(3)
    placed(state, (1, 2, 3), (2, 3, 1), (3, 1, 2))

    assert plan(state) == []


def test_a_plan_has_no_more_partitions_than_were_asked_for() -> None:
    state = cluster(4)
    placed(state, *[(1, 2, 3)] * 9)

    assert len(plan(state, count=2)) == 2


def test_a_partition_stays_in_its_racks() -> None:
    state = cluster(4)
    placed(state, *[(1, 2)] * 8)
    racks = ["a", "b", "b", "b"]
    known = candidates(state.nodes, ())
    places = [place._replace(rack=rack) for place, rack in zip(known, racks, strict=True)]

    placement = placement_after(state, plan(state, places))

    # Node 1 is alone in its rack: every partition keeps its replica there.
    assert all(NodeId(1) in replicas for replicas in placement)
    others = Counter(node for replicas in placement for node in replicas if node != 1)
    assert max(others.values()) - min(others.values()) <= 1


@given(
    st.integers(3, 6).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(
                st.lists(
                    st.integers(1, count).map(NodeId), min_size=1, max_size=3, unique=True
                ).map(tuple),
                min_size=1,
                max_size=12,
            ),
        )
    )
)
def test_no_partition_loses_a_replica_and_a_second_plan_is_empty(
    drawn: tuple[int, list[tuple[NodeId, ...]]],
) -> None:
    count, placement = drawn
    state = cluster(count)
    placed(state, *placement)

    after = placement_after(state, plan(state))

    assert [len(replicas) for replicas in after] == [len(replicas) for replicas in placement]
    assert all(len(set(replicas)) == len(replicas) for replicas in after)
    again = cluster(count)
    placed(again, *after)
    assert plan(again) == []
