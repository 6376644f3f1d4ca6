"""The owner's side of members on other nodes: sends them records, carries out what they do.

A member elsewhere is a member like others, whose `send` is a message. It is sent at most
`RECORDS_AHEAD_MAX` records and `BYTES_AHEAD_MAX` bytes ahead of what its client has taken.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from millstream.engine.push.member import Member
from millstream.engine.push.remote.messages import (
    BYTES_AHEAD_MAX,
    MESSAGE_BYTES_MAX,
    RECORD_BYTES_MAX,
    RECORDS_AHEAD_MAX,
    Act,
    ActKind,
    Acts,
    Ended,
    Join,
    Joined,
    Records,
    bytes_of,
)
from millstream.engine.push.specs import restored, stored
from millstream.engine.push.values import Delivered, Send, SubscriptionSpec
from millstream.engine.runtime.chunked import chunked
from millstream.internal_topics.deliveries import FlowPolicy
from millstream.model import NodeId, Session

TOO_LARGE = "it is too large to be passed between nodes"

# Makes a member: of a subscription by its specification, or of a durable one that exists.
Subscribe = Callable[[Session, SubscriptionSpec, Send], Awaitable[Member]]
JoinExisting = Callable[[Session, str, Send, FlowPolicy | None], Awaitable[Member]]
Tell = Callable[[NodeId, Records | Ended], None]


class _RemoteMember:
    """What is on its way to one member."""

    def __init__(self, node: NodeId, number: int, tell: Tell) -> None:
        self.member: Member | None = None  # Set when it has joined.
        self._node = node
        self._number = number
        self._tell = tell
        self._ahead: deque[int] = deque()  # The sizes of records that were not taken yet.
        self._bytes_ahead = 0
        self._is_refusing = False

    def send(self, records: Sequence[Delivered]) -> bool:
        if len(self._ahead) >= RECORDS_AHEAD_MAX or self._bytes_ahead >= BYTES_AHEAD_MAX:
            self._is_refusing = True
            return False
        fitting = [each for each in records if bytes_of([each]) <= RECORD_BYTES_MAX]
        for each in fitting:  # First: on this very node they are taken within `tell`.
            self._ahead.append(bytes_of([each]))
            self._bytes_ahead += self._ahead[-1]
        for part in chunked(
            fitting,
            lambda each: bytes_of([each]),
            count_max=RECORDS_AHEAD_MAX,
            bytes_max=MESSAGE_BYTES_MAX,
        ):
            self._tell(self._node, Records(number=self._number, records=list(part)))
        if len(fitting) < len(records):
            self._reject_large(records)
        return True

    def taken(self, count: int) -> None:
        """The client has taken so many records."""
        for _ in range(min(count, len(self._ahead))):
            self._bytes_ahead -= self._ahead.popleft()
        if self._is_refusing and self.member is not None:
            self._is_refusing = False
            self.member.resume()

    def _reject_large(self, records: Sequence[Delivered]) -> None:
        def reject() -> None:  # Once they count as sent.
            for each in records:
                if bytes_of([each]) > RECORD_BYTES_MAX and self.member is not None:
                    self.member.reject(each.target, each.record.offset, error=TOO_LARGE)

        asyncio.get_running_loop().call_soon(reject)


class Owner:
    """All members on other nodes of the subscriptions that this node owns."""

    def __init__(self, subscribe: Subscribe, join: JoinExisting, tell: Tell) -> None:
        self._subscribe = subscribe
        self._join = join
        self._tell = tell
        self._members: dict[tuple[NodeId, int], _RemoteMember] = {}

    async def join(self, node: NodeId, request: Join) -> Joined:
        """Make a member for a client of `node`; raises the refusal of the subscription."""
        key = node, request.number
        remote = _RemoteMember(node, request.number, self._tell)
        session = request.caller.session()
        self._close(key)
        self._members[key] = remote
        try:
            if request.value is None:
                member = await self._join(session, request.name, remote.send, request.flow)
            else:
                spec = restored(request.name, request.value, is_durable=request.is_durable)
                member = await self._subscribe(session, spec, remote.send)
        except BaseException:
            self._members.pop(key, None)
            raise
        if self._members.get(key) is not remote:
            member.close()  # The link was lost, or the client left, meanwhile.
        member.on_end = lambda: self._ended(key)
        member.on_failure = lambda _problem: self._ended(key)
        remote.member = member
        member.resume()
        principal = str(session.principal)
        return Joined(value=stored(member.spec, principal=principal, now_ms=0))

    def act(self, node: NodeId, acts: Acts) -> None:
        """Carry out what a member does; one that is unknown here learns that it is."""
        remote = self._members.get((node, acts.number))
        if remote is None:
            if any(act.kind is not ActKind.CLOSE for act in acts.acts):
                self._tell(node, Ended(number=acts.number))
            return
        for act in acts.acts:
            if act.kind is ActKind.TAKEN:
                remote.taken(act.count)
            elif act.kind is ActKind.CLOSE:
                self._close((node, acts.number))
            elif remote.member is not None:
                _carry_out(remote.member, act)

    def lost(self, node: NodeId) -> None:
        """The link to a node is lost: its members are gone, and join again if they live."""
        for key in [key for key in self._members if key[0] == node]:
            self._close(key)

    def _close(self, key: tuple[NodeId, int]) -> None:
        remote = self._members.pop(key, None)
        if remote is not None and remote.member is not None:
            remote.member.on_end = None
            remote.member.close()

    def _ended(self, key: tuple[NodeId, int]) -> None:
        if self._members.pop(key, None) is not None:
            self._tell(key[0], Ended(number=key[1]))


def _carry_out(member: Member, act: Act) -> None:
    match act.kind:
        case ActKind.ACK if act.target is not None:
            member.ack(act.target, act.offset)
        case ActKind.NACK if act.target is not None:
            member.nack(act.target, act.offset, act.delay_ms)
        case ActKind.REJECT if act.target is not None:
            member.reject(act.target, act.offset, act.reason, act.error)
        case ActKind.WANT:
            member.want(act.count)
        case ActKind.LIMIT:
            member.limit(act.count)
        case ActKind.FLOW if act.flow is not None:
            member.set_flow(act.flow)
