"""Delayed records and message ids in a cluster: topic and `__deferred` led by different nodes."""

import asyncio
from contextlib import suppress

import pytest

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.errors import ChangeRefused, NotLeader, RequestError
from millstream.internal_topics.groups import partition_for
from millstream.model import Acks, Appended, NodeId, TopicPartition, node_of
from millstream.names import DELAYED_TOPIC
from millstream.server.node import Node
from tests.simulation.grown_cluster import SESSION, GrownCluster, until
from tests.simulation.grown_topics import with_cluster
from tests.simulation.node_world import START_MS
from tests.simulation.test_any_node import CLIENT, leaders, read

ORDERS = TopicPartition("orders", 0)


def batch(value: bytes, *, sequence: int = -1, **headers: bytes) -> bytes:
    named = tuple((name.replace("_", "-"), text) for name, text in headers.items())
    record = Record(0, START_MS, None, value, named)
    if sequence < 0:
        return encode_batch([record])
    return encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)


async def send(node: Node, data: bytes) -> Appended:
    """Send until it is taken, as a client does."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await node.partitions.append(CLIENT, ORDERS, data, Acks.ALL)
            except RequestError as problem:
                if not problem.retriable:
                    raise
                await asyncio.sleep(0.05)


async def delivered(node: Node, count: int) -> None:
    """Wait until so many records can be read; what was delayed left gaps between offsets."""
    async with asyncio.timeout(30):
        while len(await read(node, 0)) < count:
            await asyncio.sleep(0.05)


def set_clocks(cluster: GrownCluster) -> None:
    """The time of day is the same on all nodes: the next keeper goes by its own."""
    for machine in cluster.machines.values():
        machine.clock.skew_ms = 0


def shard_leader(node: Node) -> NodeId | None:
    """The node that keeps the delayed records of the topic."""
    topic = node.topics.describe(SESSION, DELAYED_TOPIC)
    partition = partition_for("orders", topic.partition_count)
    return node.partitions.leadership(SESSION, topic)[partition].leader


async def apart(cluster: GrownCluster) -> NodeId:
    """Create the topic, led by a node that does not lead its part of `__deferred`; return that."""
    set_clocks(cluster)
    node = cluster.all()[0]
    await node.topics.create(SESSION, "first", placement=[(NodeId(1),)])
    await until(lambda: leader_of(node, "first") == 1)
    first = TopicPartition("first", 0)
    with suppress(RequestError):  # It has created `__deferred`, whoever leads that.
        await node.partitions.append(CLIENT, first, batch(b"-", ms_delay_ms=b"1"), Acks.ALL)
    await until(lambda: shard_leader(node) is not None)
    other = next(number for number in cluster.nodes if number != shard_leader(node))
    await node.topics.create(SESSION, "orders", placement=[(other,)])
    for each in cluster.all():
        await until(lambda each=each: leaders(each, 1) == [other])  # type: ignore[misc]
    return other


def leader_of(node: Node, name: str) -> NodeId | None:
    topic = node.topics.describe(SESSION, name)
    return node.partitions.leadership(SESSION, topic)[0].leader


def test_a_record_is_delayed_and_delivered_once_across_nodes() -> None:
    async def live(cluster: GrownCluster) -> None:
        await apart(cluster)
        for number, node in enumerate(cluster.all()):
            appended = await send(node, batch(b"%d" % number, ms_delay_ms=b"2000"))
            assert len(appended.delayed) == 1
        node = cluster.all()[0]
        assert await read(node, 0) == []
        await delivered(node, 3)
        await asyncio.sleep(3)
        assert sorted(await read(node, 0)) == [b"0", b"1", b"2"]

    with_cluster(3, live)


def test_a_retry_of_an_idempotent_producer_is_not_delayed_twice() -> None:
    async def live(cluster: GrownCluster) -> None:
        await apart(cluster)
        node = cluster.all()[0]
        data = batch(b"once", sequence=0, ms_delay_ms=b"1000")
        assert (await send(node, data)).delayed
        await send(node, data)
        await delivered(node, 1)
        await asyncio.sleep(3)
        assert await read(node, 0) == [b"once"]

    with_cluster(3, live)


def test_what_is_delayed_outlives_the_node_that_keeps_it() -> None:
    async def live(cluster: GrownCluster) -> None:
        leader = await apart(cluster)
        node = cluster.nodes[leader]
        for number in range(10):
            await send(node, batch(b"%d" % number, ms_delay_ms=b"3000"))
        keeper = shard_leader(node)
        assert keeper is not None
        assert keeper != leader
        cluster.lose_power(keeper)
        await delivered(node, 10)
        await asyncio.sleep(3)
        assert sorted(await read(node, 0)) == [b"%d" % number for number in range(10)]

    with_cluster(3, live)


def test_a_message_id_counts_where_delayed_records_are_kept_elsewhere() -> None:
    async def live(cluster: GrownCluster) -> None:
        await apart(cluster)
        node = cluster.all()[0]
        await send(node, batch(b"later", ms_delay_ms=b"2000", ms_message_id=b"a"))
        copy = await send(node, batch(b"copy", ms_message_id=b"a"))
        assert list(copy.duplicates) == [0]
        await send(node, batch(b"other", ms_message_id=b"b"))
        await delivered(node, 2)
        await asyncio.sleep(1)
        assert sorted(await read(node, 0)) == [b"later", b"other"]

    with_cluster(3, live)


async def hand_over(cluster: GrownCluster, successor: NodeId) -> None:
    """Have another node lead the topic."""
    while (leader := leader_of(cluster.nodes[successor], "orders")) != successor:
        if leader is not None:
            node = cluster.nodes[leader]
            log_id = node.topics.describe(SESSION, "orders").log(0)
            replica = node.hub.replicas[log_id]
            with suppress(ChangeRefused, NotLeader):
                to = next(each for each in replica.core.voters if node_of(each) == successor)
                node.hub.leadership.transfer(log_id, to)
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_delayed_records_come_once_while_the_leader_of_their_topic_changes(seed: int) -> None:
    async def live(cluster: GrownCluster) -> None:
        set_clocks(cluster)
        node = cluster.all()[0]
        await node.topics.create(SESSION, "orders", replicas=3)
        for each in cluster.all():
            await until(lambda each=each: leaders(each, 1) is not None)  # type: ignore[misc]
        await send(node, batch(b"0", ms_delay_ms=b"100"))
        keeper = shard_leader(node)
        assert keeper is not None
        other = next(number for number in cluster.nodes if number != keeper)
        await hand_over(cluster, keeper)
        for number in range(1, 40):
            await send(node, batch(b"%d" % number, ms_delay_ms=b"%d" % (100 * number)))
        for successor in (other, keeper, other):
            await asyncio.sleep(0.7)
            await hand_over(cluster, successor)
        await delivered(node, 40)
        await asyncio.sleep(3)
        assert sorted(await read(node, 0), key=int) == [b"%d" % number for number in range(40)]

    with_cluster(3, live, seed=seed)


def test_a_delay_counts_by_what_is_left_of_it_when_clocks_differ() -> None:
    async def live(cluster: GrownCluster) -> None:
        leader = await apart(cluster)
        for number, machine in cluster.machines.items():
            machine.clock.skew_ms = 3_600_000 if number == leader else 0
        node = cluster.nodes[leader]
        await send(node, batch(b"later", ms_delay_ms=b"2000"))
        assert await read(node, 0) == []
        await delivered(node, 1)

    with_cluster(3, live)
