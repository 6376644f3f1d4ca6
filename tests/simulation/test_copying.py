"""Damaged records of one replica are copied anew from another one, whatever the others do."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millstream.engine.cluster.copying import Copying
from millstream.errors import InvalidRequest
from millstream.metrics import REPAIRED_RANGES
from millstream.model import LogId, NodeId, TopicPartition
from millstream.replication.repairing import replace_damage
from millstream.replication.replica import Replica
from millstream.server.node import Node
from tests.simulation.grown_cluster import SESSION, GrownCluster, until
from tests.simulation.grown_topics import append, batch, values_of, with_cluster
from tests.simulation.node_world import Machine

ORDERS = TopicPartition("orders", 0)
VALUES = [b"value-%d" % number for number in range(20)]
BAD = b"value-7"


async def fill(cluster: GrownCluster) -> LogId:
    node = cluster.all()[0]
    topic = await node.topics.create(SESSION, "orders", replicas=3)
    for value in VALUES:
        await append(cluster, ORDERS, value)
    await values_of(cluster, "orders", 0)
    return topic.log(0)


def flip(machine: Machine, log_id: LogId, value: bytes = BAD) -> None:
    """Change one bit of a value, in whichever segment it is."""
    directory = f"logs/{log_id}"
    for name in machine.files.list(directory):
        if name.endswith(".log"):
            file = machine.files.open(f"{directory}/{name}")
            data = bytes(file.read(0, file.size()))
            at = data.find(value)
            if at >= 0:
                file.write(at, [bytes([data[at] ^ 1])])
                file.sync()
                file.close()
                return
            file.close()
    raise AssertionError("the value is in no segment")


async def damaged(cluster: GrownCluster, *node_ids: int) -> LogId:
    """Stop nodes in order, change a bit there, and start them again."""
    log_id = await fill(cluster)
    for node_id in node_ids:
        await cluster.stop(node_id)
        flip(cluster.machines[NodeId(node_id)], log_id)
        await cluster.start(NodeId(node_id))
    return log_id


def meet(node: Node, log_id: LogId) -> Replica:
    """Have the node read its log, as a reader or the scrubber does; it finds the damage."""
    replica = node.hub.replicas[log_id]
    for segment in replica.log.segments():
        work = replica.log.verification(segment)
        if work is not None:
            work.run()
            work.finish()
    assert [bad.base_offset for bad in replica.log.damage()] == [VALUES.index(BAD)]
    return replica


def with_damage(*node_ids: int, live: Callable[[GrownCluster, LogId], Awaitable[None]]) -> None:
    async def whole(cluster: GrownCluster) -> None:
        await live(cluster, await damaged(cluster, *node_ids))

    with_cluster(3, whole)


def test_a_damaged_batch_is_copied_anew_and_stays_whole_over_a_restart() -> None:
    async def live(cluster: GrownCluster, log_id: LogId) -> None:
        node = cluster.nodes[NodeId(3)]
        replica = meet(node, log_id)

        await until(lambda: node.metrics.value(REPAIRED_RANGES) == 1)

        assert replica.log.damage() == []
        assert await values_of(cluster, "orders", 0) == VALUES
        await append(cluster, ORDERS, b"after")
        await cluster.stop(3)
        await cluster.start(NodeId(3))
        again = cluster.nodes[NodeId(3)].hub.replicas[log_id]
        assert again.log.verify() == len(VALUES) + 1
        assert await values_of(cluster, "orders", 0) == [*VALUES, b"after"]

    with_damage(3, live=live)


def test_a_replica_that_is_damaged_itself_gives_nothing_and_the_third_does() -> None:
    async def live(cluster: GrownCluster, log_id: LogId) -> None:
        replica = meet(cluster.nodes[NodeId(3)], log_id)

        await until(lambda: not replica.log.damage())

        assert replica.log.verify() == len(VALUES)

    with_damage(1, 3, live=live)


def test_damage_everywhere_is_left_as_it_is() -> None:
    async def live(cluster: GrownCluster, log_id: LogId) -> None:
        replicas = [meet(node, log_id) for node in cluster.all()]

        await asyncio.sleep(10)

        assert all(replica.log.damage() for replica in replicas)
        assert {node.metrics.value(REPAIRED_RANGES) for node in cluster.all()} == {0}

    with_damage(1, 2, 3, live=live)


def test_batches_that_were_not_there_are_refused() -> None:
    """A peer of another mind, or a bug, changes nothing here."""

    async def live(cluster: GrownCluster, log_id: LogId) -> None:
        node = cluster.nodes[NodeId(3)]
        for other in (1, 2):  # None that could help meanwhile.
            cluster.lose_power(other)
        replica = meet(node, log_id)
        [bad] = replica.log.damage()
        ports = cluster.machines[NodeId(3)].ports()
        sound = batch(BAD)
        for data, problem in (
            (sound, "other batches from 7 to 7"),
            (sound[:-1], "sent a damaged batch"),
            (b"", "other batches"),
            (stamped(sound, 7, epoch=99), "is of epoch 99, and here of epoch"),
        ):
            with pytest.raises(InvalidRequest, match=problem):
                await replace_damage(replica, bad, data, commits=node.hub.commits, ports=ports)
        assert replica.log.damage() == [bad]
        await cluster.start(NodeId(1))
        await cluster.start(NodeId(2))

    with_damage(3, live=live)


def test_a_peer_gives_committed_records_only() -> None:
    async def live(cluster: GrownCluster, log_id: LogId) -> None:
        node = cluster.nodes[NodeId(2)]
        copying: Copying = cluster.nodes[NodeId(3)]._copying
        replica = meet(cluster.nodes[NodeId(3)], log_id)
        [bad] = replica.log.damage()
        end = node.hub.replicas[log_id].high_watermark
        for first, last in ((0, end + 1), (5, 5), (-1, 3)):
            with pytest.raises(InvalidRequest, match="no committed records"):
                await copying._ask(
                    NodeId(2), log_id, bad._replace(base_offset=first, end_offset=last)
                )

    with_damage(3, live=live)


def stamped(data: bytes, offset: int, *, epoch: int) -> bytes:
    return offset.to_bytes(8, "big") + data[8:12] + epoch.to_bytes(4, "big") + data[16:]
