"""Clusters that grow from one node: voters, placement, proposals from any node, leaders."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import msgspec
import pytest

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.control.nodes import NodeState
from millstream.control.tokens import JoinRequest
from millstream.errors import InvalidReplication, NotLeader, RequestError, TopicExists
from millstream.errors.cluster import InvalidInvitation, NodeRefused
from millstream.model import Acks, NodeId, TopicPartition
from tests.simulation.grown_cluster import SESSION, GrownCluster, until
from tests.simulation.node_simulator import quiet_logs
from tests.simulation.node_world import START_MS
from tests.support.virtual_loop import run


def with_cluster(count: int, live: Callable[[GrownCluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.TaskGroup() as group:
            cluster = GrownCluster(group)
            await cluster.grow_to(count)
            await live(cluster)
            await cluster.close()

    with quiet_logs():
        run(whole())


def batch(value: bytes) -> bytes:
    return encode_batch([Record(0, START_MS, None, value)])


async def append(cluster: GrownCluster, target: TopicPartition, value: bytes) -> NodeId:
    """Write to the leader, whichever node that is; return it."""
    async with asyncio.timeout(30):
        while True:
            for node in cluster.all():
                try:
                    await node.partitions.append(SESSION, target, batch(value), Acks.ALL)
                    return NodeId(node.config.node_id)
                except RequestError:
                    continue
            await asyncio.sleep(0.05)


def test_a_cluster_grows_from_one_node_and_topics_made_anywhere_are_everywhere() -> None:
    async def live(cluster: GrownCluster) -> None:
        for node_id in (1, 2, 3):
            node = cluster.nodes[NodeId(node_id)]
            topic = await node.topics.create(
                SESSION, f"of-{node_id}", partitions=3, replicas=node.topics.default_replicas
            )
            assert all(set(replicas) == {1, 2, 3} for replicas in topic.placement)
            assert len({replicas[0] for replicas in topic.placement}) == 3
        for node in cluster.all():
            await until(lambda node=node: len(node.topics.list(SESSION)) == 3)  # type: ignore[misc]
            with pytest.raises(TopicExists):
                await node.topics.create(SESSION, "of-1")
        with pytest.raises(InvalidReplication, match="4 replicas asked for, there are 3 nodes"):
            await cluster.all()[1].topics.create(SESSION, "of-4", replicas=4)

    with_cluster(3, live)


def test_a_lost_leader_is_replaced_and_nothing_acknowledged_is_gone() -> None:
    async def live(cluster: GrownCluster) -> None:
        orders = TopicPartition("orders", 0)
        await cluster.all()[0].topics.create(SESSION, "orders", replicas=3)
        leader = await append(cluster, orders, b"first")
        cluster.lose_power(leader)
        other = await append(cluster, orders, b"second")
        assert other != leader
        await cluster.start(leader)
        replica_of = [node.topics.describe(SESSION, "orders").log(0) for node in cluster.all()]
        await until(
            lambda: all(
                node.hub.replicas[log].high_watermark == 2
                for node, log in zip(cluster.all(), replica_of, strict=True)
            )
        )

    with_cluster(3, live)


def test_a_node_without_a_replica_knows_the_leader() -> None:
    async def live(cluster: GrownCluster) -> None:
        orders = TopicPartition("orders", 0)
        topic = await cluster.all()[0].topics.create(SESSION, "orders", placement=[(NodeId(2),)])
        for node in cluster.all():
            await until(
                lambda node=node: node.partitions.leadership(SESSION, topic)[0].leader == 2  # type: ignore[misc]
            )
        with pytest.raises(NotLeader) as caught:
            await cluster.nodes[NodeId(3)].partitions.append(
                SESSION, orders, batch(b"lost"), Acks.ALL
            )
        assert caught.value.leader == 2

    with_cluster(3, live)


def test_a_follower_that_was_away_hosts_nothing_of_deleted_topics() -> None:
    async def live(cluster: GrownCluster) -> None:
        for number in range(10):
            await cluster.all()[0].topics.create(SESSION, f"old-{number}", replicas=3)
        cluster.lose_power(3)
        for number in range(10):
            await cluster.nodes[NodeId(1)].topics.delete(SESSION, f"old-{number}")
        await cluster.nodes[NodeId(1)].topics.create(SESSION, "new", replicas=3)
        await asyncio.sleep(2)
        opened: list[str] = []
        node = await cluster.start(NodeId(3))
        opened += [each.name for each in node.hub.replicas.values()]
        assert sorted(opened) == ["(control log)", "new-0"]

    with_cluster(3, live)


def test_a_token_serves_one_node_and_a_stranger_gets_none() -> None:
    async def live(cluster: GrownCluster) -> None:
        members = cluster.nodes[NodeId(1)].members
        assert members.membership is not None
        await cluster.grow(through=2)
        request = JoinRequest(
            directory_id=str(UUID(int=1)),
            peer="node:1",
            nonce=b"n" * 32,
            cluster_id=members.membership.cluster_id,
        )
        with pytest.raises(InvalidInvitation, match="was used, or was never given"):
            await members.admit(SESSION, b"unknown", request, b"proof")
        stranger = msgspec.structs.replace(request, cluster_id="another")
        with pytest.raises(InvalidInvitation, match="is of the cluster another"):
            await members.admit(SESSION, b"unknown", stranger, b"proof")

    with_cluster(3, live)


def test_a_removed_node_is_refused_for_ever() -> None:
    async def live(cluster: GrownCluster) -> None:
        members = cluster.nodes[NodeId(2)].members
        await cluster.grow()

        await members.change(SESSION, 4, NodeState.REMOVED)

        with pytest.raises(NodeRefused, match="removed"):
            await members.change(SESSION, 4, NodeState.ACTIVE)
        await until(lambda: all(node.topics.machine_count == 3 for node in cluster.all()))

    with_cluster(3, live)
