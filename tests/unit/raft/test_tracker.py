"""Counting over voters."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model import ORIGIN
from millstream.raft.tracker import Ballot, Refusal, Tracker, is_majority
from tests.unit.raft.replicas import FOUR, ONE, THREE, TWO, at, nodes


@pytest.mark.parametrize(
    ("for_it", "voters", "is_enough"),
    [
        ((1,), (1,), True),
        ((1,), (1, 2), False),
        ((1, 2), (1, 2), True),
        ((1, 2), (1, 2, 3), True),
        ((1, 2), (1, 2, 3, 4), False),
        ((1, 2, 9), (1, 2, 3, 4), False),
        ((8, 9), (1, 2, 3), False),
    ],
)
def test_more_than_half_of_the_voters_are_a_majority(
    for_it: tuple[int, ...], voters: tuple[int, ...], is_enough: bool
) -> None:
    assert is_majority(nodes(*for_it), nodes(*voters)) is is_enough


def test_a_vote_of_somebody_who_is_no_voter_does_not_count() -> None:
    ballot = Ballot(nodes(1, 2, 3), {ONE})

    ballot.won.add(FOUR)

    assert not ballot.is_won


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=7))
def test_the_majority_position_is_the_greatest_that_more_than_half_hold(
    held: list[tuple[int, int]],
) -> None:
    voters = nodes(*range(1, len(held) + 1))
    tracker = Tracker(ONE, voters)
    for node, position in zip(sorted(voters - {ONE}), held[1:], strict=True):
        tracker.followers[node].acknowledged = at(*position)

    majority = tracker.majority_position(at(*held[0]))

    enough = [p for p in held if 2 * sum(other >= p for other in held) > len(held)]
    assert majority == max(enough)


def test_an_observer_does_not_move_the_majority_position() -> None:
    tracker = Tracker(ONE, nodes(1, 2, 3))
    tracker.heard(FOUR).acknowledged = at(1, 9)

    assert tracker.majority_position(at(1, 9)) == ORIGIN


def test_a_leader_that_is_no_voter_does_not_count_itself() -> None:
    tracker = Tracker(ONE, nodes(2, 3))
    tracker.heard(TWO).acknowledged = at(1, 5)

    assert tracker.majority_position(at(1, 9)) == ORIGIN
    tracker.heard(THREE).acknowledged = at(1, 4)
    assert tracker.majority_position(at(1, 9)) == at(1, 4)


def test_an_observer_that_has_gone_is_forgotten_and_a_voter_is_not() -> None:
    tracker = Tracker(ONE, nodes(1, 2))
    tracker.heard(FOUR)

    for _ in range(5):
        tracker.age(observer_ticks_max=5)

    assert set(tracker.followers) == {TWO}


def _followed_by(*live: int) -> Tracker:
    """Node 1 leads 1, 2, 3 at (2, 9); these nodes have everything."""
    tracker = Tracker(ONE, nodes(1, 2, 3))
    for _ in range(10):
        tracker.age(observer_ticks_max=100)
    for node in nodes(*live):
        tracker.heard(node).acknowledged = at(2, 9)
    return tracker


@pytest.mark.parametrize(
    ("live", "voters", "refusal"),
    [
        ((2, 3, 4), (1, 2, 3, 4), None),
        ((2, 3), (1, 2), None),
        ((2,), (1, 2), None),
        ((2, 3), (2, 3), None),
        ((2, 3, 4), (1, 2, 3), Refusal.NOT_ONE_CHANGE),
        ((2, 3, 4), (1, 2, 4), Refusal.NOT_ONE_CHANGE),
        ((2, 3, 4), (1,), Refusal.NOT_ONE_CHANGE),
        ((2, 3), (1, 2, 3, 4), Refusal.NOT_CAUGHT_UP),
        ((3,), (1, 2), Refusal.QUORUM_AT_RISK),
    ],
)
def test_one_voter_at_a_time_who_is_there_and_keeps_a_majority(
    live: tuple[int, ...], voters: tuple[int, ...], refusal: Refusal | None
) -> None:
    tracker = _followed_by(*live)

    assert tracker.refusal_of(nodes(*voters), committed=at(2, 9), within_ticks=10) is refusal


def test_a_newcomer_that_lacks_something_committed_is_refused() -> None:
    tracker = _followed_by(2, 3, 4)
    tracker.followers[FOUR].acknowledged = at(1, 9)

    refusal = tracker.refusal_of(nodes(1, 2, 3, 4), committed=at(2, 9), within_ticks=10)

    assert refusal is Refusal.NOT_CAUGHT_UP


def test_the_last_voter_cannot_be_removed() -> None:
    tracker = Tracker(ONE, nodes(1))

    refusal = tracker.refusal_of(nodes(), committed=ORIGIN, within_ticks=10)

    assert refusal is Refusal.NOT_ONE_CHANGE
