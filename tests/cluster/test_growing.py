"""Clients that begin on one broker process go on when two have joined it and it was killed."""

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from millstream.testing.cluster import ClusterProcesses
from tests.cluster.test_three_nodes import (
    CONFIG,
    DEADLINE_S,
    Sender,
    consumer,
    create,
    leader_of,
    read,
)

# Clients that know one node learn of the others while it lives.
LEARNS_NODES = {"topic.metadata.refresh.interval.ms": 500}
GROWN = ("orders", "__consumer_offsets", "__transaction_state")


def voters_of(cluster: ClusterProcesses, topic: str) -> list[list[int]]:
    client = AdminClient({"bootstrap.servers": cluster.address(1)})
    partitions = client.list_topics(topic, timeout=10).topics[topic].partitions.values()
    return [sorted(part.isrs) for part in partitions]


def move(producer: Producer, reader_group: str, cluster: ClusterProcesses, count: int) -> None:
    """Copy so many records of `orders` to `copies`, with the offsets in the same transaction."""
    reader = consumer(cluster, reader_group, **LEARNS_NODES)
    reader.subscribe(["orders"])
    values = read(reader, count)
    assert len(values) == count
    producer.begin_transaction()
    for value in values:
        producer.produce("copies", value)
    producer.send_offsets_to_transaction(
        reader.position(reader.assignment()), reader.consumer_group_metadata(), DEADLINE_S
    )
    producer.commit_transaction(DEADLINE_S)
    reader.close()


def test_what_began_on_one_node_outlives_it(tmp_path: Path) -> None:
    cluster = ClusterProcesses(CONFIG, tmp_path)
    try:
        cluster.start_node(1)
        settings = {**LEARNS_NODES, "bootstrap.servers": cluster.address(1)}
        create(cluster, "orders", partitions=2)
        create(cluster, "copies", partitions=2)
        sender = Sender(cluster, **settings)
        sender.send("orders", [b"alone-%d" % at for at in range(200)])
        group = consumer(cluster, "bookkeepers", **settings)
        group.subscribe(["orders"])
        values = read(group, 200)
        group.commit(asynchronous=False)
        producer = Producer(
            {"transactional.id": "mover", "reconnect.backoff.max.ms": 500, **settings}
        )
        producer.init_transactions(DEADLINE_S)
        move(producer, "movers", cluster, 200)

        cluster.grow()
        sender.send("orders", [b"grown-%d" % at for at in range(100)])
        for topic in (*GROWN, "copies"):
            cluster.wait(
                lambda topic=topic: all(each == [1, 2, 3] for each in voters_of(cluster, topic)),  # type: ignore[misc]
                f"{topic} has three voters",
            )
        values += read(group, 100)
        group.commit(asynchronous=False)
        cluster.kill(1)
        sender.send("orders", [b"outlived-%d" % at for at in range(100)])
        values += read(group, 100)
        group.commit(asynchronous=False)
        group.close()
        move(producer, "movers", cluster, 200)

        assert leader_of(cluster, "orders") != 1
        assert sorted(values) == sorted(sender.acknowledged)
        assert len(set(values)) == 400
        check = consumer(cluster, "auditors", **{"isolation.level": "read_committed"})
        check.subscribe(["copies"])
        copies = read(check, 400)
        check.close()
        assert sorted(copies) == sorted(sender.acknowledged)
    finally:
        cluster.stop()
