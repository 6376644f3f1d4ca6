"""Named subscriptions of a whole cluster: finds the owner of each, and keeps members joined.

The owner of a name leads the partition of the deliveries topic that the name belongs to. A node
asks it for all that concerns the name, also if that is itself: so a member stays when the owner
changes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from millstream.engine.cluster.peer_calls import Nothing, PeerCalls
from millstream.engine.cluster.relay.callers import Caller, caller_of
from millstream.engine.ledgers.shards import Shards
from millstream.engine.push.member import Member
from millstream.engine.push.remote.member import RemoteMember
from millstream.engine.push.remote.messages import (
    ACTS,
    ENDED,
    JOIN,
    RECORDS,
    Act,
    ActKind,
    Acts,
    Ended,
    Join,
    Joined,
    Records,
)
from millstream.engine.push.remote.owner import Owner
from millstream.engine.push.shard import DeliveryShard
from millstream.engine.push.specs import restored, stored
from millstream.engine.push.values import (
    CursorView,
    Send,
    Statistics,
    SubscriptionSpec,
    SubscriptionView,
)
from millstream.engine.runtime.background import BackgroundTasks
from millstream.engine.runtime.backoff import Backoff
from millstream.errors import RequestError
from millstream.internal_topics.deliveries import FlowPolicy, SubscriptionValue
from millstream.model import NodeId, Session, TopicPartition
from millstream.ports import Links

if TYPE_CHECKING:
    from millstream.engine.push.service import Deliveries

CREATE, DELETE, DESCRIBE, LIST = "push.create", "push.delete", "push.describe", "push.list"
OWNER_S_MAX = 10.0  # How long the owner of a name is looked for.
RETRY_MS_MAX = 1_000
LISTED_S_MAX = 2.0  # For one node's part of a listing.

A = TypeVar("A", bound=msgspec.Struct)
Q = TypeVar("Q", bound=msgspec.Struct)


class _Definition(msgspec.Struct, frozen=True, kw_only=True):
    caller: Caller
    name: str
    value: SubscriptionValue


class _Name(msgspec.Struct, frozen=True, kw_only=True):
    caller: Caller
    name: str


class _View(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: SubscriptionValue
    members: tuple[Statistics, ...]
    cursors: list[tuple[TopicPartition, CursorView]]


class _Views(msgspec.Struct, frozen=True, kw_only=True):
    views: list[_View]


class _Existing(msgspec.Struct, frozen=True):
    """What a member asked for when it joined, to ask again."""

    name: str
    value: SubscriptionValue | None
    is_durable: bool
    flow: FlowPolicy | None


class RemoteSubscriptions:
    def __init__(
        self,
        deliveries: "Deliveries",
        shards: Shards[DeliveryShard],
        peers: PeerCalls,
        links: Links,
        background: BackgroundTasks,
        *,
        me: NodeId,
        nodes: Callable[[], Iterable[NodeId]],
    ) -> None:
        """`nodes` are all nodes of the cluster."""
        self._deliveries = deliveries
        self._shards = shards
        self._peers = peers
        self._background = background
        self._me = me
        self._nodes = nodes
        self._numbers = 0
        self._members: dict[int, RemoteMember] = {}
        self._asked: dict[int, _Existing] = {}
        self._owners: dict[int, NodeId] = {}  # Of members that have joined, or are about to.
        self._joining: set[int] = set()
        self._owner = Owner(deliveries.subscribe, self._join_existing, self._tell_member)
        peers.serve(JOIN, Join, self._owner.join)
        peers.serve(ACTS, Acts, self._take_acts)
        peers.serve(RECORDS, Records, self._take_records)
        peers.serve(ENDED, Ended, self._take_end)
        peers.serve(CREATE, _Definition, self._create)
        peers.serve(DELETE, _Name, self._delete)
        peers.serve(DESCRIBE, _Name, self._describe)
        peers.serve(LIST, _Name, self._list)
        links.watch(self._link_changed)

    # -- for clients of this node ----------------------------------------------------------------

    async def subscribe(self, session: Session, spec: SubscriptionSpec, send: Send) -> RemoteMember:
        assert spec.name is not None
        value = stored(spec, principal=str(session.principal), now_ms=0)
        existing = _Existing(spec.name, value, spec.is_durable, spec.flow)
        return await self._begin(session, spec, existing, send)

    async def join(
        self, session: Session, name: str, send: Send, flow: FlowPolicy | None
    ) -> RemoteMember:
        view = await self.describe(session, name)
        return await self._begin(session, view.spec, _Existing(name, None, True, flow), send)

    async def create(self, session: Session, spec: SubscriptionSpec, name: str) -> None:
        value = stored(spec, principal=str(session.principal), now_ms=0)
        question = _Definition(caller=caller_of(session), name=name, value=value)
        await self._ask_owner(name, CREATE, question, Nothing, self._create)

    async def delete(self, session: Session, name: str) -> None:
        question = _Name(caller=caller_of(session), name=name)
        await self._ask_owner(name, DELETE, question, Nothing, self._delete)

    async def describe(self, session: Session, name: str) -> SubscriptionView:
        question = _Name(caller=caller_of(session), name=name)
        return _view(await self._ask_owner(name, DESCRIBE, question, _View, self._describe))

    async def list(self, session: Session) -> list[SubscriptionView]:
        """Those of all nodes that answer, by name."""
        question = _Name(caller=caller_of(session), name="")
        asked = [
            self._ask(node, LIST, question, _Views, self._list, LISTED_S_MAX)
            for node in {self._me, *self._nodes()}
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        views: dict[str, SubscriptionView] = {}
        for answer in answers:
            if isinstance(answer, _Views):
                views.update((each.name, _view(each)) for each in answer.views)
            elif not isinstance(answer, RequestError):
                raise answer
        return [views[name] for name in sorted(views)]

    # -- members here ----------------------------------------------------------------------------

    async def _begin(
        self, session: Session, spec: SubscriptionSpec, existing: _Existing, send: Send
    ) -> RemoteMember:
        self._numbers += 1
        member = RemoteMember(self._numbers, session, spec, send, self._acted, self._forget)
        self._members[member.number] = member
        self._asked[member.number] = existing
        until_s = asyncio.get_running_loop().time() + OWNER_S_MAX
        backoff = Backoff(longest_ms=RETRY_MS_MAX)
        try:
            while True:
                try:
                    await self._join(member)
                    return member
                except RequestError as problem:
                    if not problem.retriable or asyncio.get_running_loop().time() >= until_s:
                        raise
                await backoff.wait()
        except BaseException:
            member.close()
            raise

    async def _join(self, member: RemoteMember) -> None:
        existing = self._asked[member.number]
        owner = await self._shards.node_of(existing.name)
        question = Join(
            caller=caller_of(member.session),
            number=member.number,
            name=existing.name,
            value=existing.value,
            is_durable=existing.is_durable,
            flow=existing.flow,
        )
        acts = member.restart()
        # Records may come before the answer.
        self._owners[member.number] = owner
        self._joining.add(member.number)
        try:
            joined = await self._ask(owner, JOIN, question, Joined, self._owner.join)
        except RequestError:
            self._owners.pop(member.number, None)
            self._tell_owner(owner, Acts(number=member.number, acts=[Act(ActKind.CLOSE)]))
            raise
        finally:
            self._joining.discard(member.number)
        if member.is_closed:  # Its client left meanwhile.
            self._tell_owner(owner, Acts(number=member.number, acts=[Act(ActKind.CLOSE)]))
            return
        member.set_spec(restored(existing.name, joined.value, is_durable=existing.is_durable))
        if existing.is_durable:  # It exists: one that is deleted later is not made again.
            self._asked[member.number] = msgspec.structs.replace(existing, value=None)
        if acts:
            self._acted(member, acts)

    def _rejoin(self, member: RemoteMember) -> None:
        """The owner is gone, or is another node now."""
        if member.number in self._joining:
            return  # The call fails, too, and is made again.
        if self._owners.pop(member.number, None) is not None and not member.is_closed:
            self._background.begin(self._keep_joined(member))

    async def _keep_joined(self, member: RemoteMember) -> None:
        backoff = Backoff(longest_ms=RETRY_MS_MAX)
        while not member.is_closed:
            try:
                await self._join(member)
                return
            except RequestError as problem:
                if not problem.retriable:
                    self._forget(member)
                    member.end()
                    return
            await backoff.wait()

    def _acted(self, member: RemoteMember, acts: Sequence[Act]) -> None:
        owner = self._owners.get(member.number)
        if owner is not None:
            self._tell_owner(owner, Acts(number=member.number, acts=list(acts)))

    def _forget(self, member: RemoteMember) -> None:
        self._members.pop(member.number, None)
        self._asked.pop(member.number, None)
        self._owners.pop(member.number, None)

    async def _take_records(self, node: NodeId, message: Records) -> Nothing:
        self._deliver(node, message)
        return Nothing()

    async def _take_end(self, node: NodeId, message: Ended) -> Nothing:
        self._end(node, message)
        return Nothing()

    def _deliver(self, node: NodeId, message: Records) -> None:
        member = self._members.get(message.number)
        if member is None or self._owners.get(message.number) != node:
            self._tell_owner(node, Acts(number=message.number, acts=[Act(ActKind.CLOSE)]))
            return
        member.deliver(message.records)

    def _end(self, node: NodeId, message: Ended) -> None:
        member = self._members.get(message.number)
        if member is not None and self._owners.get(message.number) == node:
            self._rejoin(member)

    # -- subscriptions that this node owns -------------------------------------------------------

    async def _join_existing(
        self, session: Session, name: str, send: Send, flow: FlowPolicy | None
    ) -> Member:
        return await self._deliveries.join(session, name, send, flow=flow)

    async def _take_acts(self, node: NodeId, acts: Acts) -> Nothing:
        self._owner.act(node, acts)
        return Nothing()

    async def _create(self, _node: NodeId, question: _Definition) -> Nothing:
        spec = restored(question.name, question.value)
        await self._deliveries.create(question.caller.session(), spec)
        return Nothing()

    async def _delete(self, _node: NodeId, question: _Name) -> Nothing:
        await self._deliveries.delete(question.caller.session(), question.name)
        return Nothing()

    async def _describe(self, _node: NodeId, question: _Name) -> _View:
        view = await self._deliveries.describe(question.caller.session(), question.name)
        return _encoded(view)

    async def _list(self, _node: NodeId, question: _Name) -> _Views:
        views = await self._deliveries.list(question.caller.session())
        return _Views(views=[_encoded(view) for view in views])

    # -- between the two -------------------------------------------------------------------------

    async def _ask_owner(
        self,
        name: str,
        method: str,
        question: Q,
        answer: type[A],
        here: Callable[[NodeId, Q], Awaitable[A]],
    ) -> A:
        """Ask the owner of a name, once there is one; raises its refusal."""
        until_s = asyncio.get_running_loop().time() + OWNER_S_MAX
        backoff = Backoff(longest_ms=RETRY_MS_MAX)
        while True:
            try:
                owner = await self._shards.node_of(name)
                return await self._ask(owner, method, question, answer, here)
            except RequestError as problem:
                if not problem.retriable or asyncio.get_running_loop().time() >= until_s:
                    raise
            await backoff.wait()

    async def _ask(
        self,
        node: NodeId,
        method: str,
        question: Q,
        answer: type[A],
        here: Callable[[NodeId, Q], Awaitable[A]],
        timeout_s: float = OWNER_S_MAX,
    ) -> A:
        if node == self._me:
            return await here(node, question)
        return await self._peers.ask(node, method, question, answer, timeout_s=timeout_s)

    def _tell_owner(self, node: NodeId, acts: Acts) -> None:
        if node == self._me:
            self._owner.act(node, acts)
        else:
            self._peers.tell(node, ACTS, acts)

    def _tell_member(self, node: NodeId, message: Records | Ended) -> None:
        if isinstance(message, Records):
            if node == self._me:
                self._deliver(node, message)
            else:
                self._peers.tell(node, RECORDS, message)
        elif node == self._me:
            self._end(node, message)
        else:
            self._peers.tell(node, ENDED, message)

    def _link_changed(self, node: NodeId, is_up: bool) -> None:
        if is_up:
            return
        self._owner.lost(node)
        for number, owner in list(self._owners.items()):
            member = self._members.get(number)
            if owner == node and member is not None:
                self._rejoin(member)


def _encoded(view: SubscriptionView) -> _View:
    assert view.spec.name is not None
    return _View(
        name=view.spec.name,
        value=stored(view.spec, principal="", now_ms=0),
        members=view.members,
        cursors=list(view.cursors.items()),
    )


def _view(view: _View) -> SubscriptionView:
    return SubscriptionView(restored(view.name, view.value), view.members, dict(view.cursors))
