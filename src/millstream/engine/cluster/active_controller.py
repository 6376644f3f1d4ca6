"""The work of the node that leads the control log: who votes on it, and topics that grow with it.

A newcomer observes until it holds all that is committed; then it is made a voter. Each change is an
election of its own, and the next one waits for its outcome.
"""

import asyncio

from millstream.config import Config
from millstream.control.balance import control_voters
from millstream.control.moves import next_voters
from millstream.engine.cluster.draining import Draining
from millstream.engine.cluster.growing import Growing
from millstream.engine.cluster.leaving import Leaving
from millstream.engine.cluster.members import Members
from millstream.engine.cluster.moving import Moving, change_voters, may_vote
from millstream.engine.cluster.peer_calls import PeerCalls
from millstream.engine.cluster.preferring import Preferring
from millstream.engine.cluster.reach import Reach
from millstream.engine.controller import Controller
from millstream.model import CONTROL_LOG, NodeId, node_of, replica_id
from millstream.names import CONTROL_LOG_NAME
from millstream.ports import Links
from millstream.replication.hub import Hub

# How often a member looks for changes of its cluster, and while one is under way.
CHECK_S, UNFINISHED_S = 0.5, 0.1
HAND_OVER_S_MAX = 5.0  # Of a node that is drained, until it looks at its cluster again.


class ActiveController:
    def __init__(
        self,
        members: Members,
        controller: Controller,
        hub: Hub,
        config: Config,
        peers: PeerCalls,
        links: Links,
        *,
        draining: Draining,
    ) -> None:
        self._members = members
        self._draining = draining
        self._controller = controller
        self._hub = hub
        self._growing = Growing(members, controller, config)
        self._moving = Moving(members, controller, hub)
        self.leaving = Leaving(members, controller)
        self._reach = Reach(members, hub, links, peers)
        self.preferring = Preferring(members, controller, hub, peers, self._reach, config)

    async def run(self) -> None:
        """Follow the nodes of the cluster until cancelled, once there is one."""
        await self._members.is_in_cluster.wait()
        while True:
            await self._members.follow()
            if self._draining.is_drained:  # Also what it was elected for since.
                await self._draining.hand_over(HAND_OVER_S_MAX)
            await self._reach.hand_over()
            control = self._hub.replicas[CONTROL_LOG]
            is_unfinished = self._moving.look_for_leader(control, control.core.voters)
            is_unfinished = self.arrange_voters() or is_unfinished
            if self._controller.is_leader and not is_unfinished:
                is_unfinished = await self._growing.place()
                is_unfinished = await self.leaving.advance() or is_unfinished
            is_unfinished = await self._moving.advance() or is_unfinished
            await self.preferring.balance()
            await asyncio.sleep(UNFINISHED_S if is_unfinished else CHECK_S)

    def arrange_voters(self) -> bool:
        """Add or remove one voter of the control log, if it should have others; return whether
        there is more to do."""
        if not self._controller.is_leader or not self._controller.state.nodes.members():
            return False
        voters = self._controller.voters
        current = {node_of(voter): voter for voter in voters}
        down = {each.node_id for each in self._members.nodes if not self._is_up(each.node_id)}
        nodes = control_voters(
            self._controller.state.nodes, list(current), self._members.me, down=down
        )
        planned = frozenset(current.get(node) or replica_id(node) for node in nodes)
        if not planned or planned == voters:
            return False
        replica = self._hub.replicas[CONTROL_LOG]
        able = {each for each in planned - voters if may_vote(replica, each)}
        if able or planned <= voters:
            following = next_voters(
                voters,
                planned & voters | able,
                me=replica.me,
                lost=frozenset(each for each in voters if not self._is_up(node_of(each))),
            )
            # A leader that is to go resigns by itself; without another voter it stays.
            if following is None and len(voters) > 1:
                following = voters - {replica.me}
            if following is not None:
                change_voters(self._hub, CONTROL_LOG, CONTROL_LOG_NAME, following)
        return True

    def _is_up(self, node_id: NodeId) -> bool:
        return self._members.is_up(node_id)
