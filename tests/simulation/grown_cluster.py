"""A cluster of whole nodes on a fake world that grew from one, as `cluster join` grows it."""

import asyncio
from collections.abc import Callable
from random import Random
from uuid import UUID

from millstream.config import Config, Limits, Timing
from millstream.control.tokens import (
    JoinRequest,
    decode_token,
    hash_of,
    name_of,
    proof_of,
    unseal_key,
)
from millstream.model import CLUSTER_LEVELS, NodeId, Session, user_principal
from millstream.server.node import Node, build_node
from millstream.storage.files.membership import (
    Membership,
    write_cluster_key,
    write_membership,
)
from tests.simulation.node_links import Network
from tests.simulation.node_world import Machine

# As a client of Kafka: its requests are not passed on to the leader.
SESSION = Session(principal=user_principal("operator"), protocol="kafka")
WAIT_S = 30.0


class GrownCluster:
    """Nodes by their ids. `grow` adds one by a token, as an operator does."""

    def __init__(self, group: asyncio.TaskGroup, seed: int = 1) -> None:
        self.random = Random(seed)
        self.network = Network(self.random)
        self.machines: dict[NodeId, Machine] = {}
        self.nodes: dict[NodeId, Node] = {}
        self._tasks: dict[NodeId, asyncio.Task[None]] = {}
        self._group = group
        # Of nodes that are started from now on.
        self.levels = CLUSTER_LEVELS
        self.limits = Limits()
        self.leader_balance_ms = Timing().leader_balance_ms

    async def begin(self) -> Node:
        """The first node, alone."""
        node_id = NodeId(1)
        self._build_machine(node_id)
        return await self.start(node_id)

    async def start(self, node_id: NodeId, *, election_timeout_ms: int = 200) -> Node:
        timing = Timing(
            tick_ms=20,
            election_timeout_ms=election_timeout_ms,
            leader_balance_ms=self.leader_balance_ms,
        )
        config = Config(
            timing=timing,
            limits=self.limits,
            offsets_partitions=2,
            transaction_partitions=2,
            delayed_partitions=2,
        )
        node = self.nodes[node_id] = build_node(config, self.machines[node_id].ports())
        node.members.listeners = {"kafka": (f"node-{node_id}", 9092)}
        self._tasks[node_id] = self._group.create_task(self._live(node))
        await until(node.ready.is_set)
        return node

    async def grow(self, through: int = 1) -> Node:
        """Invite a node and have it join; `through` is the node that is asked."""
        host = self.nodes[NodeId(through)].members
        token = decode_token(await host.invite(SESSION, ("node-1:9092",)))
        secret_hash = hash_of(token.secret)
        directory_id = UUID(int=self.random.getrandbits(128), version=4)
        request = JoinRequest(
            directory_id=str(directory_id),
            peer="node:9093",
            nonce=self.random.randbytes(32),
            cluster_id=token.cluster_id,
            levels=self.levels,
        )
        proof = proof_of(secret_hash, request)
        admission = await host.admit(SESSION, name_of(secret_hash), request, proof)
        node_id = NodeId(admission.node_id)
        machine = self._build_machine(node_id)
        write_cluster_key(
            machine.files, unseal_key(secret_hash, request.nonce, admission.sealed_key)
        )
        membership = Membership(
            node_id=node_id,
            cluster_id=admission.cluster_id,
            directory_id=directory_id,
            generation=admission.generation,
            listen="node:9093",
            address="node:9093",
            founders=admission.founders,
            peers=admission.peers,
        )
        write_membership(machine.files, membership)
        return await self.start(node_id)

    async def grow_to(self, count: int) -> None:
        await self.begin()
        while len(self.nodes) < count:
            await self.grow()
        await until(lambda: all(len(n.topics.quorum(SESSION).voters) >= 3 for n in self.all()))
        await until(lambda: all(node.topics.machine_count == count for node in self.all()))

    def all(self) -> list[Node]:
        return list(self.nodes.values())

    def lose_power(self, node_id: int) -> None:
        node = NodeId(node_id)
        self.machines[node].lose_power()
        self._tasks.pop(node).cancel()
        del self.nodes[node]

    async def stop(self, node_id: int) -> None:
        """Stop a node in good order, after it has handed over."""
        node = self.nodes.pop(NodeId(node_id))
        await node.hand_over()
        node.stop()
        await self._tasks.pop(NodeId(node_id))
        self.network.detach(NodeId(node_id))

    def _build_machine(self, node_id: NodeId) -> Machine:
        machine = self.machines[node_id] = Machine(node_id, self.network, self.random)
        machine.levels = self.levels
        return machine

    async def close(self) -> None:
        for node in self.nodes.values():
            node.stop()
        await asyncio.gather(*self._tasks.values())

    async def _live(self, node: Node) -> None:
        try:
            await node.run()
        except asyncio.CancelledError:
            return  # The power went.


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.02)
