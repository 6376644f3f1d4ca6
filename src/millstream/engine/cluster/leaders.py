"""News of leaders: each node says which logs it leads, so that every node knows where to send.

A node believes its own replicas first, and news where it has none. It asks the nodes that it
reaches for a leader of which it has heard nothing: news does not cross a link that is cut. The
control log never names a leader: leaders are elected by the groups themselves.

Invariant: of two claims the one with the higher epoch is kept; an epoch has one leader.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

import msgspec

from millstream.control.catalog import Catalog
from millstream.engine.cluster.peer_calls import Nothing, PeerCalls
from millstream.errors import RequestError
from millstream.model import Epoch, LogId, NodeId
from millstream.ports import Links
from millstream.replication.hub import Hub
from millstream.replication.peering.leadership import KnownLeader
from millstream.replication.replica import Replica

NEWS_DELAY_S = 0.01  # Elections of one failover leave in a few messages.
CLAIMS_AT_ONCE = 2_000  # In one message, about 60 KiB.
METHOD = "leaders"
INQUIRY = "leaders.inquire"
INQUIRY_S_MAX = 0.5
INQUIRED_AGAIN_S = 0.2  # Between two inquiries: clients ask for metadata again and again.


class Claim(NamedTuple):
    """A node leads this log since this epoch."""

    topic_id: bytes
    partition: int
    epoch: int


class Claims(msgspec.Struct, frozen=True):
    claims: tuple[Claim, ...]


class KnownClaim(NamedTuple):
    """Another node is known to lead this log."""

    topic_id: bytes
    partition: int
    epoch: int
    leader: int


class Inquiry(msgspec.Struct, frozen=True):
    logs: tuple[tuple[bytes, int], ...]


class KnownClaims(msgspec.Struct, frozen=True):
    claims: tuple[KnownClaim, ...]


class LeaderNews:
    """Tells peers what is led here, and keeps what they tell."""

    def __init__(self, hub: Hub, links: Links, peers: PeerCalls, catalog: Catalog) -> None:
        self._catalog = catalog
        self._hub = hub
        self._links = links
        self._peers = peers
        self._nodes: set[NodeId] = set()  # Those with a link.
        self._changed: dict[LogId, None] = {}
        self._is_due = False
        hub.leadership.elsewhere = self.leader_of
        hub.leadership.watch(self._note)
        hub.on_drop(self._forget)
        self._known: dict[LogId, KnownLeader] = {}
        self._inquired_s = float("-inf")
        peers.serve(METHOD, Claims, self._take)
        peers.serve(INQUIRY, Inquiry, self._answer)
        links.watch(self._link_changed)

    def leader_of(self, log_id: LogId) -> KnownLeader | None:
        """The leader of a log as other nodes claim it."""
        return self._known.get(log_id)

    def _note(self, replica: Replica) -> None:
        if replica.is_leader and self._nodes:
            self._changed[replica.id] = None
            if not self._is_due:
                self._is_due = True
                asyncio.get_running_loop().call_later(NEWS_DELAY_S, self._flush)

    def _flush(self) -> None:
        self._is_due = False
        replicas = [self._hub.replicas.get(log_id) for log_id in self._changed]
        self._changed.clear()
        self._tell(self._nodes, filter(None, replicas))

    def _link_changed(self, node: NodeId, is_up: bool) -> None:
        if is_up:
            self._nodes.add(node)
            self._hub.leadership.inquire = self._inquire
            self._tell([node], self._hub.replicas.values())
        else:
            self._nodes.discard(node)

    def _tell(self, nodes: Iterable[NodeId], replicas: Iterable[Replica]) -> None:
        led = iter(
            [
                Claim(each.id.topic_id.bytes, each.id.partition, each.core.epoch)
                for each in replicas
                if each.is_leader
            ]
        )
        while claims := tuple(islice(led, CLAIMS_AT_ONCE)):
            for node in nodes:
                self._peers.tell(node, METHOD, Claims(claims))

    async def _take(self, node: NodeId, news: Claims) -> Nothing:
        for claim in news.claims:
            self._learn(claim.topic_id, claim.partition, claim.epoch, node)
        return Nothing()

    def _learn(self, topic_id: bytes, partition: int, epoch: int, leader: NodeId) -> None:
        log_id = LogId(UUID(bytes=topic_id), partition)
        known = self._known.get(log_id)
        if known is None or known.epoch <= epoch:
            self._known[log_id] = KnownLeader(Epoch(epoch), leader)

    async def _inquire(self, log_ids: Sequence[LogId]) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._inquired_s + INQUIRED_AGAIN_S:
            return
        self._inquired_s = now
        logs = tuple((log.topic_id.bytes, log.partition) for log in log_ids[:CLAIMS_AT_ONCE])
        asked = [self._ask(node, Inquiry(logs)) for node in sorted(self._nodes)]
        for answer in await asyncio.gather(*asked):
            for claim in answer:
                self._learn(claim.topic_id, claim.partition, claim.epoch, NodeId(claim.leader))

    async def _ask(self, node: NodeId, inquiry: Inquiry) -> tuple[KnownClaim, ...]:
        try:
            answer = await self._peers.ask(
                node, INQUIRY, inquiry, KnownClaims, timeout_s=INQUIRY_S_MAX
            )
        except RequestError:
            return ()
        return answer.claims

    async def _answer(self, node: NodeId, inquiry: Inquiry) -> KnownClaims:
        """What is known here, but for logs that the node which asks is said to lead itself."""
        claims = []
        for topic_id, partition in inquiry.logs[:CLAIMS_AT_ONCE]:
            epoch, leader = self._hub.leadership.of(LogId(UUID(bytes=topic_id), partition))
            if leader not in (None, node):
                claims.append(KnownClaim(topic_id, partition, epoch, leader))
        return KnownClaims(tuple(claims))

    def _forget(self, log_id: LogId) -> None:
        """A replica was dropped: if its topic lives, it is led elsewhere."""
        if not self._catalog.has_id(log_id.topic_id):
            self._known.pop(log_id, None)
