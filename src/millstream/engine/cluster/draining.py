"""Hands the logs that this node leads to replicas in step, before it stops and while it is drained.

A hand-over is Raft's transfer of leadership: the successor holds everything before it campaigns, so
producers see no more than a leader that has moved.
"""

import asyncio
import logging
from collections import Counter

from millstream.engine.cluster.members import Members
from millstream.engine.cluster.peer_calls import Nothing, PeerCalls
from millstream.errors import ChangeRefused, NotLeader
from millstream.model import LogId, NodeId, ReplicaId, node_of
from millstream.ports import Links
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

_log = logging.getLogger(__name__)

METHOD = "cluster.leaving"
POLL_S = 0.02
TRANSFERS_AT_ONCE = 50  # In one turn of the event loop, about 3 ms.


class Draining:
    def __init__(self, members: Members, hub: Hub, links: Links, peers: PeerCalls) -> None:
        self._members = members
        self._hub = hub
        self._peers = peers
        # Nodes that stop: a cluster that is stopped as a whole passes nothing around.
        self._leaving: set[NodeId] = set()
        peers.serve(METHOD, Nothing, self._take_leave)
        links.watch(self._link_changed)

    @property
    def is_drained(self) -> bool:
        """Whether an operator drains this node."""
        return not self._members.is_active(self._members.me)

    async def leave(self, timeout_s: float) -> None:
        """Hand over before this node stops."""
        for node in self._members.nodes:
            if node.node_id != self._members.me:
                self._peers.tell(node.node_id, METHOD, Nothing())
        await self.hand_over(timeout_s)

    async def hand_over(self, timeout_s: float) -> None:
        """Hand over all that is led here and can be led elsewhere; stop trying when time is up."""
        handed: set[LogId] = set()
        try:
            async with asyncio.timeout(timeout_s):
                is_unfinished = True
                while is_unfinished:
                    is_unfinished = await self._transfer(handed)
                    await asyncio.sleep(POLL_S if is_unfinished else 0)
        except TimeoutError:
            led = sum(replica.is_leader for replica in self._hub.replicas.values())
            _log.warning("not everything was handed over still_led=%d", led)
        if handed:
            _log.info("handed over node=%d logs=%d", self._members.me, len(handed))

    async def _transfer(self, handed: set[LogId]) -> bool:
        """Begin the transfers that can begin; return whether some are to be waited for."""
        spread: Counter[NodeId] = Counter()
        is_unfinished = False
        for at, replica in enumerate(list(self._hub.replicas.values()), start=1):
            if at % TRANSFERS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not replica.is_leader and (replica.id not in handed or replica.leader is not None):
                continue
            # Clients are told of the next leader once it is known here: also that is waited for.
            reachable = self._successors(replica)
            is_unfinished |= bool(reachable)
            in_step = [each for each in reachable if is_in_step(replica, each)]
            if not (in_step and replica.is_leader and replica.core.takes_proposals):
                continue
            successor = min(in_step, key=lambda each: (spread[node_of(each)], each))
            try:
                self._hub.leadership.transfer(replica.id, successor)
            except (ChangeRefused, NotLeader) as refusal:
                _log.debug("not handed over log=%s reason=%s", replica.id, refusal)
                continue
            spread[node_of(successor)] += 1
            handed.add(replica.id)
        return is_unfinished

    def _successors(self, replica: Replica) -> list[ReplicaId]:
        """The voters that can be reached, but for those of nodes that stop or are drained."""
        return [
            voter
            for voter in replica.core.voters - {replica.me}
            if (node := node_of(voter)) not in self._leaving and self._members.is_available(node)
        ]

    async def _take_leave(self, node: NodeId, _message: Nothing) -> Nothing:
        self._leaving.add(node)
        return Nothing()

    def _link_changed(self, node: NodeId, _is_up: bool) -> None:
        self._leaving.discard(node)


def is_in_step(replica: Replica, follower: ReplicaId) -> bool:
    """Whether the follower holds all that is committed: then little is left to wait for."""
    uncommitted = replica.log.end_offset - replica.high_watermark
    return replica.core.lags().get(follower, uncommitted + 1) <= uncommitted
