"""Empties nodes that leave: the active controller moves their replicas, then removes them.

Works for a node that is dead as well. What is left to do follows from the catalog and the nodes, so
any controller goes on.
"""

import logging

from millstream.control.balance import Candidate, candidates
from millstream.control.commands import ChangeNode, MoveReplicas, Replicas
from millstream.control.moves import evacuation, moving_count
from millstream.control.nodes import Node, NodeState
from millstream.engine.cluster.members import Members
from millstream.engine.controller import Controller
from millstream.errors import RequestError
from millstream.errors.cluster import NodeRefused
from millstream.model import SYSTEM_SESSION, NodeId, node_of

MOVES_AT_ONCE = 100  # Partitions of the whole cluster that move for nodes that leave.

_log = logging.getLogger(__name__)


class Leaving:
    def __init__(self, members: Members, controller: Controller) -> None:
        self._members = members
        self._controller = controller
        self._problems: dict[NodeId, str] = {}  # As they were logged.

    async def advance(self) -> bool:
        """Move some partitions, or remove a node that is empty; return whether a node leaves. For
        the active controller."""
        leaving = [node for node in self._members.nodes if node.state is NodeState.LEAVING]
        for node in leaving:
            try:
                await self._empty(node)
                self._problems.pop(node.node_id, None)
            except RequestError as problem:
                if self._problems.get(node.node_id) != str(problem):
                    self._problems[node.node_id] = str(problem)
                    _log.warning("a node cannot leave yet node=%d %s", node.node_id, problem)
        return bool(leaving)

    def check(self, node: Node) -> None:
        """Raise `NodeRefused` if some replica of a node could go nowhere."""
        for _ in evacuation(
            self._controller.state.nodes, self._controller.state.catalog, node, self._places(node)
        ):
            pass

    def _places(self, node: Node) -> list[Candidate]:
        return [
            place
            for place in candidates(self._controller.state.nodes, ())
            if place.node_id != node.node_id and self._members.is_up(place.node_id)
        ]

    async def _empty(self, node: Node) -> None:
        state = self._controller.state
        if not state.catalog.partitions_on(node.node_id):
            await self._remove(node)
            return
        free = MOVES_AT_ONCE - moving_count(state.catalog)
        targets: dict[str, dict[int, Replicas | None]] = {}
        for topic, partition, nodes in evacuation(
            state.nodes, state.catalog, node, self._places(node)
        ):
            if free <= 0:
                break
            free -= 1
            targets.setdefault(topic.name, {})[partition] = nodes
        for name, moves in targets.items():
            topic_id = state.catalog.find_own(name).topic_id
            command = MoveReplicas(name=name, topic_id=topic_id, targets=moves)
            await self._controller.propose(SYSTEM_SESSION, command)
            _log.info("moving topic=%s partitions=%d from=%d", name, len(moves), node.node_id)

    async def _remove(self, node: Node) -> None:
        if node.node_id in map(node_of, self._controller.voters):
            raise NodeRefused("it votes on the control log still")
        command = ChangeNode(node_id=node.node_id, state=NodeState.REMOVED.value)
        await self._controller.alter_nodes(SYSTEM_SESSION, command)
        _log.info("removed node=%d", node.node_id)
