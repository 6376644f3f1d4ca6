"""Leads partitions where they are preferred to be led: at the first of their replicas.

Each leader compares itself with the preferred replica, and hands over to one that is in step, on a
node that can be reached, is not drained and reaches as many nodes of the log. An operator asks for
it by ElectLeaders; by itself it happens every `timing.leader_balance_ms`.
"""

import asyncio
import logging
from uuid import UUID

import msgspec

from millstream.config import Config
from millstream.engine.cluster.draining import is_in_step
from millstream.engine.cluster.members import Members
from millstream.engine.cluster.peer_calls import Nothing, PeerCalls
from millstream.engine.cluster.reach import Reach
from millstream.engine.controller import Controller
from millstream.errors import ChangeRefused, NotLeader, RequestError, TimedOut
from millstream.model import LogId, NodeId, ReplicaId, node_of
from millstream.raft.tracker import Refusal
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

METHOD = "cluster.transfer"
POLL_S = 0.02
ELECTIONS_MAX = 2  # Election timeouts until another replica has taken over.
TRANSFERS_AT_ONCE = 20  # In a round of the balance.
PARTITIONS_AT_ONCE = 500  # Looked at in one turn of the event loop.

_log = logging.getLogger(__name__)


class _Transfer(msgspec.Struct, frozen=True):
    topic_id: bytes
    partition: int
    to: int


class Preferring:
    def __init__(
        self,
        members: Members,
        controller: Controller,
        hub: Hub,
        peers: PeerCalls,
        reach: Reach,
        config: Config,
    ) -> None:
        self._members = members
        self._controller = controller
        self._hub = hub
        self._peers = peers
        self._reach = reach
        self._interval_s = config.timing.leader_balance_ms / 1000
        self._wait_s = ELECTIONS_MAX * config.timing.election_timeout_ms / 1000
        self._due_s: float | None = None
        peers.serve(METHOD, _Transfer, self._take)

    async def elect(self, log_id: LogId, node: NodeId) -> None:
        """Have the leader of a log hand over to its replica on `node`; return when that leads.

        Raises `ChangeRefused` or `NotLeader` if it cannot, `TimedOut` if it did not.
        """
        leader = self._hub.leadership.of(log_id).leader
        if leader is None:
            raise NotLeader(log_id, None)
        if leader == self._members.me:
            self._transfer(log_id, node)
        elif leader != node:
            transfer = _Transfer(log_id.topic_id.bytes, log_id.partition, node)
            await self._peers.ask(leader, METHOD, transfer, Nothing)
        try:
            async with asyncio.timeout(self._wait_s):
                await self._led_by(log_id, node)
        except TimeoutError:
            raise TimedOut(f"node {node} did not take over {log_id} in time") from None

    async def _led_by(self, log_id: LogId, node: NodeId) -> None:
        is_led = False
        while not is_led:
            await asyncio.sleep(POLL_S)
            is_led = self._hub.leadership.of(log_id).leader == node

    async def balance(self) -> None:
        """Hand over what is led here and preferred elsewhere, if it is time for that."""
        now_s = asyncio.get_running_loop().time()
        if self._due_s is None or not self._interval_s:
            self._due_s = now_s + self._interval_s
        if now_s < self._due_s or not self._interval_s:
            return
        transferred = 0
        for at, (log_id, node) in enumerate(self._preferred(), start=1):
            if at % PARTITIONS_AT_ONCE == 0:
                await asyncio.sleep(0)
            replica = self._hub.replicas.get(log_id)
            if node == self._members.me or replica is None or not replica.is_leader:
                continue
            try:
                self._transfer(log_id, node)
            except RequestError as refusal:
                _log.debug("not handed over log=%s reason=%s", replica.name, refusal)
                continue
            transferred += 1
            if transferred == TRANSFERS_AT_ONCE:
                return  # The others in the next round.
        self._due_s = now_s + self._interval_s
        if transferred:
            _log.info("handed over to preferred leaders logs=%d", transferred)

    def _preferred(self) -> list[tuple[LogId, NodeId]]:
        return [
            (topic.log(partition), replicas[0])
            for topic in self._controller.state.catalog.topics()
            if not topic.is_view
            for partition, replicas in enumerate(topic.placement)
        ]

    def _transfer(self, log_id: LogId, node: NodeId) -> None:
        replica = self._hub.find(log_id)
        self._hub.leadership.transfer(log_id, self._successor(replica, node))

    def _successor(self, replica: Replica, node: NodeId) -> ReplicaId:
        for voter in replica.core.voters:
            if node_of(voter) == node:
                if voter == replica.me:
                    return voter
                is_able = self._members.is_available(node) and is_in_step(replica, voter)
                if is_able and self._reach.loses_none(replica, node):
                    return voter
                raise ChangeRefused(Refusal.NOT_CAUGHT_UP)
        raise ChangeRefused(Refusal.NOT_VOTER)

    async def _take(self, _node: NodeId, transfer: _Transfer) -> Nothing:
        log_id = LogId(UUID(bytes=transfer.topic_id), transfer.partition)
        self._transfer(log_id, NodeId(transfer.to))
        return Nothing()
