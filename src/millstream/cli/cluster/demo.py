"""`millstream cluster demo`: three nodes on this machine, one of them killed and back.

Yields what clients saw, step by step. The nodes pretend to be three machines; their data goes with
them.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from millstream.config import Config, Timing
from millstream.testing.cluster import ClusterProcesses, running_cluster

TOPIC = "orders"
RECORDS = 200  # Before the kill, while the node is gone, and after.
WAIT_S_MAX = 60.0


class Step(NamedTuple):
    event: str
    text: str
    figures: dict[str, object]


def run(node_count: int = 3) -> Iterator[Step]:
    """Live through it; raises `TimeoutError` if clients are not served in time."""
    config = Config(port=0, timing=Timing(group_initial_rebalance_delay_ms=0))
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="millstream-cluster-") as directory,
        running_cluster(config, Path(directory), count=node_count) as cluster,
    ):
        took = time.monotonic() - began
        text = f"{node_count} nodes are one cluster after {took:.1f} s: {cluster.bootstrap}"
        yield Step("started", text, {"seconds": took, "bootstrap": cluster.bootstrap})
        yield from _live(cluster)


def _live(cluster: ClusterProcesses) -> Iterator[Step]:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, -1)])[TOPIC].result(WAIT_S_MAX)
    sender = _Sender(cluster.bootstrap)
    sender.send("before", RECORDS)
    leader = admin.list_topics(TOPIC, timeout=WAIT_S_MAX).topics[TOPIC].partitions[0].leader
    text = f"{RECORDS} records acknowledged; node {leader} leads their partition"
    yield Step("written", text, {"records": RECORDS, "leader": leader})
    cluster.kill(leader)
    gap_s = sender.send("during", RECORDS)
    text = f"killed node {leader}: the next record was acknowledged after {gap_s:.2f} s"
    yield Step("killed", text, {"node": leader, "seconds_without_acknowledgement": gap_s})
    began = time.monotonic()
    cluster.start_node(leader)
    took = time.monotonic() - began
    yield Step("back", f"node {leader} is back after {took:.1f} s", {"node": leader})
    sender.send("after", RECORDS)
    values = _read(cluster.bootstrap, len(sender.acknowledged))
    lost, twice = len(sender.acknowledged - set(values)), len(values) - len(set(values))
    text = f"{len(values)} records read: {lost} of those acknowledged lost, {twice} twice"
    yield Step("read", text, {"records": len(values), "lost": lost, "twice": twice})


class _Sender:
    """An idempotent producer that notes what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True}
        self._producer = Producer({**settings, "reconnect.backoff.max.ms": 500, "log_level": 0})
        self.acknowledged: set[bytes] = set()

    def send(self, name: str, count: int) -> float:
        """Send and wait for all of them; return the seconds until the first was acknowledged."""
        began, first_s = time.monotonic(), 0.0

        def note(problem: object, message: Any) -> None:  # librdkafka's message.
            nonlocal first_s
            if problem is None:
                first_s = first_s or time.monotonic() - began
                self.acknowledged.add(message.value())

        for number in range(count):
            value = f"{name}-{number}".encode()
            self._producer.produce(TOPIC, value, on_delivery=note)
        if self._producer.flush(WAIT_S_MAX):
            raise TimeoutError(f"not all records were acknowledged in {WAIT_S_MAX:.0f} s")
        return first_s


def _read(bootstrap: str, count: int) -> list[bytes]:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False}
    reader = Consumer({**settings, "auto.offset.reset": "earliest", "log_level": 0})
    values: list[bytes] = []
    until = time.monotonic() + WAIT_S_MAX
    try:
        reader.subscribe([TOPIC])
        while len(values) < count and time.monotonic() < until:
            message = reader.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
    finally:
        reader.close()
    return values
