"""`run_broker(nodes=3)`: a cluster for a test, whose nodes are killed, stopped and started."""

from collections.abc import Iterator

import pytest

from millstream.client import connect
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


def test_what_cannot_be_is_refused(cluster: RunningCluster) -> None:
    with pytest.raises(NotRunning, match="node 1 is running"):
        cluster.start(1)
    with pytest.raises(ValueError, match="node 4 is none of 1 to 3"):
        cluster.kill(4)
    with pytest.raises(ValueError, match="1 to 9"), run_broker(nodes=0):
        pass
    with pytest.raises(ValueError, match="directory and config only"):
        run_broker(nodes=3, secure=True)  # type: ignore[call-overload]
    cluster.kill(3)
    with pytest.raises(NotRunning, match="node 3 is down"):
        cluster.kill(3)
    cluster.start(3)
