"""Has logs led by nodes that reach all that follow them, also while two nodes are cut apart.

A follower that its leader does not reach elects no other, as long as a majority hears the leader;
of the control log it would then know nothing new, and its clients wait. So each node tells the
others which nodes it reaches, and a leader hands over to a voter in step that reaches more.

Invariant: the successor reaches all nodes of the log that the leader reaches, and one more. So no
two nodes hand a log to each other and back.
"""

import asyncio
import logging

import msgspec

from millstream.engine.cluster.draining import is_in_step
from millstream.engine.cluster.members import Members
from millstream.engine.cluster.peer_calls import Nothing, PeerCalls
from millstream.errors import ChangeRefused, NotLeader
from millstream.model import CONTROL_LOG, NodeId, ReplicaId, node_of
from millstream.ports import Links
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

METHOD = "cluster.reached"
MISSED_S_MIN = 2.0  # A node that starts has not all its links at once.
LOGS_AT_ONCE = 500  # Looked at in one turn of the event loop.
TRANSFERS_AT_ONCE = 50  # In a round.

_log = logging.getLogger(__name__)


class _Reached(msgspec.Struct, frozen=True):
    nodes: tuple[int, ...]


class Reach:
    def __init__(self, members: Members, hub: Hub, links: Links, peers: PeerCalls) -> None:
        self._members = members
        self._hub = hub
        self._peers = peers
        self._linked: set[NodeId] = set()
        self._reached_by: dict[NodeId, frozenset[NodeId]] = {}  # As the nodes with a link say.
        self._missed_s: dict[NodeId, float] = {}  # Since when others reach it, and not this one.
        peers.serve(METHOD, _Reached, self._take)
        links.watch(self._link_changed)

    def loses_none(self, replica: Replica, node: NodeId) -> bool:
        """Whether `node` reaches all nodes of a log that are reached from here."""
        return self._reached_here(replica) <= self._reached_from(node)

    async def hand_over(self) -> None:
        """Hand over what is led here to nodes that reach more of its nodes than this one."""
        better = self._better_connected()
        if not better:
            return
        handed = 0
        for at, replica in enumerate(list(self._hub.replicas.values()), start=1):
            if at % LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not replica.is_leader or not replica.core.takes_proposals:
                continue
            successor = self._successor(replica, better)
            if successor is None:
                continue
            try:
                self._hub.leadership.transfer(replica.id, successor)
            except (ChangeRefused, NotLeader) as refusal:
                _log.debug("not handed over log=%s reason=%s", replica.name, refusal)
                continue
            handed += 1
            if handed == TRANSFERS_AT_ONCE:
                break  # The others in the next round.
        if handed:
            _log.info("handed over to nodes that reach more of the cluster logs=%d", handed)

    def _better_connected(self) -> frozenset[NodeId]:
        """The nodes that have reached one for a while which is not reached from here."""
        now_s = asyncio.get_running_loop().time()
        reached = frozenset[NodeId]().union(*self._reached_by.values())
        self._missed_s = {
            node: self._missed_s.get(node, now_s)
            for node in reached
            if not self._members.is_up(node)
        }
        missed = {node for node, since in self._missed_s.items() if now_s - since >= MISSED_S_MIN}
        return frozenset(node for node, reached in self._reached_by.items() if reached & missed)

    def _successor(self, replica: Replica, better: frozenset[NodeId]) -> ReplicaId | None:
        needing = self._nodes_of(replica)
        here = self._reached_here(replica)
        for voter in sorted(replica.core.voters):
            node = node_of(voter)
            if (
                node in better
                and here < self._reached_from(node) & needing
                and self._members.is_available(node)
                and is_in_step(replica, voter)
            ):
                return voter
        return None

    def _nodes_of(self, replica: Replica) -> set[NodeId]:
        """The nodes that need the leader of a log: its voters; every node needs the control log."""
        if replica.id == CONTROL_LOG:
            return {node.node_id for node in self._members.nodes}
        return {node_of(voter) for voter in replica.core.voters}

    def _reached_here(self, replica: Replica) -> set[NodeId]:
        return {node for node in self._nodes_of(replica) if self._members.is_up(node)}

    def _reached_from(self, node: NodeId) -> frozenset[NodeId]:
        return self._reached_by.get(node, frozenset()) | {node}

    def _link_changed(self, node: NodeId, is_up: bool) -> None:
        if is_up:
            self._linked.add(node)
        else:
            self._linked.discard(node)
            self._reached_by.pop(node, None)
        reached = _Reached(tuple(sorted(self._linked)))
        for each in self._linked:
            self._peers.tell(each, METHOD, reached)

    async def _take(self, node: NodeId, message: _Reached) -> Nothing:
        if node in self._linked:  # A late word of a lost link is worth nothing.
            self._reached_by[node] = frozenset(map(NodeId, message.nodes))
        return Nothing()
