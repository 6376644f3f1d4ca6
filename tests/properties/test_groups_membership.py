"""A group under members that come, go, crash, stall and come back, in any order.

The machine knows no rule of its own beyond what must hold whatever happens: no ticket is lost or
answered twice, no member waits longer than a rebalance may take, generations only grow, one member
leads each of them, and who is out is told so.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.engine.groups.classic.roster import Ticket
from millstream.engine.groups.classic.vocabulary import GroupState, Joined, Leaver
from millstream.errors import RequestError
from millstream.errors.groups import FencedInstance, MemberIdRequired, UnknownMember
from millstream.internal_topics.groups import Protocol
from tests.support.membership import Room
from tests.support.tiers import sized

TIMEOUTS_MS = [10_000, 30_000, 60_000]
PROTOCOLS = [
    (Protocol("range", b"1"),),
    (Protocol("range", b"2"),),
    (Protocol("sticky", b"3"), Protocol("range", b"3")),
    (Protocol("range", b"4"), Protocol("sticky", b"4")),
]

rebalance_timeouts = st.sampled_from(TIMEOUTS_MS)
protocol_lists = st.sampled_from(PROTOCOLS)
indexes = st.integers(0, 30)


class Members(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.room = Room()
        self.abandoned: set[Ticket] = set()
        self.ids: list[str] = []  # Every id that was ever given out.
        self.instances: dict[str, str] = {}  # By member id.
        self.asked_ms: dict[Ticket, int] = {}
        self.generation = 0
        self.leaders: dict[int, str] = {}
        self.seen: set[Ticket] = set()

    # -- what members do -----------------------------------------------------------------------

    @rule(protocols=protocol_lists, timeout_ms=rebalance_timeouts, needs_known_id=st.booleans())
    def a_member_comes(
        self, protocols: tuple[Protocol, ...], timeout_ms: int, needs_known_id: bool
    ) -> None:
        new_id = self._new_id()
        self._ask(
            self.room.join(
                new_id,
                protocols=protocols,
                rebalance_timeout_ms=timeout_ms,
                needs_known_id=needs_known_id,
            )
        )

    @rule(
        instance=st.sampled_from(["i", "j"]),
        protocols=protocol_lists,
        timeout_ms=rebalance_timeouts,
        can_skip=st.booleans(),
    )
    def a_static_member_starts(
        self, instance: str, protocols: tuple[Protocol, ...], timeout_ms: int, can_skip: bool
    ) -> None:
        new_id = self._new_id()
        self.instances[new_id] = instance
        self._ask(
            self.room.join(
                new_id,
                instance_id=instance,
                protocols=protocols,
                rebalance_timeout_ms=timeout_ms,
                can_skip_assignment=can_skip,
            )
        )

    @precondition(lambda self: self.ids)
    @rule(index=indexes, protocols=protocol_lists)
    def someone_joins_again(self, index: int, protocols: tuple[Protocol, ...]) -> None:
        member_id = self._pick(index)
        self._ask(
            self.room.join(
                member_id=member_id,
                instance_id=self.instances.get(member_id),
                protocols=protocols,
            )
        )

    @rule()
    def all_join_again(self) -> None:
        for member in list(self.room.group.roster):
            if member.member_id in self.room.group.roster:
                self._ask(
                    self.room.join(
                        member_id=member.member_id,
                        instance_id=member.instance_id,
                        protocols=member.protocols,
                    )
                )

    @precondition(lambda self: self.ids)
    @rule(index=indexes, is_late=st.booleans())
    def someone_syncs(self, index: int, is_late: bool) -> None:
        member_id = self._pick(index)
        generation = self.room.group.generation - is_late
        self._ask(
            self.room.sync(
                member_id,
                generation,
                instance_id=self.instances.get(member_id),
                assignments={m.member_id: b"part" for m in self.room.group.roster},
            )
        )

    @precondition(lambda self: self.room.group.leader is not None)
    @rule()
    def the_leader_syncs(self) -> None:
        leader = self.room.group.leader
        assert leader is not None
        assignments = {m.member_id: b"part" for m in self.room.group.roster}
        instance_id = self.instances.get(leader)
        self._ask(self.room.sync(leader, instance_id=instance_id, assignments=assignments))

    @precondition(lambda self: self.ids)
    @rule(index=indexes)
    def someone_beats(self, index: int) -> None:
        member_id = self._pick(index)
        is_member = member_id in self.room.group.roster
        try:
            self.room.heartbeat(member_id)
        except UnknownMember:
            assert not is_member
        except RequestError:
            assert is_member
        else:
            assert is_member

    @precondition(lambda self: self.ids)
    @rule(picked=st.lists(indexes, min_size=1, max_size=3))
    def some_leave(self, picked: list[int]) -> None:
        member_ids = [self._pick(index) for index in picked]
        leavers = [Leaver(m, self.instances.get(m)) for m in member_ids]
        outcomes = self.room.leave(*leavers)
        for leaver, outcome in zip(leavers, outcomes, strict=True):
            assert outcome is None or isinstance(outcome, UnknownMember | FencedInstance)
            assert leaver.member_id not in self.room.group.roster

    @rule(instance=st.sampled_from(["i", "j"]))
    def an_administrator_removes(self, instance: str) -> None:
        self.room.leave(Leaver("", instance))
        assert self.room.group.roster.static(instance) is None

    # -- what happens to them ------------------------------------------------------------------

    @precondition(lambda self: self._parked())
    @rule(index=indexes)
    def a_connection_breaks(self, index: int) -> None:
        parked = sorted(self._parked())
        ticket = parked[index % len(parked)]
        self.abandoned.add(ticket)
        self.room.abandon(ticket)

    @rule(span_ms=st.sampled_from([1, 500, 2_999, 3_000, 9_999, 10_000, 61_000]))
    def time_passes(self, span_ms: int) -> None:
        self.room.pass_ms(span_ms)

    @precondition(lambda self: self.room.state is GroupState.STABLE)
    @rule()
    def the_log_refuses(self) -> None:
        self.room.fail_to_save()

    # -- what must hold ------------------------------------------------------------------------

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.room.group.generation >= self.generation
        self.generation = self.room.group.generation

    @invariant()
    def one_member_leads_a_generation(self) -> None:
        for ticket in self.room.answers.keys() - self.seen:
            answer = self.room.answers[ticket]
            if isinstance(answer, Joined) and answer.members:
                # A static member that was replaced leads on under its new id.
                leader = self.instances.get(answer.leader, answer.leader)
                assert answer.member_id == answer.leader
                assert self.leaders.setdefault(answer.generation, leader) == leader
            if isinstance(answer, MemberIdRequired):
                assert answer.member_id in self.ids
        self.seen = set(self.room.answers)
        if self.room.state is GroupState.COMPLETING:
            assert self.generation in self.leaders, "the leader is not known"

    @invariant()
    def no_ticket_is_lost(self) -> None:
        assert not self.abandoned & self.room.answers.keys()
        settled = self.room.answers.keys() | self.abandoned
        assert self._parked() == set(range(1, self.room.tickets + 1)) - settled

    @invariant()
    def no_member_waits_longer_than_a_rebalance(self) -> None:
        for ticket, asked_ms in self.asked_ms.items():
            if ticket not in self.room.answers and ticket not in self.abandoned:
                assert self.room.now_ms - asked_ms <= max(TIMEOUTS_MS)

    @invariant()
    def the_state_tells_who_may_wait(self) -> None:
        group = self.room.group
        members = list(group.roster)
        match group.state:
            case GroupState.EMPTY:
                assert not members
            case GroupState.PREPARING:
                assert all(member.sync is None for member in members)
            case GroupState.COMPLETING:
                assert all(member.join is None for member in members)
                assert group.leader in group.unsynced
            case GroupState.STABLE:
                assert all(m.join is None and m.sync is None for m in members)
                assert members
        if members:
            assert group.leader in group.roster  # type: ignore[operator]
            assert group.roster.vote()  # All still speak one protocol.
            assert group.wake_ms is not None

    def teardown(self) -> None:
        self.room.pass_ms(100 * max(TIMEOUTS_MS))
        assert self.room.state is GroupState.EMPTY
        assert len(self.room.answers) + len(self.abandoned) == self.room.tickets
        assert self.room.group.wake_ms is None

    # -- parts ---------------------------------------------------------------------------------

    def _parked(self) -> set[Ticket]:
        return {
            ticket
            for member in self.room.group.roster
            for ticket in (member.join, member.sync)
            if ticket is not None
        }

    def _new_id(self) -> str:
        self.ids.append(f"m{len(self.ids)}")
        return self.ids[-1]

    def _pick(self, index: int) -> str:
        """Recent ids more often than those long gone."""
        return self.ids[-1 - index % min(len(self.ids), 6)]

    def _ask(self, ticket: Ticket) -> None:
        self.asked_ms[ticket] = self.room.now_ms


Members.TestCase.settings = settings(deadline=None, max_examples=sized(150), stateful_step_count=50)
TestMembers = Members.TestCase
