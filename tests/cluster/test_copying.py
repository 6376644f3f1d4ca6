"""Three broker processes, one flipped bit: the node copies the records anew and serves them."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.config import Timing
from millstream.testing.cluster import ClusterProcesses, running_cluster
from tests.cluster.test_three_nodes import CONFIG, DEADLINE_S, Sender, consumer, read

NODE = 3
# The node leads again soon after it is back: its replica is the preferred one.
SETTINGS = replace(
    CONFIG, timing=Timing(group_initial_rebalance_delay_ms=0, leader_balance_ms=1_000)
)


def flip(cluster: ClusterProcesses, value: bytes) -> Path:
    """Change one bit of a record of a stopped node; return the file."""
    logs = Path(cluster.nodes[NODE].config.data_dir) / "logs"
    segment = next(path for path in logs.rglob("*.log") if value in path.read_bytes())
    data = bytearray(segment.read_bytes())
    data[data.index(value)] ^= 1
    segment.write_bytes(bytes(data))
    return segment


@pytest.mark.timeout(300)
def test_a_flipped_bit_is_repaired_from_another_replica(tmp_path: Path) -> None:
    with running_cluster(SETTINGS, tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic("orders", 1, replica_assignment=[[NODE, 1, 2]])
        admin.create_topics([topic])["orders"].result(DEADLINE_S)
        sender = Sender(cluster)
        for number in range(20):
            sender.send("orders", [b"record-%02d" % number])
        cluster.stop_node(NODE)
        segment = flip(cluster, b"record-07")
        cluster.start_node(NODE)
        groups = (f"reader-{number}" for number in count())

        def is_repaired() -> bool:
            """Each reader gets everything, whether the node led just then and met it or not."""
            assert read_all(cluster, next(groups), 20) == sender.acknowledged
            return "copied damaged records anew" in cluster.log(NODE)

        wait_until(is_repaired, "the node led, and was repaired")
        assert any(b"record-07" in path.read_bytes() for path in segment.parent.glob("*.log"))


def read_all(cluster: ClusterProcesses, group: str, record_count: int) -> list[bytes]:
    reader = consumer(cluster, group)
    reader.subscribe(["orders"])
    values = read(reader, record_count)
    reader.close()
    return values


def wait_until(condition: Callable[[], bool], claim: str) -> None:
    until = time.monotonic() + 2 * DEADLINE_S
    while not condition():
        assert time.monotonic() < until, claim
        time.sleep(0.2)
