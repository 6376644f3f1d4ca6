"""The peer links of a node for its replicas: heartbeats, and what comes over them.

Owns the `PeerLinks` of the node and the `GroupLinks` of each replica. They are made with the first
link: a node alone has none, and loads none of it. Without a link no message of consensus leaves.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.config import Limits, Timing
from millstream.errors import NotLeader
from millstream.model import LogId, NodeId, ReplicaId
from millstream.ports import PeerMessage, Ports
from millstream.raft.link_messages import GroupMessage, Left
from millstream.raft.member import Effects
from millstream.raft.messages import Fetch, Message
from millstream.replication.peering.catching_up import CatchingUp
from millstream.replication.replica import Replica

if TYPE_CHECKING:
    from millstream.replication.hub import Hub
    from millstream.replication.peering.group import GroupLinks
    from millstream.replication.peering.links import PeerLinks

HEARTBEATS_PER_TIMEOUT = 10
# A fetch is served once less than this waits for its node: replies of 8 MiB to all the replicas of
# a node that was away would end its link, again and again.
QUEUED_BYTES_MAX = 16 * 2**20
DEFERRED_S = 0.005  # How often fetches that wait for it are looked at.


class _Driver:
    """Drives one replica for its `GroupLinks`."""

    def __init__(self, replica: Replica, hub: "Hub") -> None:
        self._replica = replica
        self._hub = hub

    def drive(self, act: Callable[[], Effects]) -> None:
        self._hub.drive(self._replica, act)

    def post(self, to: ReplicaId, message: Message) -> None:
        self._hub.commits.post(self._replica, to, message)

    def woke(self) -> None:
        self._hub.ticker.follow(self._replica)


class NodeLinks:
    """Implements `ports.LinkReceiver`."""

    def __init__(
        self, me: NodeId, hub: "Hub", ports: Ports, *, timing: Timing, limits: Limits
    ) -> None:
        self._me = me
        self._hub = hub
        self._ports = ports
        self._silence_ms_max = timing.election_timeout_ms
        self._heartbeat_s = timing.election_timeout_ms / HEARTBEATS_PER_TIMEOUT / 1000
        self._groups: dict[LogId, GroupLinks] = {}
        self._links: PeerLinks | None = None
        self._begun = asyncio.Event()
        # Fetches that wait for room, by node: at most one for each of its replicas.
        self._deferred: dict[NodeId, OrderedDict[tuple[LogId, ReplicaId], GroupMessage]] = {}
        self._is_draining = False
        self._catching_up = CatchingUp(limits.catchup_bytes_per_second, self._take)
        ports.links.open(self)

    def adopt(self, replica: Replica) -> None:
        """Let a replica that was opened take part in the links, if there ever was one."""
        if self._links is None:
            return
        from millstream.replication.peering.group import GroupLinks

        group = GroupLinks(
            replica.id,
            replica.core,
            self._links,
            _Driver(replica, self._hub),
            self._ports.entropy,
            placement=lambda: _campaign_order(replica),
            last=lambda: replica.consensus_log.last,
            now_ms=_now_ms,
        )
        self._groups[replica.id] = replica.group_links = group
        group.opened()

    def tick(self, replica: Replica) -> None:
        if replica.group_links is not None:
            replica.group_links.tick()
        else:
            self._hub.drive(replica, replica.core.tick)

    def confirmed(self, replica: Replica) -> "asyncio.Future[bool]":
        """Whether the replica is proven to lead after this call: then it knew all that was
        committed before it. `Overloaded` if too many wait."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[bool] = loop.create_future()
        if replica.group_links is None or self._links is None:
            core = replica.core
            outcome.set_result(core.is_established and core.voters == {replica.me})
            return outcome

        def answer(is_confirmed: bool) -> None:
            if not outcome.done():
                outcome.set_result(is_confirmed and replica.failure is None)

        replica.group_links.ask(answer)
        if not outcome.done():
            loop.call_soon(self._links.flush)
        return outcome

    async def confirm(self, replica: Replica) -> None:
        """Return once the replica is proven to lead after this call: what was committed before is
        below its high watermark. Raises `NotLeader` if another one may lead."""
        if not await self.confirmed(replica):
            raise NotLeader(replica.name, replica.leader if not replica.is_leader else None)

    async def run(self) -> None:
        """Send heartbeats, and end links that are silent."""
        await self._begun.wait()
        assert self._links is not None
        while True:
            for node in self._links.tick(_now_ms()):
                self._ports.links.end(node, "silence")
            await asyncio.sleep(self._heartbeat_s)

    # -- ports.LinkReceiver ------------------------------------------------------------------------

    def link_up(self, node: NodeId) -> None:
        links = self._links or self._begin()
        links.begin(node, _now_ms())
        links.flush()

    def link_lost(self, node: NodeId) -> None:
        self._deferred.pop(node, None)
        self._catching_up.forget_node(node)
        if self._links is not None:
            self._links.end(node)

    def receive(self, node: NodeId, message: PeerMessage) -> None:
        if isinstance(message, GroupMessage) and isinstance(message.message, Fetch):
            if self._ports.links.queued_bytes(node) > QUEUED_BYTES_MAX or node in self._deferred:
                self._defer(node, message)
                return
            if message.log in self._hub.resting:
                self._hub.wake([message.log])  # A replica elsewhere needs it. It asks again.
            replica = self._hub.replicas.get(message.log)
            is_voter = replica is None or message.sender in replica.core.voters
            if self._catching_up.holds_back(node, message, is_voter=is_voter):
                return
        elif isinstance(message, Left):
            self._catching_up.forget(message.log, message.replica)
        if isinstance(message, Left) and node in self._deferred:
            # It must not be counted as a fetch of that epoch after the word that it was left.
            self._deferred[node].pop((message.log, message.replica), None)
        self._take(node, message)

    # -- parts -------------------------------------------------------------------------------------

    def _begin(self) -> "PeerLinks":
        from millstream.replication.peering.links import PeerLinks

        self._links = PeerLinks(
            self._me,
            self._groups,
            self._send,
            silence_ms_max=self._silence_ms_max,
        )
        for replica in self._hub.replicas.values():
            if replica.failure is None:
                self.adopt(replica)
        self._begun.set()
        return self._links

    def _take(self, node: NodeId, message: PeerMessage) -> None:
        if self._links is not None:
            self._links.receive(node, message, _now_ms())  # type: ignore[arg-type]
            self._links.flush()

    def _send(self, node: NodeId, message: PeerMessage) -> None:
        if self._catching_up.newcomers:
            self._catching_up.count(message)
        self._ports.links.send(node, message)

    def _defer(self, node: NodeId, message: GroupMessage) -> None:
        waiting = self._deferred.setdefault(node, OrderedDict())
        waiting[message.log, message.sender] = message
        if not self._is_draining:
            self._is_draining = True
            asyncio.get_running_loop().call_later(DEFERRED_S, self._drain)

    def _drain(self) -> None:
        for node, waiting in list(self._deferred.items()):
            while waiting and self._ports.links.queued_bytes(node) <= QUEUED_BYTES_MAX:
                _, message = waiting.popitem(last=False)
                self._take(node, message)
            if not waiting and self._deferred.get(node) is waiting:
                del self._deferred[node]
        self._is_draining = bool(self._deferred)
        if self._is_draining:
            asyncio.get_running_loop().call_later(DEFERRED_S, self._drain)


def _campaign_order(replica: Replica) -> list[ReplicaId]:
    """The voters in the order in which they campaign: each log begins with another one, so that
    the leaders are spread over the nodes."""
    voters = sorted(replica.core.voters)
    topic_id, partition = replica.id
    shift = (topic_id.int + partition) % len(voters) if voters else 0
    return voters[shift:] + voters[:shift]


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
