"""The nodes of the cluster and the replicas on them, as operators ask for them."""

from collections.abc import Mapping

import msgspec

from millstream.control.assignments import Assignment
from millstream.control.balance import candidates
from millstream.control.catalog import Topic
from millstream.control.commands import ChangeNode, FinalizeLevel, MoveReplicas, Replicas
from millstream.control.moves import Relocation, rebalancing
from millstream.control.nodes import Address, Invitation, Node, NodeState
from millstream.cooperative import one_by_one
from millstream.engine.cluster.active_controller import ActiveController
from millstream.engine.cluster.members import Members, NodeView
from millstream.engine.cluster.upgrading import Features
from millstream.engine.controller import Controller
from millstream.engine.gate import CLUSTER, Gate, Operation
from millstream.errors import InvalidReplication
from millstream.errors.cluster import NodeRefused
from millstream.model import NodeId, Session


class ClusterAdmin:
    def __init__(
        self,
        gate: Gate,
        controller: Controller,
        members: Members,
        active_controller: ActiveController,
    ) -> None:
        self._gate = gate
        self._controller = controller
        self._members = members
        self._leaving = active_controller.leaving
        self._preferring = active_controller.preferring

    async def describe(self, session: Session, listener: str, me: Address) -> list[NodeView]:
        """All nodes of the cluster, with what each says of itself."""
        self._gate.admit(session, Operation.DESCRIBE, CLUSTER)
        return await self._members.describe(listener, me)

    def known(self, session: Session, listener: str, me: Address) -> list[NodeView]:
        """The same without asking the nodes: their figures are left out."""
        self._gate.admit(session, Operation.DESCRIBE, CLUSTER)
        return self._members.known(listener, me)

    async def invite(self, session: Session, addresses: tuple[str, ...]) -> str:
        """Make a token for one node; `addresses` is where it will ask, HOST:PORT of clients."""
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        return await self._members.invite(session, addresses)

    async def invite_here(self, session: Session, dialled_host: str) -> str:
        """The same, for a client of no Kafka listener; `dialled_host` is how it reached this node.

        Raises `NodeRefused` if the node has no Kafka listener.
        """
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        return await self._members.invite(session, self._members.kafka_addresses(dialled_host))

    def invitations(self, session: Session) -> list[Invitation]:
        """Those with which a node can join now."""
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        return self._members.invitations()

    async def revoke(self, session: Session, name: str) -> None:
        """Take an invitation back, by its public name."""
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        await self._members.revoke(session, name)

    def is_alone(self, session: Session) -> bool:
        """Whether this node was never asked to grow into a cluster."""
        self._gate.admit(session, Operation.DESCRIBE, CLUSTER)
        return self._members.membership is None

    def listeners(self, session: Session, node_id: int) -> dict[str, Address]:
        """Where a registered node serves clients, by the name of the listener."""
        self._gate.admit(session, Operation.DESCRIBE, CLUSTER)
        node = self._members.find(NodeId(node_id))
        return {} if node is None else dict(node.listeners)

    async def change(self, session: Session, node_id: int, state: NodeState) -> Node:
        """Drain a node, take it back, or remove it for ever."""
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        if state is NodeState.LEAVING:
            return await self.decommission(session, node_id)
        return await self._members.change(session, node_id, state)

    async def decommission(
        self, session: Session, node_id: int, successor: int | None = None
    ) -> Node:
        """Move all replicas away from a node, to `successor` if one is named, then remove it.

        Raises `NodeRefused` if some replica could go nowhere. `change` takes it back until then.
        """
        self.check_decommission(session, node_id, successor)
        command = ChangeNode(
            node_id=node_id, state=NodeState.LEAVING.value, successor=successor or 0
        )
        outcome = await self._controller.alter_nodes(session, command)
        assert isinstance(outcome, Node)
        return outcome

    def check_decommission(
        self, session: Session, node_id: int, successor: int | None = None
    ) -> None:
        """Raise what `decommission` would raise."""
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        nodes = self._controller.state.nodes
        node = nodes.find(node_id)
        if len(nodes.members()) == 1:
            raise NodeRefused(f"node {node_id} cannot leave: it is the last one of its cluster")
        if successor is not None:
            nodes.find(successor)
            nodes.check_takes_replicas(NodeId(successor))
        after = None if successor is None else NodeId(successor)
        self._leaving.check(msgspec.structs.replace(node, successor=after))

    def features(self, session: Session) -> Features:
        """The level of `cluster.version` that is in use, and the levels that nodes know."""
        self._gate.admit(session, Operation.DESCRIBE, CLUSTER)
        return self._members.features

    def check_upgrade(self, session: Session, level: int | None = None) -> int:
        """Raise what `upgrade` would raise; return the level that it would finalize."""
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        features = self._members.features
        if level is None:
            level = max(levels.highest for levels in features.known_by.values())
        if level != features.level:
            self._controller.state.check(FinalizeLevel(level=level))
        return level

    async def upgrade(self, session: Session, level: int | None = None) -> int:
        """Finalize a level of `cluster.version`, the highest that a node knows unless one is named.

        Raises `LevelRefused` if some node does not know it. There is no way back.
        """
        level = self.check_upgrade(session, level)
        if level != self._members.features.level:
            await self._controller.finalize_level(session, level)
        return level

    def check_move(
        self,
        session: Session,
        name: str,
        partition: int,
        nodes: Replicas | None,
        *,
        may_resize: bool = True,
    ) -> None:
        """Raise what `move` would raise for one partition, and `InvalidReplication` for another
        number of replicas unless it may change."""
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        topic = self._controller.state.catalog.find_own(name)
        command = MoveReplicas(name=name, topic_id=topic.topic_id, targets={partition: nodes})
        self._controller.state.check(command)
        count = len(topic.placement[partition])
        if nodes is not None and len(nodes) != count and not may_resize:
            raise InvalidReplication(
                f"{name}-{partition} has {count} replicas, and {len(nodes)} are asked for"
            )

    async def move(
        self, session: Session, name: str, targets: Mapping[int, Replicas | None]
    ) -> Topic:
        """Move partitions of a topic to other nodes; None takes one back to where it was.

        Returns when the move has begun: `moves` lists it until it is done.
        """
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        topic = self._controller.state.catalog.find_own(name)
        command = MoveReplicas(name=name, topic_id=topic.topic_id, targets=dict(targets))
        return await self._controller.propose(session, command)

    async def plan_rebalance(self, session: Session, *, count_max: int) -> list[Relocation]:
        """Where partitions would lie if all nodes held about as many; nothing is moved.

        Nodes that are drained or cannot be reached are left alone.
        """
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        state = self._controller.state
        places = [
            place
            for place in candidates(state.nodes, ())
            if self._members.is_available(place.node_id)
        ]
        return await one_by_one(rebalancing(state.catalog, places, count_max=count_max))

    async def elect(
        self, session: Session, name: str, partition: int, node: NodeId | None = None
    ) -> None:
        """Have a node lead a partition, the first of its replicas if none is named; raise why it
        does not."""
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        topic = self._controller.state.catalog.find(name)
        log_id = topic.log(partition)
        preferred = topic.placement[partition][0]
        await self._preferring.elect(log_id, preferred if node is None else node)

    def moves(self, session: Session) -> list[tuple[Topic, int, Assignment]]:
        """The partitions that move, in the order of their topics."""
        self._gate.admit(session, Operation.DESCRIBE, CLUSTER)
        return [
            (topic, partition, assignment)
            for topic in sorted(self._controller.state.catalog.topics(), key=lambda each: each.name)
            for partition, assignment in sorted(topic.assignments.items())
            if assignment.is_moving
        ]
