"""Three broker processes are upgraded one by one while librdkafka writes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from millstream.client import connect
from millstream.client.errors import ClientError
from millstream.client.extensions.requests import exchange, open_connection
from millstream.client.models import BrokerNode
from millstream.kafka_wire.apis.cluster import DescribeNodesRequest, DescribeNodesResponse
from millstream.testing.cluster import ClusterProcesses
from tests.cluster.test_three_nodes import CONFIG, DEADLINE_S, Sender, consumer, create, read

# A node whose version knows the first level only.
OLDER = """\
import sys
from dataclasses import replace
from millstream.cli import serving
from millstream.model import FIRST_LEVELS
ports_of = serving.real_ports
serving.real_ports = lambda config: replace(ports_of(config), levels=FIRST_LEVELS)
sys.exit(serving.run(path=None, flags={}, verbose=False))
"""


def described(cluster: ClusterProcesses) -> list[DescribeNodesResponse]:
    """The cluster as each node that runs describes it."""
    descriptions = []
    for number in cluster.running:
        host, _, port = cluster.address(number).rpartition(":")
        broker, doing = BrokerNode(node_id=number, host=host, port=int(port)), "describe the nodes"
        with open_connection(broker, {}, doing, DEADLINE_S) as connection:
            answer = exchange(connection, DescribeNodesRequest(), DescribeNodesResponse, doing)
        descriptions.append(answer)
    return descriptions


def is_known(cluster: ClusterProcesses, number: int, level: int) -> bool:
    """Whether every node has heard that this one knows a level."""
    return all(
        node.level_highest == level
        for each in described(cluster)
        for node in each.nodes
        if node.node_id == number
    )


def is_at(cluster: ClusterProcesses, level: int) -> bool:
    return all(each.level == level for each in described(cluster))


@contextmanager
def writing(sender: Sender, topic: str) -> Iterator[None]:
    """Write for the length of a block, ten records at a time."""
    is_over, problems = threading.Event(), list[BaseException]()

    def write() -> None:
        count = 0
        try:
            while not is_over.is_set():
                sender.send(topic, [b"%d" % number for number in range(count, count + 10)])
                count += 10
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    assert problems == []


@pytest.mark.timeout(300)
def test_a_rolling_upgrade_loses_nothing_and_ends_with_the_new_level(tmp_path: Path) -> None:
    cluster = ClusterProcesses(CONFIG, tmp_path)
    newer = cluster.nodes[1].program
    for node in cluster.nodes.values():
        node.program = OLDER
    try:
        cluster.start()
        create(cluster, "orders")
        sender = Sender(cluster)
        with writing(sender, "orders"):
            for number, node in cluster.nodes.items():
                assert is_at(cluster, 1)
                check_refused(cluster, number)
                cluster.stop_node(number)
                node.program = newer
                cluster.start_node(number)
                cluster.wait(partial(is_known, cluster, number, 2), f"node {number} is newer")
            with connect(cluster.bootstrap, timeout_s=DEADLINE_S) as client:
                client.cluster.upgrade(2, dry_run=True)
                assert is_at(cluster, 1)
                client.cluster.upgrade(2)
        cluster.wait(lambda: is_at(cluster, 2), "the level is 2")
        reader = consumer(cluster, "checking")
        reader.subscribe(["orders"])
        values = read(reader, len(sender.acknowledged))
        reader.close()
        assert sorted(values) == sorted(sender.acknowledged)
        check_too_old(cluster, 2)
    finally:
        cluster.stop()


def check_refused(cluster: ClusterProcesses, number: int) -> None:
    refused = pytest.raises(ClientError, match=f"node {number} knows level 1 of cluster")
    with connect(cluster.bootstrap, timeout_s=DEADLINE_S) as client, refused:
        client.cluster.upgrade(2)


def check_too_old(cluster: ClusterProcesses, number: int) -> None:
    """The older version no longer starts there, and the newer one does."""
    node = cluster.nodes[number]
    newer = node.program
    cluster.stop_node(number)
    node.program = OLDER
    with pytest.raises(RuntimeError, match=r"is at level 2 of cluster\.version, and this version"):
        cluster.start_node(number)
    node.program = newer
    cluster.start_node(number)
