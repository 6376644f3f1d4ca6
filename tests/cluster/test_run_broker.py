"""`run_broker(nodes=3)`: a cluster for a test, whose nodes are killed, paused and cut apart."""

import time
from collections.abc import Callable, Iterator

import pytest

from millstream.client import connect
from millstream.client.errors import Unreachable
from millstream.client.extensions.requests import exchange, open_connection
from millstream.client.models import BrokerNode
from millstream.kafka_wire.apis.transactions import InitProducerIdRequest, InitProducerIdResponse
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.testing import NotRunning, RunningCluster, run_broker

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with run_broker(nodes=3) as running:
        yield running


def test_a_topic_outlives_a_killed_and_a_stopped_node(cluster: RunningCluster) -> None:
    cluster.create_topic("orders")
    addresses = cluster.bootstrap.split(",")
    with connect(cluster.bootstrap, timeout_s=DEADLINE_S) as client:
        assert client.produce("orders", "first").offset == 0

        cluster.kill(1)
        assert cluster.running == [2, 3]
        assert client.produce("orders", "second").offset == 1
        cluster.start(1)
        cluster.stop(2)
        assert client.produce("orders", "third").offset == 2
        cluster.start(2)

    assert cluster.running == [1, 2, 3]
    assert [cluster.address(node) for node in (1, 2, 3)] == addresses


@pytest.fixture(autouse=True)
def _healed(cluster: RunningCluster) -> Iterator[None]:
    """No test leaves a cut to the next one."""
    yield
    cluster.heal()
    until(lambda: all(len(cluster.links(node)) == 2 for node in (1, 2, 3)), "all are linked")


def until(condition: Callable[[], bool], claim: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in {DEADLINE_S} s: {claim}"
        time.sleep(0.1)


def test_nodes_that_are_cut_apart_lose_sight_of_each_other(cluster: RunningCluster) -> None:
    cluster.create_topic("cut-apart")

    cluster.cut(1, 3)
    until(lambda: cluster.links(3) == [2], "node 3 has lost node 1")
    until(lambda: cluster.links(1) == [2], "node 1 has lost node 3")
    with connect(cluster.bootstrap, timeout_s=DEADLINE_S) as client:
        assert client.produce("cut-apart", "a majority hears each other").offset == 0

    cluster.heal()
    until(lambda: cluster.links(1) == [2, 3] and cluster.links(3) == [1, 2], "all are linked")


def test_a_node_cut_from_the_active_controller_still_serves_its_clients(
    cluster: RunningCluster,
) -> None:
    """A node that reaches all others takes over: the node that is cut off gets producer ids."""
    cluster.create_topic("cut-from-the-controller")
    with connect(cluster.bootstrap, timeout_s=DEADLINE_S) as client:
        controller = next(node.node_id for node in client.cluster.nodes() if node.is_controller)
    other = next(node for node in (1, 2, 3) if node != controller)

    cluster.cut(controller, other)
    until(lambda: controller not in cluster.links(other), "the link is lost")
    with connect(cluster.address(other), timeout_s=DEADLINE_S) as client:
        assert client.produce("cut-from-the-controller", "from behind the cut").offset == 0
        client.admin.create_topic("made-behind-the-cut")
        assert client.produce("made-behind-the-cut", "first").offset == 0


def test_one_way_is_enough_to_end_a_link(cluster: RunningCluster) -> None:
    cluster.cut(2, 3, one_way=True)
    until(lambda: cluster.links(3) == [1], "node 3 hears nothing of node 2")

    cluster.heal()
    until(lambda: cluster.links(3) == [1, 2], "all are linked")


def test_an_isolated_leader_is_replaced_and_keeps_nothing_from_the_others(
    cluster: RunningCluster,
) -> None:
    cluster.create_topic("isolated")
    with connect(cluster.bootstrap, timeout_s=DEADLINE_S) as client:
        client.produce("isolated", "before")
        leader = client.admin.describe_topic("isolated").partitions[0].leader_id
    assert leader is not None
    others = ",".join(cluster.address(node) for node in (1, 2, 3) if node != leader)

    cluster.isolate(leader)
    until(lambda: cluster.links(leader) == [], "the leader is alone")
    with connect(others, timeout_s=DEADLINE_S) as client:
        client.produce("isolated", "meanwhile")
        cluster.heal()
        until(lambda: len(cluster.links(leader)) == 2, "the old leader is back")
        client.produce("isolated", "after")
        with client.consumer("isolated", start="earliest") as records:
            values = [next(records).value for _ in range(3)]
    assert values == [b"before", b"meanwhile", b"after"]


def test_a_client_that_knows_the_isolated_leader_only_finds_the_next_one(
    cluster: RunningCluster,
) -> None:
    """The leader answers that it knows no leader, and closes the connection."""
    cluster.create_topic("stuck")
    with connect(cluster.bootstrap, timeout_s=DEADLINE_S) as client:
        client.produce("stuck", "before")
        leader = client.admin.describe_topic("stuck").partitions[0].leader_id
        assert leader is not None
        cluster.isolate(leader)
        try:
            assert client.produce("stuck", "meanwhile").offset == 1
        finally:
            cluster.heal()
    until(lambda: len(cluster.links(leader)) == 2, "the old leader is back")


def test_an_isolated_node_sends_producers_away(cluster: RunningCluster) -> None:
    """librdkafka asks the broker for a producer id that it is connected to, as long as it is."""
    cluster.kill(3)
    cluster.start(3)  # It has no producer ids in store.
    cluster.isolate(3)
    until(lambda: cluster.links(3) == [], "node 3 is alone")
    host, _, port = cluster.address(3).rpartition(":")
    node = BrokerNode(node_id=3, host=host, port=int(port))
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)

    with open_connection(node, {}, "get a producer id", DEADLINE_S) as connection:
        answer = exchange(connection, request, InitProducerIdResponse, "get a producer id")
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with pytest.raises(Unreachable):
            exchange(connection, request, InitProducerIdResponse, "get a producer id")


def test_a_paused_node_is_taken_for_dead_until_it_goes_on(cluster: RunningCluster) -> None:
    cluster.pause(2)
    try:
        until(lambda: cluster.links(1) == [3], "node 1 has lost node 2")
        with pytest.raises(NotRunning, match="node 2 is paused"):
            cluster.stop(2)
    finally:
        cluster.resume(2)
    until(lambda: cluster.links(1) == [2, 3], "all are linked")


def test_what_cannot_be_is_refused(cluster: RunningCluster) -> None:
    with pytest.raises(NotRunning, match="node 1 is running"):
        cluster.start(1)
    with pytest.raises(ValueError, match="node 4 is none of 1 to 3"):
        cluster.kill(4)
    with pytest.raises(ValueError, match="1 to 9"), run_broker(nodes=0):
        pass
    with pytest.raises(ValueError, match="directory and config only"):
        run_broker(nodes=3, secure=True)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="no line to itself"):
        cluster.cut(2, 2)
    with pytest.raises(NotRunning, match="node 2 is running"):
        cluster.resume(2)
    cluster.kill(3)
    with pytest.raises(NotRunning, match="node 3 is down"):
        cluster.kill(3)
    cluster.start(3)
