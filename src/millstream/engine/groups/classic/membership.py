"""Requests of a classic group's members: join, sync, heartbeat, leave, and their refusals.

Owns the rules of Kafka's classic groups about which request is allowed in which state;
`generations` owns the change of generations. Pure: time and new ids are passed in, and what is to
be done is returned as `Effects`.

Invariant: every join and sync comes with a ticket, and each ticket is answered exactly once, in
this step or in a later one, unless it is abandoned.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from millstream.engine.groups.classic.generations import Generations
from millstream.engine.groups.classic.roster import Member, Ticket
from millstream.engine.groups.classic.vocabulary import (
    Effects,
    GroupState,
    Join,
    Leaver,
    Rules,
    Sync,
)
from millstream.errors import RequestError
from millstream.errors.groups import (
    FencedInstance,
    GroupFull,
    InconsistentProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    StaleGeneration,
)
from millstream.internal_topics.groups import GroupValue


class Membership:
    def __init__(self, rules: Rules) -> None:
        self.group = Generations(rules)
        self._rules = rules

    @classmethod
    def restore(cls, value: GroupValue, rules: Rules, *, now_ms: int) -> "Membership":
        """The group as it was last saved."""
        membership = cls(rules)
        membership.group.restore(value, now_ms=now_ms)
        return membership

    # -- what members ask ------------------------------------------------------------------------

    def join(self, ticket: Ticket, request: Join, now_ms: int) -> Effects:
        self.group.begin(now_ms)
        try:
            self._join(ticket, request)
        except RequestError as refusal:
            self.group.answer(ticket, refusal)
        self.group.complete_if_all_joined()
        return self.group.effects

    def sync(self, ticket: Ticket, request: Sync, now_ms: int) -> Effects:
        self.group.begin(now_ms)
        try:
            self._sync(ticket, request)
        except RequestError as refusal:
            self.group.answer(ticket, refusal)
        return self.group.effects

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> None:
        """Renew the member's session; raise if it must join again."""
        self.group.begin(now_ms)
        self.group.renew(self._find(member_id, instance_id, generation))
        if self.group.state is GroupState.PREPARING:
            raise RebalanceInProgress

    def leave(
        self, leavers: Sequence[Leaver], now_ms: int
    ) -> tuple[list[RequestError | None], Effects]:
        """Take members out at once; an outcome for each of them."""
        self.group.begin(now_ms)
        count = len(self.group.roster)
        outcomes = [self._leave(leaver) for leaver in leavers]
        if len(self.group.roster) < count:
            self.group.rebalance()
        self.group.complete_if_all_joined()
        return outcomes, self.group.effects

    def abandon(self, ticket: Ticket, now_ms: int) -> Effects:
        """Drop the ticket of a connection that closed before its answer.

        The member cannot lead the next generation. It may come back within its session under its
        id; one that was in no generation yet goes at once, unless it is static.
        """
        self.group.begin(now_ms)
        for member in self.group.roster:
            if member.join == ticket:
                member.join = None
                self._lose_touch(member)
                break
            if member.sync == ticket:
                member.sync = None
                self.group.note_unsynced(member)
                self.group.renew(member)
                break
        return self.group.effects

    def _lose_touch(self, member: Member) -> None:
        if member.is_new and not member.is_static:
            self.group.remove(member)
            self.group.complete_if_all_joined()
        else:
            self.group.renew(member)

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> None:
        """Raise unless this member may commit offsets now; its session is renewed."""
        self.group.begin(now_ms)
        if generation < 0 and self.group.state is GroupState.EMPTY:
            return  # A consumer that assigns partitions itself, or an administrator.
        member = self._find(member_id, instance_id, generation)
        if self.group.state is GroupState.COMPLETING:
            raise RebalanceInProgress
        self.group.renew(member)

    def check_commit_in_transaction(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Raise if this is not the member it says it is. A producer sends it, which may say nothing
        of members and does not understand rebalances; its epoch keeps it out where that matters.
        """
        says_nothing = generation < 0 and not member_id and instance_id is None
        if says_nothing or (generation < 0 and self.group.state is GroupState.EMPTY):
            return
        self._find(member_id, instance_id, generation)

    # -- what the owner tells --------------------------------------------------------------------

    def tick(self, now_ms: int) -> Effects:
        """Process deadlines. The next call is due at `group.wake_ms`."""
        self.group.begin(now_ms)
        self.group.pass_time()
        return self.group.effects

    def unsaved(self, now_ms: int) -> Effects:
        """The write that the last step requested has failed."""
        self.group.begin(now_ms)
        if self.group.state is GroupState.STABLE:
            self.group.unassign()
        return self.group.effects

    def close(self, problem: RequestError) -> Effects:
        """Ask this object nothing more."""
        self.group.close(problem)
        return self.group.effects

    # -- joining ---------------------------------------------------------------------------------

    def _join(self, ticket: Ticket, request: Join) -> None:
        low, high = self._rules.session_timeout_ms_min, self._rules.session_timeout_ms_max
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeout(request.session_timeout_ms, low, high)
        if not request.member_id:
            self._join_new(ticket, request)
        elif request.member_id in self.group.pending:
            self._check_protocols(request, None)
            del self.group.pending[request.member_id]
            self._add(ticket, request, request.member_id)
        else:
            member = self.group.roster.find(request.member_id, request.instance_id)
            self._check_protocols(request, member)
            self._rejoin(ticket, request, member)

    def _join_new(self, ticket: Ticket, request: Join) -> None:
        known = self.group.roster.static(request.instance_id)
        self._check_protocols(request, known)
        if known is not None:
            self._replace(ticket, request, known)
            return
        if len(self.group.roster) + len(self.group.pending) >= self._rules.members_max:
            raise GroupFull(self._rules.members_max)
        if request.needs_known_id and request.instance_id is None:
            deadline_ms = self.group.now_ms + request.session_timeout_ms
            self.group.pending[request.new_member_id] = deadline_ms
            self.group.remind(deadline_ms)
            raise MemberIdRequired(request.new_member_id)
        self._add(ticket, request, request.new_member_id)

    def _add(self, ticket: Ticket, request: Join, member_id: str) -> None:
        if not self.group.roster:
            self.group.protocol_type = request.protocol_type
        self.group.add(
            Member(
                member_id=member_id,
                instance_id=request.instance_id,
                client_id=request.client_id,
                client_host=request.client_host,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                protocols=request.protocols,
                join=ticket,
            )
        )

    def _rejoin(self, ticket: Ticket, request: Join, member: Member) -> None:
        state = self.group.state
        is_up_to_date = state is GroupState.COMPLETING or (
            # A leader joins again in order to hand out the work anew.
            state is GroupState.STABLE and member.member_id != self.group.leader
        )
        if is_up_to_date and member.protocols == request.protocols:
            self.group.renew(member)
            self.group.answer(ticket, self.group.joined(member))
            return
        self._update(member, request)
        self._park_join(member, ticket)

    def _replace(self, ticket: Ticket, request: Join, member: Member) -> None:
        """Replace the old process of a static member by its new one."""
        old_id, was_leader = member.member_id, member.member_id == self.group.leader
        self.group.refuse_parked(member, FencedInstance(member.instance_id or ""))
        self.group.rename(member, request.new_member_id)
        self._update(member, request)
        self.group.renew(member)
        is_stable = self.group.state is GroupState.STABLE
        if not is_stable or self.group.roster.vote() != self.group.protocol:
            self._park_join(member, ticket)
            return
        self.group.effects.must_save = True
        joined = self.group.joined(member)
        if was_leader and request.can_skip_assignment:
            joined = replace(joined, skips_assignment=True)
        elif was_leader:
            # The answer names another leader, so the member computes no assignments in vain.
            joined = replace(joined, leader=old_id, members=())
        self.group.answer(ticket, joined)

    def _park_join(self, member: Member, ticket: Ticket) -> None:
        if member.join is not None:
            self.group.answer(member.join, RebalanceInProgress())
        member.join = ticket
        self.group.rebalance()

    def _update(self, member: Member, request: Join) -> None:
        self.group.roster.teach(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host

    def _check_protocols(self, request: Join, member: Member | None) -> None:
        roster, kind = self.group.roster, request.protocol_type
        if not kind or (roster and kind != self.group.protocol_type):
            raise InconsistentProtocol(
                f"protocol type {kind!r}, the group has {self.group.protocol_type!r}"
            )
        if not roster.shares(request.protocols, apart_from=member):
            names = [protocol.name for protocol in request.protocols]
            raise InconsistentProtocol(f"not all members speak any of {names}")

    # -- syncing and leaving ---------------------------------------------------------------------

    def _sync(self, ticket: Ticket, request: Sync) -> None:
        group = self.group
        member = self._find(request.member_id, request.instance_id, request.generation)
        for asked, ours in (
            (request.protocol_type, group.protocol_type),
            (request.protocol, group.protocol),
        ):
            if asked is not None and asked != ours:
                raise InconsistentProtocol(f"protocol {asked!r}, the generation has {ours!r}")
        if group.state is GroupState.PREPARING:
            raise RebalanceInProgress
        if member.sync is not None:
            group.answer_sync(member, RebalanceInProgress())
        member.sync = ticket
        if group.state is GroupState.STABLE:
            group.answer_sync(member, group.synced(member))
        elif member.member_id == group.leader:
            group.assign(dict(request.assignments))
        group.note_synced(member)

    def _leave(self, leaver: Leaver) -> RequestError | None:
        try:
            if leaver.instance_id is None and leaver.member_id in self.group.pending:
                del self.group.pending[leaver.member_id]
                return None
            # By the instance alone: an administrator takes a static member out.
            member = None if leaver.member_id else self.group.roster.static(leaver.instance_id)
            if member is None:
                member = self.group.roster.find(leaver.member_id, leaver.instance_id)
        except RequestError as refusal:
            return refusal
        self.group.remove(member)
        return None

    def _find(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        member = self.group.roster.find(member_id, instance_id)
        if generation != self.group.generation:
            raise StaleGeneration(self.group.generation, generation)
        return member
