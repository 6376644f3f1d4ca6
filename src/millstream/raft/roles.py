"""The roles of a replica, and the table of what moves it from one to another.

Owns the table only; `core` decides which event it was. The right to vote is not a role but a fact
of the log: a replica that its boundaries do not name is an observer, and only follows.
"""

from enum import Enum


class Role(Enum):
    FOLLOWER = "follower"  # Fetches from a leader, or waits for one.
    PROSPECT = "prospect"  # Asks whether it would be elected: Raft's pre-vote.
    CANDIDATE = "candidate"  # Has entered a new epoch and voted for itself.
    LEADER = "leader"  # Has opened its epoch in the log.


class Event(Enum):
    SILENCE = "no leader heard for an election timeout"
    POLL_WON = "a majority would vote for this replica"
    VOTE_WON = "a majority voted for this replica"
    VOTE_GIVEN = "voted for another replica"
    LEADER_HEARD = "the leader of this epoch was heard"
    EPOCH_PASSED = "a replica is in a higher epoch"
    TOLD_TO_LEAD = "the leader hands over"
    VOTERS_CHANGE = "the leader opens the next epoch with other voters"
    QUORUM_LOST = "no majority heard for an election timeout"
    REMOVED = "an epoch without this replica as a voter is committed"


TRANSITIONS: dict[tuple[Role, Event], Role] = {
    (Role.FOLLOWER, Event.SILENCE): Role.PROSPECT,
    (Role.FOLLOWER, Event.VOTE_GIVEN): Role.FOLLOWER,
    (Role.FOLLOWER, Event.LEADER_HEARD): Role.FOLLOWER,
    (Role.FOLLOWER, Event.EPOCH_PASSED): Role.FOLLOWER,
    (Role.FOLLOWER, Event.TOLD_TO_LEAD): Role.CANDIDATE,
    (Role.PROSPECT, Event.SILENCE): Role.PROSPECT,
    (Role.PROSPECT, Event.POLL_WON): Role.CANDIDATE,
    (Role.PROSPECT, Event.VOTE_GIVEN): Role.FOLLOWER,
    (Role.PROSPECT, Event.LEADER_HEARD): Role.FOLLOWER,
    (Role.PROSPECT, Event.EPOCH_PASSED): Role.FOLLOWER,
    (Role.PROSPECT, Event.TOLD_TO_LEAD): Role.CANDIDATE,
    (Role.CANDIDATE, Event.SILENCE): Role.PROSPECT,
    (Role.CANDIDATE, Event.VOTE_WON): Role.LEADER,
    (Role.CANDIDATE, Event.LEADER_HEARD): Role.FOLLOWER,
    (Role.CANDIDATE, Event.EPOCH_PASSED): Role.FOLLOWER,
    (Role.LEADER, Event.EPOCH_PASSED): Role.FOLLOWER,
    (Role.LEADER, Event.VOTERS_CHANGE): Role.CANDIDATE,
    (Role.LEADER, Event.QUORUM_LOST): Role.FOLLOWER,
    (Role.LEADER, Event.REMOVED): Role.FOLLOWER,
}


def next_role(role: Role, event: Event) -> Role:
    """The next role. A pair that is not in the table cannot happen, such as two leaders in one
    epoch."""
    following = TRANSITIONS.get((role, event))
    assert following is not None, f"a {role.value} cannot have: {event.value}"
    return following
