"""The nodes of the cluster as operators ask for them: describe, invite, drain, remove."""

from millstream.control.nodes import Address, Invitation, Node, NodeState
from millstream.engine.cluster.members import Members, NodeView
from millstream.engine.gate import CLUSTER, Gate, Operation
from millstream.model import NodeId, Session


class ClusterAdmin:
    def __init__(self, gate: Gate, members: Members) -> None:
        self._gate = gate
        self._members = members

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
        return await self._members.change(session, node_id, state)
