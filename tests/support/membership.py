"""A group's pure state machine with a clock, tickets and a memory of every answer."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from millstream.engine.groups.classic.membership import Membership
from millstream.engine.groups.classic.roster import Ticket
from millstream.engine.groups.classic.vocabulary import (
    Answer,
    Effects,
    GroupState,
    Join,
    Joined,
    Leaver,
    Rules,
    Sync,
    Synced,
)
from millstream.errors import RequestError
from millstream.errors.groups import MemberIdRequired
from millstream.internal_topics.groups import Protocol

RANGE = (Protocol("range", b"r"),)
SESSION_MS = 10_000
REBALANCE_MS = 60_000

JOIN = Join(
    member_id="",
    new_member_id="",
    instance_id=None,
    client_id="app",
    client_host="10.0.0.1",
    session_timeout_ms=SESSION_MS,
    rebalance_timeout_ms=REBALANCE_MS,
    protocol_type="consumer",
    protocols=RANGE,
    needs_known_id=False,
    can_skip_assignment=True,
)
SYNC = Sync(
    member_id="",
    instance_id=None,
    generation=0,
    assignments={},
    protocol_type=None,
    protocol=None,
)


class Room:
    """Drives a membership; what it answered stands in `answers` by ticket."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.membership = Membership(rules or Rules())
        self.group = self.membership.group
        self.now_ms = 0
        self.tickets = 0
        self.answers: dict[Ticket, Answer] = {}
        self.saves = 0

    # -- asking --------------------------------------------------------------------------------

    def join(self, new_id: str = "", **changes: Any) -> Ticket:
        ticket = self._ticket()
        request = replace(JOIN, new_member_id=new_id, **changes)
        self._note(self.membership.join(ticket, request, self.now_ms))
        return ticket

    def sync(self, member_id: str, generation: int | None = None, **changes: Any) -> Ticket:
        ticket = self._ticket()
        at = self.group.generation if generation is None else generation
        request = replace(SYNC, member_id=member_id, generation=at, **changes)
        self._note(self.membership.sync(ticket, request, self.now_ms))
        return ticket

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance_id: str | None = None
    ) -> None:
        at = self.group.generation if generation is None else generation
        self.membership.heartbeat(member_id, instance_id, at, self.now_ms)

    def commit(
        self, member_id: str = "", generation: int = -1, instance_id: str | None = None
    ) -> None:
        self.membership.check_commit(member_id, instance_id, generation, self.now_ms)

    def leave(self, *leavers: Leaver | str) -> list[RequestError | None]:
        gone = [Leaver(leaver) if isinstance(leaver, str) else leaver for leaver in leavers]
        outcomes, effects = self.membership.leave(gone, self.now_ms)
        self._note(effects)
        return outcomes

    def abandon(self, ticket: Ticket) -> None:
        self._note(self.membership.abandon(ticket, self.now_ms))

    def pass_ms(self, span_ms: int) -> None:
        """Let time pass as the owner does: tick whenever the group wants to be woken."""
        end_ms = self.now_ms + span_ms
        while (wake_ms := self.group.wake_ms) is not None and wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, wake_ms)
            self._note(self.membership.tick(self.now_ms))
            assert self.group.wake_ms is None or self.group.wake_ms > self.now_ms
        self.now_ms = end_ms

    def fail_to_save(self) -> None:
        self._note(self.membership.unsaved(self.now_ms))

    def close(self, problem: RequestError) -> None:
        self._note(self.membership.close(problem))

    # -- looking -------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        return self.group.state

    def joined(self, ticket: Ticket) -> Joined:
        answer = self.answers[ticket]
        assert isinstance(answer, Joined), answer
        return answer

    def assignment(self, ticket: Ticket) -> bytes:
        answer = self.answers[ticket]
        assert isinstance(answer, Synced), answer
        return answer.assignment

    def refusal(self, ticket: Ticket) -> type[RequestError]:
        answer = self.answers[ticket]
        assert isinstance(answer, RequestError), answer
        return type(answer)

    # -- whole scenes --------------------------------------------------------------------------

    def stable(self, *member_ids: str, **changes: object) -> "Room":
        """These members, the first of them leading, each assigned its own name."""
        for member_id in member_ids:
            self.join(member_id, **changes)
        while self.state is GroupState.PREPARING:
            assert self.group.wake_ms is not None
            self.pass_ms(self.group.wake_ms - self.now_ms)
        for member_id in member_ids[1:]:
            self.sync(member_id)
        self.sync(member_ids[0], assignments={m: m.encode() for m in member_ids})
        assert self.state is GroupState.STABLE
        return self

    def known_id(self, new_id: str, **changes: object) -> Ticket:
        """Ask for an id, as KIP-394 wants it."""
        ticket = self.join(new_id, needs_known_id=True, **changes)
        assert self.refusal(ticket) is MemberIdRequired
        return ticket

    def _ticket(self) -> Ticket:
        self.tickets += 1
        return Ticket(self.tickets)

    def _note(self, effects: Effects) -> None:
        self.saves += effects.must_save
        for ticket, answer in effects.answers:
            assert ticket not in self.answers, "answered twice"
            self.answers[ticket] = answer


def own_names(*member_ids: str) -> Mapping[str, bytes]:
    return {member_id: member_id.encode() for member_id in member_ids}
