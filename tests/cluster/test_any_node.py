"""Three broker processes: clients of every protocol are served by each of them."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from confluent_kafka.admin import AdminClient, ClusterMetadata

from millstream.classic import BrokerClient
from millstream.config import Config
from millstream.testing.cluster import ClusterProcesses, running_cluster
from tests.cluster.test_three_nodes import create as create_topic
from tests.support.flymq import FlymqClient
from tests.support.http import HttpClient

DEADLINE_S = 60.0
NODES = (1, 2, 3)
CONFIG = Config(
    port=0,
    listeners=(*Config().listeners, "http"),
    offsets_partitions=3,
    transaction_partitions=3,
    delayed_partitions=3,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    directory: Path = tmp_path_factory.mktemp("any")
    with running_cluster(CONFIG, directory) as running:
        yield running


def create(cluster: ClusterProcesses, topic: str, partitions: int = 3) -> None:
    """Create a topic, and wait until every node knows it and its leaders."""
    create_topic(cluster, topic, partitions)
    until = time.monotonic() + DEADLINE_S
    for number in NODES:
        client = AdminClient({"bootstrap.servers": cluster.address(number)})
        while not _is_led(client.list_topics(timeout=DEADLINE_S), topic, partitions):
            assert time.monotonic() < until, f"node {number} does not know {topic}"
            time.sleep(0.05)


def _is_led(metadata: ClusterMetadata, topic: str, partitions: int) -> bool:
    known = metadata.topics.get(topic)
    return (
        known is not None
        and len(known.partitions) == partitions
        and all(part.leader in NODES for part in known.partitions.values())
    )


class Flux:
    """A connection to one node."""

    def __init__(self, cluster: ClusterProcesses, number: int) -> None:
        node = cluster.nodes[number]
        self._socket = socket.create_connection((node.host, node.config.flux_port), DEADLINE_S)
        self.stream: BinaryIO = self._socket.makefile("rb")

    def __enter__(self) -> "Flux":
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self._socket.close()

    def say(self, line: str) -> None:
        self._socket.sendall(line.encode() + b"\r\n")

    def ask(self, line: str) -> bytes:
        self.say(line)
        return self.stream.readline()

    def publish(self, subject: str, value: str) -> None:
        assert self.ask(f"PUB {subject} {len(value)}\r\n{value}").startswith(b"+OK")

    def message(self) -> bytes:
        """The value of the next message."""
        words = self.stream.readline().split()
        assert words[0] == b"MSG", words
        value = self.stream.read(int(words[-2]) + 2)
        return value[:-2]


def test_flux_publishes_and_subscribes_on_every_node(cluster: ClusterProcesses) -> None:
    create(cluster, "ticks", partitions=6)
    subscribers = [Flux(cluster, number) for number in NODES]
    try:
        for subscriber in subscribers:
            assert subscriber.ask("SUB ticks.> all") == b"+OK\r\n"
        for number in NODES:
            with Flux(cluster, number) as publisher:
                for at in range(10):
                    publisher.publish(f"ticks.{at}", f"{number}-{at}")
        values = {b"%d-%d" % (number, at) for number in NODES for at in range(10)}
        for subscriber in subscribers:
            assert {subscriber.message() for _ in values} == values
    finally:
        for subscriber in subscribers:
            subscriber.__exit__()


def test_a_queue_group_of_flux_over_all_nodes_gets_each_message_once(
    cluster: ClusterProcesses,
) -> None:
    create(cluster, "jobs", partitions=6)
    workers = [Flux(cluster, number) for number in NODES]
    try:
        for worker in workers:
            assert worker.ask("SUB jobs.> workers 1") == b"+OK\r\n"
        with Flux(cluster, 1) as publisher:
            for at in range(60):
                publisher.publish(f"jobs.{at}", f"{at}")
        values: list[bytes] = []
        until = time.monotonic() + DEADLINE_S
        while len(values) < 60 and time.monotonic() < until:
            values += [value for worker in workers for value in _waiting(worker)]
        assert sorted(values) == sorted(b"%d" % at for at in range(60))
    finally:
        for worker in workers:
            worker.__exit__()


def _waiting(worker: Flux) -> list[bytes]:
    """The messages that came before the answer to a PING."""
    worker.say("PING")
    values = []
    while not (line := worker.stream.readline()).startswith((b"PONG", b"+PONG")):
        words = line.split()
        assert words[0] == b"MSG", words
        values.append(worker.stream.read(int(words[-2]) + 2)[:-2])
    return values


def test_flymq_produces_and_fetches_every_partition_on_every_node(
    cluster: ClusterProcesses,
) -> None:
    create(cluster, "bills")
    for number in NODES:
        node = cluster.nodes[number]
        with FlymqClient(node.host, node.port) as client:
            for partition in range(3):
                offset = client.produce("bills", b"%d" % number, partition=partition)
                assert offset == number - 1
    for number in NODES:
        node = cluster.nodes[number]
        with FlymqClient(node.host, node.port) as client:
            for partition in range(3):
                records = client.fetch("bills", partition=partition).records
                assert [record.value for record in records] == [b"1", b"2", b"3"]


def test_http_writes_and_reads_every_partition_on_every_node(cluster: ClusterProcesses) -> None:
    create(cluster, "notes")
    for number in NODES:
        node = cluster.nodes[number]
        http = HttpClient(node.config.http_port, node.host)
        for partition in range(3):
            body = {"records": [{"value": f"{number}", "partition": partition}]}
            answer = http("POST", "/v1/topics/notes/records", body)
            assert answer.status < 300, answer.text
    for number in NODES:
        node = cluster.nodes[number]
        http = HttpClient(node.config.http_port, node.host)
        answer = http("GET", "/v1/topics/notes/records")
        assert answer.status == 200, answer.text
        assert len(answer.json["items"]) == 9


def test_a_partition_is_moved_by_http(cluster: ClusterProcesses) -> None:
    http = HttpClient(cluster.nodes[1].config.http_port, cluster.nodes[1].host)
    made = http.post("/v1/topics", {"name": "moved", "partitions": 1, "replicas": 1})
    assert made.status == 201, made.text
    body = {"records": [{"value": "stays", "partition": 0}]}
    assert http.post("/v1/topics/moved/records", body).status == 200
    (source,) = replicas_of(http, "moved")
    target = next(number for number in NODES if number != source)
    move = {"topic": "moved", "partitions": {"0": [target]}}

    planned = http.post("/v1/reassignments", {**move, "dry_run": True})
    before = replicas_of(http, "moved")
    begun = http.post("/v1/reassignments", move)

    assert planned.json["items"] == begun.json["items"], begun.text
    assert begun.json["items"][0]["adding"] == [target]
    assert begun.json["items"][0]["removing"] == [source]
    assert (begun.status, before) == (202, [source])
    until = time.monotonic() + DEADLINE_S
    while http.get("/v1/reassignments").json["items"] or replicas_of(http, "moved") != [target]:
        assert time.monotonic() < until, "the move does not end"
        time.sleep(0.05)
    while not http.get("/v1/topics/moved/records").json.get("items"):
        assert time.monotonic() < until, "the new leader does not serve"
        time.sleep(0.05)


def replicas_of(http: HttpClient, topic: str) -> list[int]:
    placed = http.get("/v1/cluster/partitions?limit=1000").json["items"]
    (replicas,) = [each["replicas"] for each in placed if each["topic"] == topic]
    assert isinstance(replicas, list)
    return replicas


def test_classic_publishes_and_subscribes_on_every_node(cluster: ClusterProcesses) -> None:
    create(cluster, "letters")
    for number in NODES:
        node = cluster.nodes[number]
        with BrokerClient(node.host, node.config.classic_port) as client:
            assert client.publish("letters", b"%d" % number), client.last_error
