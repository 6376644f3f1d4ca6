"""Three broker processes: clients of every protocol are served by each of them."""

import base64
import json
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata

from millstream.classic import BrokerClient
from millstream.config import Config
from millstream.testing.cluster import ClusterProcesses, running_cluster
from tests.cluster.test_three_nodes import create as create_topic
from tests.support.flymq import FlymqClient, Refused
from tests.support.http import Answer, HttpClient

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


def insist(act: Callable[[], object]) -> None:
    """Do it again until it succeeds: on a busy machine a leader may change at any time. What was
    refused may have been written, so a value may be there twice."""
    until = time.monotonic() + DEADLINE_S
    while not act():
        assert time.monotonic() < until, "refused for too long"
        time.sleep(0.1)


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
        command = f"PUB {subject} {len(value)}\r\n{value}"
        insist(lambda: self.ask(command).startswith(b"+OK"))

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
            seen: set[bytes] = set()
            while seen != values:
                seen.add(subscriber.message())
    finally:
        for subscriber in subscribers:
            subscriber.__exit__()


def test_a_queue_group_of_flux_over_all_nodes_shares_the_messages(
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
        expected = {b"%d" % at for at in range(60)}
        until = time.monotonic() + DEADLINE_S
        while set(values) != expected:
            assert time.monotonic() < until, f"{len(set(values))} of 60"
            values += [value for worker in workers for value in _waiting(worker)]
        assert len(values) < 2 * 60  # Shared, not copied to each.
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

    def is_produced(client: FlymqClient, value: bytes, partition: int) -> bool:
        try:
            return client.produce("bills", value, partition=partition) >= 0
        except Refused:
            return False

    def holds_all(client: FlymqClient, partition: int) -> bool:
        try:
            records = client.fetch("bills", partition=partition, count=100).records
        except Refused:
            return False
        return {record.value for record in records} == {b"1", b"2", b"3"}

    for number in NODES:
        node = cluster.nodes[number]
        with FlymqClient(node.host, node.port) as client:
            for partition in range(3):
                insist(partial(is_produced, client, b"%d" % number, partition))
    for number in NODES:
        node = cluster.nodes[number]
        with FlymqClient(node.host, node.port) as client:
            for partition in range(3):
                insist(partial(holds_all, client, partition))


def test_http_writes_and_reads_every_partition_on_every_node(cluster: ClusterProcesses) -> None:
    create(cluster, "notes")

    def is_posted(http: HttpClient, value: str, partition: int) -> bool:
        body = {"records": [{"value": value, "partition": partition}]}
        answer = http("POST", "/v1/topics/notes/records", body)
        assert answer.status < 300 or answer.status == 503, answer.text
        return answer.status < 300

    def shows_all(http: HttpClient) -> bool:
        answer = http("GET", "/v1/topics/notes/records?limit=100")
        assert answer.status in (200, 503), answer.text
        if answer.status == 503:
            return False
        items = answer.json["items"]
        return len({(json.dumps(item["value"]), item["partition"]) for item in items}) == 9

    clients = [HttpClient(node.config.http_port, node.host) for node in cluster.nodes.values()]
    for number, http in enumerate(clients, start=1):
        for partition in range(3):
            insist(partial(is_posted, http, f"{number}", partition))
    for http in clients:
        insist(partial(shows_all, http))


def by_http(cluster: ClusterProcesses) -> list[HttpClient]:
    return [HttpClient(node.config.http_port, node.host) for node in cluster.nodes.values()]


def insist_on(http: HttpClient, method: str, path: str, body: object = None) -> Answer:
    """The first answer that does not ask for patience."""
    answers: list[Answer] = []

    def is_answered() -> bool:
        answers.append(http(method, path, body))
        return answers[-1].status not in (503, 504)

    insist(is_answered)
    return answers[-1]


def commit(cluster: ClusterProcesses, group: str, topic: str) -> None:
    """Commit the beginning of partition 0."""
    settings = {"bootstrap.servers": cluster.address(1), "group.id": group}

    def is_committed() -> bool:
        consumer = Consumer(settings)
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        except KafkaException:
            return False
        finally:
            consumer.close()
        return True

    insist(is_committed)


def test_http_lists_describes_and_deletes_groups_on_every_node(cluster: ClusterProcesses) -> None:
    create(cluster, "orders")
    clients = by_http(cluster)
    record = {"records": [{"value": "x", "partition": 0}]}
    assert insist_on(clients[0], "POST", "/v1/topics/orders/records", record).status == 200
    groups = [f"any-{at}" for at in range(6)]
    for group in groups:
        commit(cluster, group, "orders")

    def pages(http: HttpClient) -> list[str]:
        names: list[str] = []
        after = ""
        while True:
            path = f"/v1/groups?name=any-&limit=2&after={after}"
            page = insist_on(http, "GET", path).json
            names += [item["name"] for item in page["items"]]
            if page["next"] is None:
                return names
            after = page["next"]

    def lists(http: HttpClient, names: list[str]) -> bool:
        return pages(http) == names

    def has_lag(http: HttpClient, group: str) -> bool:
        detail = insist_on(http, "GET", f"/v1/groups/{group}").json
        return detail["name"] == group and detail["lag"] >= 1

    for http in clients:
        insist(partial(lists, http, groups))
        for group in groups:
            insist(partial(has_lag, http, group))
    for at, group in enumerate(groups):
        http = clients[at % len(clients)]
        status = insist_on(http, "DELETE", f"/v1/groups/{group}").status
        assert status in (204, 404), status  # 404: done by one that was not answered.
    for http in clients:
        insist(partial(lists, http, []))


def test_http_registers_and_reads_schemas_on_every_node(cluster: ClusterProcesses) -> None:
    clients = by_http(cluster)
    schemas = [
        json.dumps({"type": "record", "name": f"R{at}", "fields": []}) for at in range(len(clients))
    ]
    numbers = [
        insist_on(http, "POST", f"/subjects/any-{at}/versions", {"schema": schemas[at]}).json["id"]
        for at, http in enumerate(clients)
    ]

    assert len(set(numbers)) == len(clients)
    for http in clients:
        for at, number in enumerate(numbers):
            by_id = insist_on(http, "GET", f"/schemas/ids/{number}").json
            assert json.loads(by_id["schema"]) == json.loads(schemas[at])
            again = insist_on(http, "POST", f"/subjects/any-{at}/versions", {"schema": schemas[at]})
            assert again.json["id"] == number
        subjects = insist_on(http, "GET", "/subjects?subjectPrefix=any-").json
        assert subjects == [f"any-{at}" for at in range(len(clients))]


def test_records_are_checked_against_their_schema_on_every_node(cluster: ClusterProcesses) -> None:
    """The leaders of the topic's partitions are on all nodes, that of the registry is on one."""
    create(cluster, "checked")
    clients = by_http(cluster)
    schema = json.dumps({"type": "record", "name": "C", "fields": [{"name": "n", "type": "int"}]})
    path = "/subjects/checked-value/versions"
    number = insist_on(clients[0], "POST", path, {"schema": schema}).json["id"]
    settings = {"settings": {"schema.validation.value": "full"}}
    assert insist_on(clients[1], "PATCH", "/v1/topics/checked", settings).status == 200
    framed = b"\0" + number.to_bytes(4, "big")

    def posted(http: HttpClient, partition: int, value: bytes) -> int:
        record = {"partition": partition, "value": {"base64": base64.b64encode(value).decode()}}
        body = {"records": [record]}
        return insist_on(http, "POST", "/v1/topics/checked/records", body).status

    def is_refused(http: HttpClient, partition: int) -> bool:
        return posted(http, partition, framed + b"\xff") == 422

    for http in clients:
        for partition in range(3):
            assert posted(http, partition, framed + b"\x02") == 200
            # A node may learn of the setting a moment later than the one that was asked.
            insist(partial(is_refused, http, partition))
        item = insist_on(http, "GET", "/v1/topics/checked/records?limit=1&partition=0").json
        assert item["items"][0]["value"]["json"] == {"n": 1}


def test_http_moves_leaders_and_plans_a_rebalance(cluster: ClusterProcesses) -> None:
    create(cluster, "led")
    http = by_http(cluster)[0]

    def leads_all(node: int) -> bool:
        asked = {"topic": "led", "node": node}
        insist_on(http, "POST", "/v1/leaders:transfer", asked)
        listed = insist_on(http, "GET", "/v1/topics/led/partitions").json["items"]
        return [item["leader"] for item in listed] == [node] * 3

    for node in NODES:
        insist(partial(leads_all, node))
    plan = insist_on(http, "POST", "/v1/cluster:rebalance").json
    unknown = http("POST", "/v1/leaders:transfer", {"topic": "nowhere"})

    assert plan["dry_run"] is True
    assert all(len(set(item["replicas"])) == 3 for item in plan["items"])
    assert unknown.status == 404
    assert insist_on(http, "POST", "/v1/cluster:rebalance", {"dry_run": False}).status == 202


def test_classic_publishes_and_subscribes_on_every_node(cluster: ClusterProcesses) -> None:
    create(cluster, "letters")
    for number in NODES:
        node = cluster.nodes[number]
        with BrokerClient(node.host, node.config.classic_port) as client:
            insist(partial(client.publish, "letters", b"%d" % number))
