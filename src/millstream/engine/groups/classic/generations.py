"""The states of a classic group: rebalance, join, sync, stable, and their deadlines.

Owns the state of one group, its deadlines, and the change from one generation to the next.
`membership` decides which request is allowed in which state, and drives this module. Pure: a step
begins with `begin` and leaves what is to be done in `effects`.
"""

from millstream.engine.groups.classic.roster import Member, Roster, Ticket, restored
from millstream.engine.groups.classic.vocabulary import (
    TRANSITIONS,
    Answer,
    Effects,
    GroupEvent,
    GroupState,
    Joined,
    Rules,
    Subscriber,
    Synced,
)
from millstream.errors import RequestError
from millstream.errors.groups import RebalanceInProgress, UnknownMember
from millstream.internal_topics.groups import GroupValue


class Generations:
    def __init__(self, rules: Rules) -> None:
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.roster = Roster()
        self.pending: dict[str, int] = {}  # Ids given out (KIP-394), and until when they count.
        self.unsynced: set[str] = set()  # Members that did not sync yet, while a deadline runs.
        self.wake_ms: int | None = None  # When time must pass next; never later than needed.
        self.now_ms = 0
        self.effects = Effects()
        self._rules = rules
        self._join_deadline_ms = 0  # Counts while preparing.
        self._sync_deadline_ms: int | None = None
        self._is_initial = False  # The group was empty: wait a little for more to come.
        self._has_newcomers = False  # Someone came since that wait was last extended.
        self._initial_left_ms = 0

    def restore(self, value: GroupValue, *, now_ms: int) -> None:
        """Restore the saved state. Every member gets a whole session timeout to send a request."""
        self.begin(now_ms)
        self.protocol_type = value.protocol_type
        self.generation = value.generation
        self.protocol = value.protocol
        self.leader = value.leader
        for stored in value.members:
            member = restored(stored)
            self.roster.add(member)
            self.renew(member)
        if value.members:
            self.state = GroupState.STABLE

    def value(self, *, changed_ms: int) -> GroupValue:
        """The value to write."""
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            changed_ms=changed_ms,
            members=tuple(member.value() for member in self.roster),
        )

    def begin(self, now_ms: int) -> None:
        assert self.state is not GroupState.DEAD, "a dead group was asked"
        self.now_ms = now_ms
        self.effects = Effects()

    # -- members come and go ---------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Take in a new member, which waits for the next generation."""
        # A connection may break without a word, so the wait is bounded.
        member.deadline_ms = self.now_ms + self._rules.new_member_join_ms_max
        self.remind(member.deadline_ms)
        self.roster.add(member)
        if self.leader is None:
            self.leader = member.member_id
        if self.state is GroupState.PREPARING:
            self._has_newcomers = True
        self.rebalance()

    def remove(self, member: Member) -> None:
        self.refuse_parked(member, UnknownMember(member.member_id))
        self.roster.remove(member)
        if self.leader == member.member_id:
            self.leader = next((other.member_id for other in self.roster), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member the id of its new process; its assignment and session stay."""
        old_id = member.member_id
        self.roster.rename(member, member_id)
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(member_id)
        if self.leader == old_id:
            self.leader = member_id

    def renew(self, member: Member) -> None:
        """Restart the session timeout of a member that sent a request."""
        member.deadline_ms = self.now_ms + member.session_timeout_ms
        self.remind(member.deadline_ms)

    # -- from generation to generation -----------------------------------------------------------

    def rebalance(self) -> None:
        """Start a rebalance, unless one is under way."""
        if self.state is GroupState.PREPARING:
            return
        for member in self.roster:
            if member.sync is not None:
                self.answer_sync(member, RebalanceInProgress())
        self._sync_deadline_ms = None
        self._is_initial = self.state is GroupState.EMPTY
        self._has_newcomers = False
        self._move(GroupEvent.REBALANCE)
        longest_ms = self.roster.rebalance_timeout_ms
        wait_ms = self._rules.initial_rebalance_delay_ms if self._is_initial else longest_ms
        self._initial_left_ms = max(0, longest_ms - wait_ms)
        self._wait_for_joins(wait_ms)

    def complete_if_all_joined(self) -> None:
        is_waiting = self._is_initial and self._rules.initial_rebalance_delay_ms > 0
        if self.state is not GroupState.PREPARING or is_waiting or self.pending:
            return
        if all(member.join is not None for member in self.roster):
            self._complete()

    def assign(self, assignments: dict[str, bytes]) -> None:
        """Take the leader's assignments; a member without one gets an empty assignment."""
        self._move(GroupEvent.ASSIGNED)
        self.effects.must_save = True
        for member in self.roster:
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync is not None:
                self.answer_sync(member, self.synced(member))

    def note_synced(self, member: Member) -> None:
        self.unsynced.discard(member.member_id)
        if not self.unsynced and self.state is GroupState.STABLE:
            self._sync_deadline_ms = None

    def note_unsynced(self, member: Member) -> None:
        """Count a member that disconnected before its assignment as not synced."""
        if self._sync_deadline_ms is not None:
            self.unsynced.add(member.member_id)

    def unassign(self) -> None:
        """Discard assignments that could not be saved."""
        for member in self.roster:
            member.assignment = b""
        self.rebalance()

    def pass_time(self) -> None:
        """Process the deadlines that are over; extra calls change nothing."""
        self._expire()
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= self.now_ms:
            self._remove_all([m for m in self.roster if m.member_id in self.unsynced])
        # Second: if the last member was removed just now, there is none to wait for.
        if self.state is GroupState.PREPARING and self._join_deadline_ms <= self.now_ms:
            self._end_joining()
        self._set_wake()

    def close(self, problem: RequestError) -> None:
        """Close the group; every waiting member is answered with `problem`."""
        self.effects = Effects()
        for member in self.roster:
            self.refuse_parked(member, problem)
        self._move(GroupEvent.CLOSED)
        self.wake_ms = None

    def _end_joining(self) -> None:
        """End the join phase; the initial delay is extended while new members keep joining."""
        if self._is_initial and self._has_newcomers and self._initial_left_ms > 0:
            wait_ms = min(self._rules.initial_rebalance_delay_ms, self._initial_left_ms)
            self._initial_left_ms -= wait_ms
            self._has_newcomers = False
            self._wait_for_joins(wait_ms)
        else:
            self._complete()

    def _complete(self) -> None:
        """Start the next generation with the members that joined, and absent static ones."""
        for member in [m for m in self.roster if m.join is None and not m.is_static]:
            self.remove(member)
        joined = [member.member_id for member in self.roster if member.join is not None]
        if joined:
            self._open_generation(self.leader if self.leader in joined else joined[0])
        elif self.roster:
            # Only absent static members: none could lead. Their session timeouts decide.
            self._is_initial = False
            self._wait_for_joins(self.roster.rebalance_timeout_ms)
        else:
            self.generation += 1
            self.protocol = None
            self.effects.must_save = True
            self._move(GroupEvent.NONE_JOINED)

    def _open_generation(self, leader: str) -> None:
        self.generation += 1
        self.leader = leader
        self.protocol = self.roster.vote()
        self._move(GroupEvent.ALL_JOINED)
        self.unsynced = {member.member_id for member in self.roster}
        self._sync_deadline_ms = self.now_ms + self.roster.rebalance_timeout_ms
        self.remind(self._sync_deadline_ms)
        for member in self.roster:
            member.is_new = False
            ticket, member.join = member.join, None
            self.renew(member)
            if ticket is not None:
                self.answer(ticket, self.joined(member))

    def _wait_for_joins(self, wait_ms: int) -> None:
        self._join_deadline_ms = self.now_ms + wait_ms
        self.remind(self._join_deadline_ms)

    def _expire(self) -> None:
        for member_id in [m for m, until_ms in self.pending.items() if until_ms <= self.now_ms]:
            del self.pending[member_id]
        self._remove_all([m for m in self.roster if m.expires and m.deadline_ms <= self.now_ms])
        self.complete_if_all_joined()

    def _remove_all(self, members: list[Member]) -> None:
        for member in members:
            self.remove(member)
        if members:
            self.rebalance()
            self.complete_if_all_joined()

    def _move(self, event: GroupEvent) -> None:
        self.state = TRANSITIONS[self.state, event]

    # -- deadlines -------------------------------------------------------------------------------

    def remind(self, deadline_ms: int) -> None:
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms

    def _set_wake(self) -> None:
        self.wake_ms = min(self.pending.values(), default=None)
        for member in self.roster:
            if member.expires:
                self.remind(member.deadline_ms)
        if self.state is GroupState.PREPARING:
            self.remind(self._join_deadline_ms)
        if self._sync_deadline_ms is not None:
            self.remind(self._sync_deadline_ms)

    # -- answers ---------------------------------------------------------------------------------

    def answer(self, ticket: Ticket, answer: Answer) -> None:
        self.effects.answers.append((ticket, answer))

    def answer_sync(self, member: Member, answer: Answer) -> None:
        assert member.sync is not None
        self.answer(member.sync, answer)
        member.sync = None
        self.renew(member)

    def refuse_parked(self, member: Member, problem: RequestError) -> None:
        for ticket in (member.join, member.sync):
            if ticket is not None:
                self.answer(ticket, problem)
        member.join = member.sync = None

    def joined(self, member: Member) -> Joined:
        assert self.protocol is not None
        assert self.leader is not None
        members: tuple[Subscriber, ...] = ()
        if member.member_id == self.leader:
            members = tuple(
                Subscriber(m.member_id, m.instance_id, m.metadata(self.protocol))
                for m in self.roster
            )
        return Joined(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type or "",
            protocol=self.protocol,
            leader=self.leader,
            members=members,
        )

    def synced(self, member: Member) -> Synced:
        assert self.protocol is not None
        return Synced(self.protocol_type or "", self.protocol, member.assignment)
