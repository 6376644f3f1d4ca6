"""A rolling upgrade of three nodes under writes: the new level comes last, and for good."""

import asyncio

import pytest

from millstream.config import Config
from millstream.control.commands import FinalizeLevel
from millstream.errors import StartupError
from millstream.errors.cluster import LevelRefused, NodeRefused
from millstream.model import FIRST_LEVELS, LevelRange, NodeId, TopicPartition
from millstream.server.node import build_node
from millstream.storage.files.membership import read_membership
from tests.simulation.grown_cluster import SESSION, GrownCluster, until
from tests.simulation.grown_topics import append, values_of, with_cluster

NEWER = LevelRange(1, 2)
ORDERS = TopicPartition("orders", 0)


class Writing:
    """Writes one record after another until it is stopped."""

    def __init__(self, cluster: GrownCluster) -> None:
        self.acknowledged: list[bytes] = []
        self._cluster = cluster
        self._is_over = False

    async def run(self) -> None:
        while not self._is_over:
            value = b"%d" % len(self.acknowledged)
            await append(self._cluster, ORDERS, value)
            self.acknowledged.append(value)
            await asyncio.sleep(0.01)

    async def wait_for_more(self) -> None:
        count = len(self.acknowledged)
        await until(lambda: len(self.acknowledged) > count)

    def stop(self) -> None:
        self._is_over = True


async def restart(cluster: GrownCluster, node_id: int, levels: LevelRange) -> None:
    """Stop a node and start another version there; return when all know what that one knows."""
    await cluster.stop(node_id)
    cluster.machines[NodeId(node_id)].levels = levels
    await cluster.start(NodeId(node_id))
    await until(
        lambda: all(known_by(cluster, at)[NodeId(node_id)] == levels for at in cluster.nodes)
    )


def known_by(cluster: GrownCluster, at: int) -> dict[NodeId, LevelRange]:
    return cluster.nodes[NodeId(at)].members.features.known_by


async def begin_older(cluster: GrownCluster) -> None:
    cluster.levels = FIRST_LEVELS
    await cluster.grow_to(3)
    await cluster.all()[0].topics.create(SESSION, "orders", replicas=3)


def test_three_nodes_are_upgraded_one_by_one_under_writes() -> None:
    async def live(cluster: GrownCluster) -> None:
        await begin_older(cluster)
        writing = Writing(cluster)
        async with asyncio.TaskGroup() as group:
            group.create_task(writing.run())
            for node_id in (1, 2, 3):
                admin = cluster.all()[0].cluster
                assert admin.features(SESSION).level == 1
                with pytest.raises(LevelRefused, match=f"node {node_id} knows level 1"):
                    await admin.upgrade(SESSION, 2)
                await restart(cluster, node_id, NEWER)
                await writing.wait_for_more()
            assert await cluster.nodes[NodeId(2)].cluster.upgrade(SESSION) == 2
            await until(lambda: all(node.members.features.level == 2 for node in cluster.all()))
            await writing.wait_for_more()
            writing.stop()
        assert writing.acknowledged == [
            value for value in dict.fromkeys(await values_of(cluster, "orders", 0)) if value
        ]

    with_cluster(0, live)


def test_a_node_goes_back_to_the_older_version_until_the_level_is_finalized() -> None:
    async def live(cluster: GrownCluster) -> None:
        await begin_older(cluster)
        await restart(cluster, 3, NEWER)
        await restart(cluster, 3, FIRST_LEVELS)
        assert await append(cluster, ORDERS, b"went on")

    with_cluster(0, live)


def test_a_node_that_is_too_old_for_its_cluster_does_not_start() -> None:
    async def live(cluster: GrownCluster) -> None:
        await cluster.grow_to(3)
        machine = cluster.machines[NodeId(3)]

        def known() -> int:
            membership = read_membership(machine.files, "")
            return 0 if membership is None else membership.level

        await until(lambda: known() == NEWER.highest)
        await cluster.stop(3)
        machine.levels = FIRST_LEVELS
        with pytest.raises(StartupError, match=r"is at level 2 of cluster\.version, and"):
            build_node(Config(), machine.ports())
        machine.levels = NEWER
        await cluster.start(NodeId(3))

    with_cluster(0, live)


def test_a_node_that_was_away_when_the_level_was_raised_stops_where_it_was_raised() -> None:
    """Its own file does not say so yet: the control log does, before any command of that level."""

    async def live(cluster: GrownCluster) -> None:
        await begin_older(cluster)
        for node_id in (1, 2, 3):
            await restart(cluster, node_id, NEWER)
        await cluster.stop(3)
        await cluster.nodes[NodeId(1)].cluster.upgrade(SESSION)
        machine = cluster.machines[NodeId(3)]
        machine.levels = FIRST_LEVELS
        node = build_node(Config(), machine.ports())
        node.members.listeners = {"kafka": ("node-3", 9092)}
        with pytest.raises(ExceptionGroup) as refused:
            async with asyncio.timeout(60):
                await node.run()
        node.abandon()
        cluster.network.detach(NodeId(3))
        assert refused.group_contains(StartupError, match="knows level 1: install the version")
        machine.levels = NEWER
        await cluster.start(NodeId(3))

    with_cluster(0, live)


def test_a_newcomer_that_is_too_old_is_refused_and_a_node_alone_needs_no_upgrade() -> None:
    async def live(cluster: GrownCluster) -> None:
        alone = await cluster.begin()
        assert await alone.cluster.upgrade(SESSION) == NEWER.highest
        await cluster.grow()
        cluster.levels = FIRST_LEVELS
        with pytest.raises(NodeRefused, match="this version of Millstream knows level 1"):
            await cluster.grow()

    with_cluster(0, live)


def test_the_level_is_raised_by_the_leader_only_if_it_agrees() -> None:
    """The node that is asked may know less than the leader of the control log."""

    async def live(cluster: GrownCluster) -> None:
        await begin_older(cluster)
        for node in cluster.all():
            with pytest.raises(LevelRefused):
                await node.cluster.upgrade(SESSION, 2)
            with pytest.raises(LevelRefused):
                await node.cluster._controller._propose(SESSION, FinalizeLevel(level=2))
        assert {node.members.features.level for node in cluster.all()} == {1}

    with_cluster(0, live)
