"""Clients that do not look for leaders are served by every node of a cluster."""

import asyncio

from millstream.codec.records import decode_all
from millstream.engine.filters.filter import parse
from millstream.engine.partitions.slices import AtTime, Earliest, LastRecords, Latest, Place, Want
from millstream.engine.publish.publisher import Publication
from millstream.errors import RequestError
from millstream.model import NodeId, Session, TopicPartition, user_principal
from millstream.server.node import Node
from tests.simulation.grown_cluster import SESSION, GrownCluster, until
from tests.simulation.grown_topics import with_cluster

CLIENT = Session(principal=user_principal("ann"), protocol="flux")
ORDERS = TopicPartition("orders", 0)


async def create(cluster: GrownCluster, partitions: int, replicas: int = 3) -> None:
    await cluster.all()[0].topics.create(
        SESSION, "orders", partitions=partitions, replicas=replicas
    )
    for node in cluster.all():
        await until(lambda node=node: leaders(node, partitions) is not None)  # type: ignore[misc]


def leaders(node: Node, partitions: int) -> list[NodeId] | None:
    """The leaders that the node knows of; None while one is missing."""
    try:
        topic = node.topics.describe(SESSION, "orders")
    except RequestError:
        return None
    known = [at.leader for at in node.partitions.leadership(SESSION, topic)]
    return [leader for leader in known if leader is not None] if None not in known else None


async def publish(node: Node, values: list[bytes], partition: int | None = None) -> list[int]:
    publications = [Publication("orders", value, partition=partition) for value in values]
    receipts = await asyncio.gather(*node.publisher.publish(CLIENT, publications))
    return [receipt.offset for receipt in receipts]


async def read(node: Node, partition: int, offset: int = 0, wait_s: float = 0.0) -> list[bytes]:
    deadline = asyncio.get_running_loop().time() + wait_s if wait_s else None
    want = Want(TopicPartition("orders", partition), offset, 2**20)
    [part] = await node.partitions.read(CLIENT, [want], min_bytes=1, deadline=deadline)
    if part.error is not None:
        raise part.error
    values: list[bytes] = []
    data, at = b"" if part.records is None else part.records.read(), 0
    while at < len(data):
        records = decode_all(data, at, decompressed_bytes_max=2**20)
        values += [record.value or b"" for record in records]
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return values


def test_every_node_takes_messages_for_every_partition_and_reads_them() -> None:
    async def live(cluster: GrownCluster) -> None:
        await create(cluster, partitions=3)
        for number, node in cluster.nodes.items():
            for partition in range(3):
                offsets = await publish(node, [b"%d" % number, b"%d" % number], partition)
                assert offsets == [2 * number - 2, 2 * number - 1]
        for node in cluster.all():
            for partition in range(3):
                assert await read(node, partition) == [b"1", b"1", b"2", b"2", b"3", b"3"]

    with_cluster(3, live)


def test_messages_keep_their_order_and_come_once_when_the_leader_is_lost() -> None:
    async def live(cluster: GrownCluster) -> None:
        await create(cluster, partitions=1)
        [leader] = leaders(cluster.all()[0], 1) or []
        node = next(each for number, each in cluster.nodes.items() if number != leader)
        values = [b"%d" % number for number in range(60)]
        sent = []
        for at, value in enumerate(values):
            sent.append(asyncio.ensure_future(publish(node, [value], 0)))
            await asyncio.sleep(0.005)
            if at == 20:
                cluster.lose_power(leader)
        offsets = [offset for [offset] in await asyncio.gather(*sent)]
        assert offsets == list(range(60))
        for other in cluster.all():
            assert await read(other, 0) == values

    with_cluster(3, live)


def test_a_refused_batch_leaves_those_behind_it_in_order() -> None:
    async def live(cluster: GrownCluster) -> None:
        await create(cluster, partitions=1)
        [leader] = leaders(cluster.all()[0], 1) or []
        node = next(each for number, each in cluster.nodes.items() if number != leader)
        await node.topics.alter(SESSION, "orders", {"max_message_bytes": "1000"})
        sizes = [10, 10, 5_000, 10, 10, 5_000, 10]
        sent = [asyncio.ensure_future(publish(node, [b"x" * size], 0)) for size in sizes]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        assert [type(outcome).__name__ for outcome in outcomes] == [
            *("list", "list", "BatchTooLarge", "list", "list", "BatchTooLarge", "list")
        ]
        assert len(await read(node, 0)) == 5

    with_cluster(3, live)


def test_a_node_without_a_replica_serves_reads_lookups_and_filters() -> None:
    async def live(cluster: GrownCluster) -> None:
        topics = cluster.all()[0].topics
        await topics.create(SESSION, "orders", placement=[(NodeId(2),)])
        node = cluster.nodes[NodeId(3)]
        await until(lambda: leaders(node, 1) == [2])
        await publish(node, [b"a", b"b", b"c"], 0)

        places: list[Place] = [Earliest(), Latest(), LastRecords(1), AtTime(2**50)]
        positions = [await node.partitions.find(CLIENT, ORDERS, place) for place in places]
        assert [None if each is None else each.offset for each in positions] == [0, 3, 2, None]
        want = Want(ORDERS, 0, 2**20)
        [part] = await node.partitions.read(CLIENT, [want], filter=parse('value == "b"'))
        assert part.records is not None
        assert part.high_watermark == 3

    with_cluster(3, live)


def test_a_long_poll_ends_with_the_first_record_of_any_leader() -> None:
    async def live(cluster: GrownCluster) -> None:
        await create(cluster, partitions=3)
        loop = asyncio.get_running_loop()
        for number, node in cluster.nodes.items():
            wants = [Want(TopicPartition("orders", at), number - 1, 2**20) for at in range(3)]
            began_s = loop.time()
            reading = asyncio.ensure_future(
                node.partitions.read(CLIENT, wants, min_bytes=1, deadline=began_s + 20)
            )
            await asyncio.sleep(0.5)
            assert not reading.done()
            for partition in range(3):
                await publish(node, [b"x"], partition)
            slices = await reading
            assert any(part.size for part in slices)
            assert loop.time() - began_s < 5  # Of the virtual clock.

    with_cluster(3, live)
