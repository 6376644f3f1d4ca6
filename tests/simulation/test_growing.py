"""Clusters that grow from one node: voters, placement, proposals from any node, leaders."""

import asyncio
from contextlib import suppress
from uuid import UUID

import msgspec
import pytest

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.control.commands import AddReplicas
from millstream.control.nodes import NodeState
from millstream.control.tokens import JoinRequest
from millstream.errors import InvalidReplication, NotLeader, RequestError, TopicExists
from millstream.errors.cluster import InvalidInvitation, NodeRefused
from millstream.model import Acks, NodeId, TopicPartition, incarnation_of, node_of
from tests.simulation.grown_cluster import SESSION, GrownCluster, until
from tests.simulation.grown_topics import append, batch, replicas_of, values_of, with_cluster
from tests.simulation.node_invariants import read_committed
from tests.simulation.node_world import START_MS
from tests.support.tiers import sized


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


# -- topics that grow with the cluster -------------------------------------------------------------


def voters_of(cluster: GrownCluster, topic: str) -> list[set[int]]:
    """The nodes that vote in each partition, as its leader has it; empty without a leader."""
    voters = []
    for partition in range(2):
        nodes: set[int] = set()
        for replica in replicas_of(cluster, topic, partition):
            if replica.is_leader and replica.core.is_established:
                nodes = {node_of(voter) for voter in replica.core.voters}
        voters.append(nodes)
    return voters


async def raised(cluster: GrownCluster, topic: str) -> None:
    await until(lambda: voters_of(cluster, topic) == [{1, 2, 3}] * 2)


def test_a_topic_made_on_one_node_has_three_replicas_once_there_are_three() -> None:
    async def live(cluster: GrownCluster) -> None:
        orders = TopicPartition("orders", 0)
        node = await cluster.begin()
        await node.topics.create(SESSION, "orders", partitions=2, replicas=None)
        await node.topics.create(SESSION, "single", partitions=2, replicas=1)
        for number in range(10):
            await append(cluster, orders, b"%d" % number)
        await cluster.grow()
        await asyncio.sleep(3)
        assert voters_of(cluster, "orders") == [{1}, {1}]  # Two would be no safer.

        await cluster.grow()
        await raised(cluster, "orders")
        await append(cluster, orders, b"10")
        cluster.lose_power(1)
        assert await append(cluster, orders, b"11") != 1
        await cluster.start(NodeId(1))

        assert await values_of(cluster, "orders", 0) == [b"%d" % at for at in range(12)]
        later = [each.me for each in replicas_of(cluster, "orders") if node_of(each.me) != 1]
        assert len({incarnation_of(replica) for replica in later} - {0}) == 1
        await until(lambda: voters_of(cluster, "single") == [{1}, {1}])

    with_cluster(0, live)


def test_logs_that_were_compacted_or_cut_at_their_start_get_replicas_too() -> None:
    async def live(cluster: GrownCluster) -> None:
        node = await cluster.begin()
        compact = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
        small = {"segment_bytes": "1024"}
        await node.topics.create(
            SESSION, "keyed", partitions=2, replicas=None, settings=compact | small
        )
        await node.topics.create(SESSION, "cut", partitions=2, replicas=None, settings=small)
        for number in range(60):
            record = Record(0, START_MS, b"%d" % (number % 3), b"%03d" % number * 20)
            await node.partitions.append(
                SESSION, TopicPartition("keyed", 0), encode_batch([record]), Acks.ALL
            )
            await append(cluster, TopicPartition("cut", 0), b"%03d" % number * 20)
        keyed = replicas_of(cluster, "keyed")[0]
        await node.hub.upkeep.compact(keyed)
        assert len(read_committed(keyed, 0)) < 40
        node.partitions.delete_records(SESSION, TopicPartition("cut", 0), 50)

        await cluster.grow()
        await cluster.grow()
        await raised(cluster, "keyed")
        await raised(cluster, "cut")
        cluster.lose_power(1)
        await append(cluster, TopicPartition("cut", 0), b"last")
        await append(cluster, TopicPartition("cut", 0), b"last")

        cut = [b"%03d" % number * 20 for number in range(50, 60)]
        assert await values_of(cluster, "cut", 0) == [*cut, b"last", b"last"]
        values = await values_of(cluster, "keyed", 0)
        assert {b"%03d" % number * 20 for number in (57, 58, 59)} <= set(values)

    with_cluster(0, live)


@pytest.mark.parametrize("seed", range(1, sized(60) + 1))
def test_replicas_are_added_though_nodes_lose_power_meanwhile(seed: int) -> None:
    """Each life loses the power of nodes at other moments of the growing, the founder's too."""

    async def live(cluster: GrownCluster) -> None:
        random = cluster.random
        acknowledged: list[list[bytes]] = [[], []]

        async def write(count: int) -> None:
            for _ in range(count):
                for partition, values in enumerate(acknowledged):
                    value = b"%d" % len(values)
                    await append(cluster, TopicPartition("orders", partition), value)
                    values.append(value)

        node = await cluster.begin()
        await node.topics.create(SESSION, "orders", partitions=2, replicas=None)
        await write(5)
        await cluster.grow()
        await cluster.grow()
        for _ in range(random.randint(2, 6)):
            await asyncio.sleep(random.random() * 0.6)
            victim = NodeId(random.randint(1, 3))
            cluster.lose_power(victim)
            await asyncio.sleep(random.random() * 0.6)
            await cluster.start(victim)
            await write(1)
        await raised(cluster, "orders")
        lost = NodeId(random.randint(1, 3))
        cluster.lose_power(lost)
        await write(2)
        await cluster.start(lost)
        for partition, values in enumerate(acknowledged):
            held = await values_of(cluster, "orders", partition)
            assert list(dict.fromkeys(held)) == values  # One without an answer is sent again.

    with_cluster(0, live, seed=seed)


def test_empty_newcomers_elect_nobody_while_the_founder_is_away() -> None:
    async def live(cluster: GrownCluster) -> None:
        node, orders = cluster.nodes[NodeId(2)], TopicPartition("orders", 0)
        topic = await node.topics.create(SESSION, "orders", placement=[(NodeId(1),)] * 2)
        for number in range(5):
            await append(cluster, orders, b"%d" % number)
        cluster.lose_power(1)
        both = (NodeId(2), NodeId(3))
        command = AddReplicas(
            name="orders", topic_id=topic.topic_id, count_before=1, added=(both, both)
        )
        async with asyncio.timeout(30):
            while len(node.topics.describe(SESSION, "orders").placement[0]) == 1:
                with suppress(RequestError):  # The control log elects anew.
                    await node._controller.propose(SESSION, command)
        await asyncio.sleep(5)
        assert len(replicas_of(cluster, "orders")) == 2
        assert voters_of(cluster, "orders") == [set(), set()]

        await cluster.start(NodeId(1))
        await raised(cluster, "orders")
        await append(cluster, orders, b"5")

        assert await values_of(cluster, "orders", 0) == [b"%d" % at for at in range(6)]

    with_cluster(3, live)


def test_a_topic_that_is_deleted_while_it_grows_leaves_nothing() -> None:
    async def live(cluster: GrownCluster) -> None:
        node = await cluster.begin()
        await node.topics.create(SESSION, "orders", partitions=2, replicas=None)
        log_id = node.topics.describe(SESSION, "orders").log(0)
        await append(cluster, TopicPartition("orders", 0), b"gone")
        await cluster.grow()
        newest = await cluster.grow()
        await until(lambda: log_id in newest.hub.replicas)
        await newest.topics.delete(SESSION, "orders")
        await until(lambda: all(log_id not in each.hub.replicas for each in cluster.all()))
        await until(lambda: all(log_id not in each.hub.logs_on_disk() for each in cluster.all()))

    with_cluster(0, live)
