"""What tests of grown clusters share: a life with one, writing to it, reading all its replicas."""

import asyncio
from collections.abc import Awaitable, Callable

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.errors import RequestError
from millstream.model import Acks, NodeId, TopicPartition
from millstream.replication.replica import Replica
from tests.simulation.grown_cluster import SESSION, GrownCluster, until
from tests.simulation.node_invariants import Entry, read_committed
from tests.simulation.node_simulator import quiet_logs
from tests.simulation.node_world import START_MS
from tests.support.virtual_loop import run


def with_cluster(
    count: int, live: Callable[[GrownCluster], Awaitable[None]], *, seed: int = 1
) -> None:
    """Live with a cluster of so many nodes; with 0, `live` begins it."""

    async def whole() -> None:
        async with asyncio.TaskGroup() as group:
            cluster = GrownCluster(group, seed)
            if count:
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


def replicas_of(cluster: GrownCluster, topic: str, partition: int = 0) -> list[Replica]:
    log_id = cluster.all()[0].topics.describe(SESSION, topic).log(partition)
    return [node.hub.replicas[log_id] for node in cluster.all() if log_id in node.hub.replicas]


async def values_of(cluster: GrownCluster, topic: str, partition: int) -> list[bytes | None]:
    """The values of a partition, once all replicas have the same ones."""

    def logs() -> list[dict[int, Entry]]:
        return [read_committed(each, 0) for each in replicas_of(cluster, topic, partition)]

    def are_equal() -> bool:
        ends = {each.high_watermark for each in replicas_of(cluster, topic, partition)}
        leaders = [each for each in replicas_of(cluster, topic, partition) if each.is_leader]
        return bool(leaders) and ends == {leaders[0].log.end_offset}

    await until(are_equal)
    first, *others = logs()
    assert all(log == first for log in others)
    return [value for _, value in first.values()]
