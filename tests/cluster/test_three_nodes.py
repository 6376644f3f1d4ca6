"""Three broker processes and librdkafka: a node is killed, and nothing acknowledged is lost."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.cli.cluster.joining import join
from millstream.cli.render import Refused
from millstream.client import connect
from millstream.config import Config, Timing
from millstream.testing.cluster import ClusterProcesses, running_cluster

DEADLINE_S = 60.0
CONFIG = Config(
    port=0,
    timing=Timing(group_initial_rebalance_delay_ms=0),
    offsets_partitions=3,
    transaction_partitions=3,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    directory: Path = tmp_path_factory.mktemp("three")
    with running_cluster(CONFIG, directory) as running:
        yield running


def admin(cluster: ClusterProcesses) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(cluster: ClusterProcesses, topic: str, partitions: int = 1) -> None:
    client = admin(cluster)  # Kept: its futures end with it.
    client.create_topics([NewTopic(topic, partitions, -1)])[topic].result(DEADLINE_S)


def leader_of(cluster: ClusterProcesses, topic: str, partition: int = 0) -> int:
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        described = admin(cluster).list_topics(topic, timeout=10).topics[topic]
        leader: int = described.partitions[partition].leader
        if leader in cluster.running:
            return leader
        time.sleep(0.1)
    raise AssertionError(f"{topic}-{partition} has no leader that lives")


class Sender:
    """A producer that notes what was acknowledged."""

    def __init__(self, cluster: ClusterProcesses, **settings: object) -> None:
        self.acknowledged: list[bytes] = []
        self.failed: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": int(DEADLINE_S * 1000),
                "reconnect.backoff.max.ms": 500,
                **settings,
            }
        )

    def send(self, topic: str, values: list[bytes]) -> None:
        """Send, and wait until all are acknowledged."""
        for value in values:
            self._producer.produce(topic, value, on_delivery=self._note)
        assert self._producer.flush(DEADLINE_S) == 0
        assert self.failed == []

    def _note(self, problem: KafkaError | None, message: Message) -> None:
        if problem is not None:
            self.failed.append(problem)
        else:
            self.acknowledged.append(message.value() or b"")


def consumer(cluster: ClusterProcesses, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
            **settings,
        }
    )


def read(reader: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    until = time.monotonic() + DEADLINE_S
    while len(values) < count and time.monotonic() < until:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    return values


def test_the_status_shows_every_node_and_says_if_one_is_down(cluster: ClusterProcesses) -> None:
    with connect(cluster.address(2), timeout_s=DEADLINE_S) as client:
        nodes = client.cluster.nodes()

    assert [node.node_id for node in nodes] == [1, 2, 3]
    assert all(node.is_up and node.is_voter and node.state == "active" for node in nodes)
    assert sum(node.is_controller for node in nodes) == 1
    assert [node.address for node in nodes] == [cluster.address(number) for number in (1, 2, 3)]


def test_a_used_token_and_a_foreign_directory_are_refused(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    with connect(cluster.address(1), timeout_s=DEADLINE_S) as client:
        token = client.cluster.invite()
    config = replace(CONFIG, data_dir=cluster.nodes[2].config.data_dir)
    with pytest.raises(Refused, match="belongs to node 2 of this cluster already"):
        join(token, config, {})
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "notes.txt").touch()
    with pytest.raises(Refused, match="belongs to something else"):
        join(token, replace(CONFIG, data_dir=str(stranger)), {})


def test_metadata_names_all_nodes_and_spreads_leaders(cluster: ClusterProcesses) -> None:
    create(cluster, "spread", partitions=6)

    described = admin(cluster).list_topics(timeout=10)

    assert sorted(described.brokers) == [1, 2, 3]
    partitions = described.topics["spread"].partitions.values()
    assert all(sorted(part.replicas) == [1, 2, 3] for part in partitions)


def test_a_killed_leader_loses_nothing_and_comes_back(cluster: ClusterProcesses) -> None:
    create(cluster, "orders")
    sender = Sender(cluster)
    sender.send("orders", [b"before-%d" % at for at in range(100)])
    leader = leader_of(cluster, "orders")

    cluster.kill(leader)
    sender.send("orders", [b"during-%d" % at for at in range(100)])
    cluster.start_node(leader)
    sender.send("orders", [b"after-%d" % at for at in range(100)])

    reader = consumer(cluster, "readers")
    reader.subscribe(["orders"])
    values = read(reader, 300)
    reader.close()
    assert sorted(values) == sorted(sender.acknowledged)
    assert len(set(values)) == 300


def test_a_group_goes_on_from_its_offsets_when_its_coordinator_is_killed(
    cluster: ClusterProcesses,
) -> None:
    create(cluster, "bills", partitions=3)
    sender = Sender(cluster)
    sender.send("bills", [b"first-%d" % at for at in range(30)])
    reader = consumer(cluster, "bookkeepers")
    reader.subscribe(["bills"])
    assert len(read(reader, 30)) == 30
    reader.commit(asynchronous=False)
    victim = leader_of(cluster, "__consumer_offsets", 0)

    cluster.kill(victim)
    sender.send("bills", [b"second-%d" % at for at in range(30)])
    values = read(reader, 30)
    cluster.start_node(victim)
    reader.close()

    assert sorted(values) == sorted(b"second-%d" % at for at in range(30))


def test_transactions_span_nodes(cluster: ClusterProcesses) -> None:
    create(cluster, "source")
    create(cluster, "target", partitions=6)
    Sender(cluster).send("source", [b"in"])
    reader = consumer(cluster, "movers")
    reader.subscribe(["source"])
    assert read(reader, 1) == [b"in"]
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "mover",
            "reconnect.backoff.max.ms": 500,
        }
    )
    producer.init_transactions(DEADLINE_S)

    committed: list[bytes] = []
    for number in range(3):
        values = [b"%d-%d" % (number, at) for at in range(12)]
        producer.begin_transaction()
        for at, value in enumerate(values):
            producer.produce("target", value, partition=at % 6)
        producer.send_offsets_to_transaction(
            reader.position(reader.assignment()), reader.consumer_group_metadata(), DEADLINE_S
        )
        if number == 1:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
            committed += values
    reader.close()

    check = consumer(cluster, "auditors", **{"isolation.level": "read_committed"})
    check.subscribe(["target"])
    values = read(check, len(committed))
    check.close()
    assert sorted(values) == sorted(committed)


def test_the_status_is_told_while_the_first_node_is_down(cluster: ClusterProcesses) -> None:
    cluster.kill(1)
    try:
        with connect(cluster.bootstrap, timeout_s=DEADLINE_S) as client:
            nodes = client.cluster.nodes()
            assert [node.node_id for node in nodes] == [1, 2, 3]
            assert not nodes[0].is_up
            assert nodes[1].is_up or nodes[2].is_up
    finally:
        cluster.start_node(1)
