"""The nodes of the cluster as operators ask for them: describe, invite, drain, remove."""

from millstream.control.nodes import Address, Node, NodeState
from millstream.engine.cluster.members import Members, NodeView
from millstream.engine.gate import CLUSTER, Gate, Operation
from millstream.model import Session


class ClusterAdmin:
    def __init__(self, gate: Gate, members: Members) -> None:
        self._gate = gate
        self._members = members

    async def describe(self, session: Session, listener: str, me: Address) -> list[NodeView]:
        """All nodes of the cluster, with what each says of itself."""
        self._gate.admit(session, Operation.DESCRIBE, CLUSTER)
        return await self._members.describe(listener, me)

    async def invite(self, session: Session, addresses: tuple[str, ...]) -> str:
        """Make a token for one node; `addresses` is where it will ask, HOST:PORT of clients."""
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        return await self._members.invite(session, addresses)

    async def change(self, session: Session, node_id: int, state: NodeState) -> Node:
        """Drain a node, take it back, or remove it for ever."""
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        return await self._members.change(session, node_id, state)
