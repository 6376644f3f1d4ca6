"""Counts votes and acknowledgements, and decides which changes of voters are allowed.

Does not send or store anything. Only voters count: an observer's acknowledgements are tracked like
a voter's, but commit nothing.
"""

from enum import Enum

from msgspec import Struct, field

from millstream.model import ORIGIN, Offset, Position, ReplicaId
from millstream.raft.messages import Fetch

Voters = frozenset[ReplicaId]

# The age of a parked fetch that no tick may answer: the next tick makes it 0.
NOT_COUNTED = -1


class Refusal(Enum):
    """Why a leader refuses a transfer or a change. All but the last two may pass with time."""

    NOT_LEADER = "this replica does not lead"
    NOT_ESTABLISHED = "the leader's own epoch is not committed yet"
    TRANSFERRING = "the leader is handing over to another replica"
    NOT_CAUGHT_UP = "the new voter does not follow closely enough"
    QUORUM_AT_RISK = "no majority of the new voters follows at the moment"
    NOT_ONE_CHANGE = "exactly one voter can be added or removed at a time"
    NOT_VOTER = "only a voter can lead"


def is_majority(nodes: Voters | set[ReplicaId], voters: Voters) -> bool:
    """Whether more than half of `voters` are among `nodes`."""
    return 2 * len(voters & nodes) > len(voters)


class Ballot(Struct, frozen=True):
    """The votes, or promises of votes, that one campaign has won."""

    voters: Voters
    won: set[ReplicaId] = field(default_factory=set)

    @property
    def is_won(self) -> bool:
        return is_majority(self.won, self.voters)


class Progress(Struct):
    """The progress of one follower, as its leader knows it."""

    acknowledged: Position = ORIGIN  # Durable there and contained here.
    silent_ticks: int = 0
    parked: Fetch | None = None  # Waits for news; the latest one only.
    parked_ticks: int = 0

    def park(self, fetch: Fetch) -> None:
        self.parked, self.parked_ticks = fetch, 0


class Tracker:
    """The followers of a leader: all other voters from the start, observers while they fetch."""

    def __init__(self, me: ReplicaId, voters: Voters) -> None:
        self.voters = voters
        self.followers = {node: Progress() for node in sorted(voters - {me})}
        self._me = me
        self._is_sole_voter = voters == {me}

    def heard(self, node: ReplicaId) -> Progress:
        progress = self.followers.setdefault(node, Progress())
        progress.silent_ticks = 0
        return progress

    def age(self, *, observer_ticks_max: int) -> None:
        """Count a tick, and drop observers that were silent for too long."""
        for node, progress in list(self.followers.items()):
            progress.silent_ticks += 1
            progress.parked_ticks += 1
            if node not in self.voters and progress.silent_ticks >= observer_ticks_max:
                del self.followers[node]

    def follows(self, node: ReplicaId, *, within_ticks: int) -> bool:
        progress = self.followers.get(node)
        return progress is not None and progress.silent_ticks < within_ticks

    def has_majority(self, voters: Voters, *, within_ticks: int) -> bool:
        """Whether a majority of `voters` was heard lately. This replica hears itself."""
        live = {node for node in voters if self.follows(node, within_ticks=within_ticks)}
        return is_majority(live | {self._me}, voters)

    def majority_position(self, own: Position) -> Position:
        """Return the greatest position that more than half of the voters hold.

        All of them lie in the leader's log, where positions are totally ordered.
        """
        if self._is_sole_voter:
            return own
        held = sorted(
            own if node == self._me else self.followers[node].acknowledged for node in self.voters
        )
        # With an even number of voters the lower middle is right: two of four are no majority.
        return held[(len(held) - 1) // 2]

    def position_held_by(self, count: int, own: Position) -> Position:
        """Return the greatest position that `count` voters hold; `ORIGIN` if there are fewer."""
        held = sorted(
            (
                own if node == self._me else self.followers[node].acknowledged
                for node in self.voters
            ),
            reverse=True,
        )
        return held[count - 1] if count <= len(held) else ORIGIN

    def in_step_count(self, committed: Offset, *, within_ticks: int) -> int:
        """Count the voters that hold all before `committed` and were heard lately."""
        return sum(
            node == self._me
            or (
                self.followers[node].acknowledged.end_offset >= committed
                and self.follows(node, within_ticks=within_ticks)
            )
            for node in self.voters
        )

    def lags(self, end_offset: Offset) -> dict[ReplicaId, Offset]:
        """Return how many offsets each follower has yet to acknowledge."""
        return {
            node: end_offset - progress.acknowledged.end_offset
            for node, progress in self.followers.items()
        }

    def refusal_of(
        self, voters: Voters, *, committed: Position, within_ticks: int
    ) -> Refusal | None:
        """Say why `voters` cannot take the place of those in force; None if they can.

        One at a time, so that majorities of both overlap. A newcomer must hold all that is
        committed, or the group would wait for it to catch up before it could commit again.
        """
        if len(voters ^ self.voters) != 1 or not voters:
            return Refusal.NOT_ONE_CHANGE
        for newcomer in voters - self.voters - {self._me}:
            if not self.follows(newcomer, within_ticks=within_ticks):
                return Refusal.NOT_CAUGHT_UP
            if self.followers[newcomer].acknowledged < committed:
                return Refusal.NOT_CAUGHT_UP
        if not self.has_majority(voters, within_ticks=within_ticks):
            return Refusal.QUORUM_AT_RISK
        return None
