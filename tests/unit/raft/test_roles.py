"""The table of roles, walked pair by pair."""

from itertools import product

import pytest

from millstream.raft.roles import TRANSITIONS, Event, Role, next_role

# What must not happen, and the reason; with the table this is every pair there is.
IMPOSSIBLE = {
    **{
        (Role.FOLLOWER, event): "it asked for nothing"
        for event in (Event.POLL_WON, Event.VOTE_WON, Event.VOTERS_CHANGE)
    },
    **{
        (role, event): "only a leader can lose that"
        for role in Role
        if role is not Role.LEADER
        for event in (Event.QUORUM_LOST, Event.REMOVED)
    },
    (Role.PROSPECT, Event.VOTE_WON): "no vote was asked for yet",
    (Role.PROSPECT, Event.VOTERS_CHANGE): "only a leader changes voters",
    (Role.CANDIDATE, Event.POLL_WON): "the poll is over",
    (Role.CANDIDATE, Event.VOTE_GIVEN): "its vote of this epoch is its own",
    (Role.CANDIDATE, Event.TOLD_TO_LEAD): "it tries already",
    (Role.CANDIDATE, Event.VOTERS_CHANGE): "only a leader changes voters",
    (Role.LEADER, Event.SILENCE): "it does not wait for a leader",
    (Role.LEADER, Event.POLL_WON): "it has won",
    (Role.LEADER, Event.VOTE_WON): "it has won",
    (Role.LEADER, Event.VOTE_GIVEN): "its vote of this epoch is its own",
    (Role.LEADER, Event.LEADER_HEARD): "two leaders in one epoch",
    (Role.LEADER, Event.TOLD_TO_LEAD): "it leads",
}


@pytest.mark.parametrize(("role", "event"), list(product(Role, Event)))
def test_every_pair_of_role_and_event_is_decided(role: Role, event: Event) -> None:
    if (role, event) in IMPOSSIBLE:
        with pytest.raises(AssertionError, match=event.value):
            next_role(role, event)
    else:
        assert next_role(role, event) is TRANSITIONS[role, event]


def test_no_pair_is_both_possible_and_impossible() -> None:
    assert not IMPOSSIBLE.keys() & TRANSITIONS.keys()


def test_only_votes_make_a_leader() -> None:
    ways = [pair for pair, role in TRANSITIONS.items() if role is Role.LEADER]

    assert ways == [(Role.CANDIDATE, Event.VOTE_WON)]


def test_every_role_ends_in_a_higher_epoch() -> None:
    assert all(next_role(role, Event.EPOCH_PASSED) is Role.FOLLOWER for role in Role)
