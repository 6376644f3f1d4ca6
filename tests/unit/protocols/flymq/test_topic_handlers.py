"""Topics and the cluster through the FlyMQ listener."""

import pytest

from millstream.model import TopicPartition
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import Opcode
from tests.support.flymq import Refused
from tests.support.nodes import SESSION
from tests.support.virtual_loop import run
from tests.unit.protocols.flymq.asking import Connection, open_listener


async def topics(client: Connection) -> tuple[str, ...]:
    return (await client.ask(Opcode.LIST_TOPICS, bodies.Nothing(), bodies.Topics)).topics


async def delete(client: Connection, topic: str) -> None:
    await client.ask(Opcode.DELETE_TOPIC, bodies.TopicOnly(topic), bodies.Done)


async def cluster(client: Connection, topic: str = "") -> bodies.ClusterMetadata:
    request = bodies.TopicOrAll(topic)
    return await client.ask(Opcode.CLUSTER_METADATA, request, bodies.ClusterMetadata)


def test_topics_are_made_listed_and_deleted() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            await client.create("payments", 0)
            await client.create("orders", 3)

            assert await topics(client) == ("orders", "payments")
            assert listener.node.topics.describe(SESSION, "payments").partition_count == 1
            assert listener.node.topics.describe(SESSION, "orders").partition_count == 3
            await delete(client, "orders")
            assert await topics(client) == ("payments",)

    run(main())


def test_what_is_there_is_made_and_what_is_not_is_deleted_without_a_word() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            await client.create("orders", 2)
            await client.create("orders", 7)
            await delete(client, "nothing")

            assert listener.node.topics.describe(SESSION, "orders").partition_count == 2

    run(main())


def test_the_brokers_own_topics_are_not_shown() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            await client.produce("orders", b"x")
            request = bodies.Commit("orders", "g", 0, 1)
            await client.ask(Opcode.COMMIT, request, bodies.Done)

            assert await topics(client) == ("orders",)
            assert [topic.topic for topic in (await cluster(client)).topics] == ["orders"]

    run(main())


@pytest.mark.parametrize(
    ("topic", "partitions"), [("a/b", 1), ("../x", 1), ("", 1), ("orders", -1), ("orders", 10**6)]
)
def test_what_cannot_be_made_is_refused(topic: str, partitions: int) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            with pytest.raises(Refused):
                await listener.connect().create(topic, partitions)

    run(main())


def test_the_metadata_of_a_topic_has_its_offsets() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            await client.create("orders", 2)
            for _ in range(3):
                await client.produce("orders", b"x", partition=1)
            listener.node.partitions.delete_records(SESSION, TopicPartition("orders", 1), 2)
            request = bodies.TopicOnly("orders")

            answer = await client.ask(Opcode.METADATA, request, bodies.TopicMetadata)

            assert answer == ("orders", ((0, 1, 0, 0), (1, 1, 2, 3)))

    run(main())


def test_a_cluster_of_one_leads_everything_where_it_was_dialled() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            await client.create("orders", 1)
            await client.create("payments", 2)

            everything, orders_only = await cluster(client), await cluster(client, "orders")

            ((partition,),) = [topic.partitions for topic in orders_only.topics]
            assert partition._replace(epoch=0) == (
                *(0, "1", "localhost:9092", 0, "online"),
                *(("1",), ("1",)),
            )
            assert partition.epoch >= 1
            assert [topic.topic for topic in everything.topics] == ["orders", "payments"]
            assert everything.cluster_id == orders_only.cluster_id == listener.node.cluster_id
            with pytest.raises(Refused, match="topic not found: nothing"):
                await cluster(client, "nothing")

    run(main())


def test_the_status_counts_what_is_there() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            await client.create("orders", 3)

            answer = await client.ask(Opcode.CLUSTER_STATUS, bodies.Nothing(), bodies.ClusterStatus)

            assert answer == (listener.node.cluster_id, "1", "online", 1, 1, 3)

    run(main())


@pytest.mark.parametrize(
    ("opcode", "request_body"),
    [
        (Opcode.CLUSTER_JOIN, bodies.JoinCluster("elsewhere:9093")),
        (Opcode.CLUSTER_LEAVE, bodies.Nothing()),
    ],
)
def test_a_request_of_a_client_changes_no_membership(
    opcode: Opcode, request_body: tuple[object, ...]
) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            with pytest.raises(Refused, match="is configured, and not changed by clients"):
                await listener.connect().ask(opcode, request_body, bodies.Message)

    run(main())
