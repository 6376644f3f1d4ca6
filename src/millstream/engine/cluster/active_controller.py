"""The work of the node that leads the control log: who votes on it, and topics that grow with it.

A newcomer observes until it holds all that is committed; then it is made a voter. Each change is an
election of its own, and the next one waits for its outcome.
"""

import asyncio

from millstream.control.balance import control_voters
from millstream.engine.cluster.draining import Draining
from millstream.engine.cluster.growing import Growing, change_voters
from millstream.engine.cluster.members import Members
from millstream.engine.controller import Controller
from millstream.model import CONTROL_LOG, ReplicaId, node_of, replica_id
from millstream.names import CONTROL_LOG_NAME
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
        *,
        draining: Draining,
        growing: Growing,
    ) -> None:
        self._members = members
        self._draining = draining
        self._controller = controller
        self._hub = hub
        self._growing = growing

    async def run(self) -> None:
        """Follow the nodes of the cluster until cancelled, once there is one."""
        await self._members.is_in_cluster.wait()
        while True:
            await self._members.follow()
            if self._draining.is_drained:  # Also what it was elected for since.
                await self._draining.hand_over(HAND_OVER_S_MAX)
            is_unfinished = self.arrange_voters()
            if self._controller.is_leader and not is_unfinished:
                is_unfinished = await self._growing.place()
            is_unfinished = self._growing.admit() or is_unfinished
            await asyncio.sleep(UNFINISHED_S if is_unfinished else CHECK_S)

    def arrange_voters(self) -> bool:
        """Add or remove one voter of the control log, if it should have others; return whether
        there is more to do."""
        if not self._controller.is_leader or not self._controller.state.nodes.members():
            return False
        voters = self._controller.voters
        current = {node_of(voter): voter for voter in voters}
        planned = control_voters(self._controller.state.nodes, list(current), self._members.me)
        if not planned or set(planned) == current.keys():
            return False
        for node in planned:
            if node not in current and self._try(voters | {replica_id(node)}):
                return True
        for node, voter in current.items():
            is_last = len(current) == 1
            if node not in planned and not is_last and self._try(voters - {voter}):
                return True
        return True

    def _try(self, voters: frozenset[ReplicaId]) -> bool:
        return change_voters(self._hub, CONTROL_LOG, CONTROL_LOG_NAME, voters)
