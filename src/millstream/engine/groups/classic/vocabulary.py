"""Values of a classic group's rebalance: states and transitions, requests, answers, effects.

Owns no rules: they are in `membership` and `generations`.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from msgspec import Struct, field

from millstream.engine.groups.classic.roster import Ticket
from millstream.errors import RequestError
from millstream.internal_topics.groups import Protocol


class GroupState(Enum):
    EMPTY = "empty"  # No members; there may be offsets.
    PREPARING = "preparing"  # Members join the next generation.
    COMPLETING = "completing"  # All have joined; the leader works out the assignments.
    STABLE = "stable"  # Every member has its assignment.
    DEAD = "dead"  # Deleted, or coordinated elsewhere.


class GroupEvent(Enum):
    REBALANCE = "rebalance"
    ALL_JOINED = "all joined"
    NONE_JOINED = "none joined"
    ASSIGNED = "assigned"
    CLOSED = "closed"


TRANSITIONS: dict[tuple[GroupState, GroupEvent], GroupState] = {
    (GroupState.EMPTY, GroupEvent.REBALANCE): GroupState.PREPARING,
    (GroupState.COMPLETING, GroupEvent.REBALANCE): GroupState.PREPARING,
    (GroupState.STABLE, GroupEvent.REBALANCE): GroupState.PREPARING,
    (GroupState.PREPARING, GroupEvent.ALL_JOINED): GroupState.COMPLETING,
    (GroupState.PREPARING, GroupEvent.NONE_JOINED): GroupState.EMPTY,
    (GroupState.COMPLETING, GroupEvent.ASSIGNED): GroupState.STABLE,
    (GroupState.EMPTY, GroupEvent.CLOSED): GroupState.DEAD,
    (GroupState.PREPARING, GroupEvent.CLOSED): GroupState.DEAD,
    (GroupState.COMPLETING, GroupEvent.CLOSED): GroupState.DEAD,
    (GroupState.STABLE, GroupEvent.CLOSED): GroupState.DEAD,
}


class Rules(Struct, frozen=True, kw_only=True):
    """Timeouts and limits of every group of a node."""

    initial_rebalance_delay_ms: int = 3_000
    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 30 * 60 * 1000
    new_member_join_ms_max: int = 5 * 60 * 1000
    members_max: int = 2_000


class Join(Struct, frozen=True, kw_only=True):
    """A join request. A member without an id is new, and gets `new_member_id`."""

    member_id: str
    new_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    needs_known_id: bool  # A new member must come again with the id it was given (KIP-394).
    can_skip_assignment: bool  # It understands that a leader may have nothing to do (KIP-814).


class Sync(Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    generation: int
    assignments: Mapping[str, bytes]  # By member id; from the leader, else ignored.
    protocol_type: str | None  # None: the member does not say.
    protocol: str | None


class Subscriber(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(Struct, frozen=True, kw_only=True):
    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[Subscriber, ...]  # Only for the leader.
    skips_assignment: bool = False


class Synced(NamedTuple):
    protocol_type: str
    protocol: str
    assignment: bytes


class Leaver(NamedTuple):
    """A member that leaves, by member id or by instance id alone."""

    member_id: str
    instance_id: str | None = None


Answer = Joined | Synced | RequestError


class Effects(Struct):
    """The effects of a step, in order: first write the group, then answer."""

    must_save: bool = False
    answers: list[tuple[Ticket, Answer]] = field(default_factory=list)
