"""A node that is stopped or drained hands over what it leads: producers see no error."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, Message, Producer

from millstream.client import connect
from millstream.client.extensions.cluster import ClusterNode
from millstream.testing.cluster import ClusterProcesses, running_cluster
from tests.cluster.test_three_nodes import CONFIG, DEADLINE_S, consumer, create, leader_of, read

PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with running_cluster(CONFIG, tmp_path_factory.mktemp("handed")) as running:
        create(running, "orders", PARTITIONS)
        yield running


class Stream:
    """Sends a record every few milliseconds, and notes what became of each."""

    def __init__(self, cluster: ClusterProcesses, **settings: object) -> None:
        self.acknowledged: list[bytes] = []
        self.failed: list[KafkaError] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": int(DEADLINE_S * 1000),
                "reconnect.backoff.max.ms": 500,
                **settings,
            }
        )

    @contextmanager
    def running(self) -> Iterator["Stream"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            self._thread.join()
        assert self._producer.flush(DEADLINE_S) == 0

    def wait_for_more(self) -> None:
        """Wait until records that are sent from now on are acknowledged."""
        count = len(self.acknowledged) + 200
        wait(lambda: len(self.acknowledged) >= count, "the producer goes on")

    def _send(self) -> None:
        number = 0
        while not self._is_over.is_set():
            self._producer.produce(
                "orders", b"%d" % number, partition=number % PARTITIONS, on_delivery=self._note
            )
            number += 1
            self._producer.poll(0.002)

    def _note(self, problem: KafkaError | None, message: Message) -> None:
        if problem is not None:
            self.failed.append(problem)
        else:
            self.acknowledged.append(message.value() or b"")


def wait(condition: Callable[[], bool], claim: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until, f"not within {DEADLINE_S:g} s: {claim}"
        time.sleep(0.05)


def status(cluster: ClusterProcesses, asked: int) -> dict[int, ClusterNode]:
    with connect(cluster.address(asked), timeout_s=DEADLINE_S) as client:
        return {node.node_id: node for node in client.cluster.nodes()}


def test_a_stopped_node_hands_over_and_the_producer_sees_no_error(
    cluster: ClusterProcesses,
) -> None:
    stream = Stream(cluster)
    with stream.running():
        stream.wait_for_more()
        for _ in range(2):
            leader = leader_of(cluster, "orders")
            led_before = status(cluster, leader)[leader].leader_count
            assert led_before > 0

            cluster.stop_node(leader)

            assert "handed over node=" in cluster.log(leader).rpartition("ready node=")[2]
            assert "not everything was handed over" not in cluster.log(leader)
            stream.wait_for_more()
            cluster.start_node(leader)
            wait_until_in_step(cluster)

    assert stream.failed == []
    reader = consumer(cluster, "counters")
    reader.subscribe(["orders"])
    values = read(reader, len(stream.acknowledged))
    reader.close()
    assert sorted(values) == sorted(stream.acknowledged)


def test_a_drained_node_leads_nothing_until_it_is_taken_back(cluster: ClusterProcesses) -> None:
    wait_until_in_step(cluster)
    leader = leader_of(cluster, "orders")
    other = leader % 3 + 1
    stream = Stream(cluster)
    with stream.running(), connect(cluster.address(other), timeout_s=DEADLINE_S) as client:
        stream.wait_for_more()

        client.cluster.drain(leader)

        wait(lambda: status(cluster, other)[leader].leader_count == 0, "the node leads nothing")
        assert status(cluster, other)[leader].state == "draining"
        stream.wait_for_more()
        cluster.stop_node(other)  # Its leaders go to the third node, not to the drained one.
        assert status(cluster, leader)[leader].leader_count == 0
        stream.wait_for_more()
        cluster.start_node(other)
        wait_until_in_step(cluster)
        client.cluster.undrain(leader)

    assert stream.failed == []
    assert status(cluster, other)[leader].state == "active"


def test_a_cluster_that_is_stopped_as_a_whole_passes_nothing_around(
    cluster: ClusterProcesses,
) -> None:
    wait_until_in_step(cluster)
    on_every_node(cluster.stop_node)

    for node in cluster.nodes:
        assert "not everything was handed over" not in cluster.log(node)
    on_every_node(cluster.start_node)
    wait_until_in_step(cluster)


def on_every_node(act: Callable[[int], None]) -> None:
    """At once: one of three waits for the others when it starts."""
    with ThreadPoolExecutor() as threads:
        list(threads.map(act, (1, 2, 3)))


def wait_until_in_step(cluster: ClusterProcesses) -> None:
    def is_in_step() -> bool:
        nodes = status(cluster, cluster.running[0]).values()
        return all(node.is_up and node.behind_count == 0 for node in nodes)

    wait(is_in_step, "every replica is in step")
