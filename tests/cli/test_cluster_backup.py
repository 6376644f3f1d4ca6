"""A backup of three nodes, made over the network, and the one node that is made of it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.cli.backup.manifest import FILES, MANIFEST
from millstream.client import ClientError, connect
from millstream.testing import RunningCluster, run_broker
from tests.cli.conftest import Cli, environment
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_clients import until

CLIENT_S_MAX = 60.0
COUNT = 300
PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """With three replicas of `orders`, one of `single`, and a group that has read both."""
    with run_broker(nodes=3) as running:
        running.create_topic("orders", partitions=PARTITIONS)
        cli = Cli(
            environment(tmp_path_factory.mktemp("home"), MILLSTREAM_BOOTSTRAP=running.bootstrap)
        )
        cli.run("topic", "create", "single", "--partitions", "6", "--replicas", "1")
        cli.run("topic", "create", "emptied", "--set", "retention.ms=60000")
        cli.run("topic", "create", "gone")
        cli.run("topic", "delete", "gone", "--yes")
        cli.run("role", "create", "auditors")
        write(running.bootstrap, range(COUNT))
        for topic in ("orders", "single"):
            cli.run(
                *("consume", topic, "--group", "readers", "--from", "earliest"),
                *("--count", str(COUNT)),
            )
        yield running


@pytest.fixture
def cli(cluster: RunningCluster, tmp_path: Path) -> Cli:
    return Cli(environment(tmp_path, MILLSTREAM_BOOTSTRAP=cluster.bootstrap))


def write(address: str, numbers: range) -> None:
    with connect(address, timeout_s=CLIENT_S_MAX) as client, client.producer() as producer:
        for number in numbers:
            for topic in ("orders", "single"):
                producer.send(topic, str(number), key=str(number % 17))


def read(cli: Cli, address: str, topic: str) -> list[int]:
    shown = cli.text("consume", topic, "--from", "earliest", "--bootstrap", address)
    return sorted(map(int, shown.split()))


def places(address: str, topic: str) -> dict[int, tuple[int, int]]:
    """The start and the end of every partition."""
    with connect(address, timeout_s=CLIENT_S_MAX) as client:
        described = client.admin.describe_topic(topic).partitions
        return {each.partition: (each.begin_offset, each.end_offset) for each in described}


def test_three_nodes_become_one_with_all_records_groups_and_roles(
    cluster: RunningCluster, cli: Cli, tmp_path: Path
) -> None:
    backup, data = tmp_path / "backup", tmp_path / "other" / "data"
    kept = {topic: places(cluster.bootstrap, topic) for topic in ("orders", "single")}

    made = cli.json("backup", str(backup))

    assert made["problems"] == []
    assert sorted(made["node_id"]) == [1, 2, 3]
    names = [log for node in (1, 2, 3) for log in logs_of(backup / f"node-{node}")]
    assert len(names) - 2 == len(set(names)), "only the control log is copied three times"
    assert cli.json("restore", str(backup), "--check")["cluster_id"] == made["cluster_id"]

    restored = cli.json("restore", str(backup), str(data))
    assert restored["node_id"] == 1
    assert restored["cluster_id"] != made["cluster_id"]
    other = BrokerProcess(tmp_path / "other")
    other.start()
    try:
        there = Cli(environment(tmp_path, MILLSTREAM_BOOTSTRAP=other.address))
        until(lambda: there.json("health")["status"] == "healthy", "the restored node is healthy")
        for topic, expected in kept.items():
            assert places(other.address, topic) == expected
            assert read(there, other.address, topic) == list(range(COUNT))
        lag = there.json("group", "lag", "readers")
        assert sum(row["lag"] for row in lag["partitions"]) == 0
        assert "auditors" in there.text("role", "list")
        assert "gone" not in there.text("topic", "list")
        write(other.address, range(COUNT, COUNT + 10))
        assert read(there, other.address, "orders") == list(range(COUNT + 10))
        other.stop()
        other.start()  # A second start finds what the first one made of it.
        there = Cli(environment(tmp_path, MILLSTREAM_BOOTSTRAP=other.address))
        assert read(there, other.address, "orders") == list(range(COUNT + 10))
    finally:
        other.stop()
    assert read(cli, cluster.bootstrap, "orders") == list(range(COUNT))


def test_a_restored_node_grows_into_a_cluster_again(cli: Cli, tmp_path: Path) -> None:
    cli.run("backup", str(tmp_path / "backup"))
    again = tmp_path / "again"
    cli.run("restore", str(tmp_path / "backup"), str(again / "node-1" / "data"))

    with run_broker(nodes=3, directory=again) as restored:
        until(lambda: are_in_sync(restored.bootstrap, "orders"), "all partitions have three copies")
        assert read(cli, restored.bootstrap, "orders") == list(range(COUNT))
        assert read(cli, restored.bootstrap, "single") == list(range(COUNT))
        write(restored.bootstrap, range(COUNT, COUNT + 10))
        assert read(cli, restored.bootstrap, "orders") == list(range(COUNT + 10))


def are_in_sync(address: str, topic: str) -> bool:
    with connect(address, timeout_s=CLIENT_S_MAX) as client:
        try:
            described = client.admin.describe_topic(topic).partitions
        except ClientError:  # Leaders change while voters do.
            return False
    return all(len(each.in_sync_ids) == 3 for each in described)


def logs_of(backup: Path) -> set[str]:
    files = json.loads((backup / MANIFEST).read_bytes())["backup"]["files"]
    return {name.split("/")[1] for name in files if name.startswith("logs/")}


def test_a_backup_without_some_nodes_names_what_is_missing(
    cluster: RunningCluster, cli: Cli, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    cli.run("backup", str(backup))
    (backup / "node-2").rename(tmp_path / "lost")
    (backup / "node-3").rename(tmp_path / "lost-too")

    refused = cli.refusal("restore", str(backup), str(tmp_path / "data"))
    assert "single/" in refused
    assert "--partial" in refused
    assert not (tmp_path / "data").exists()
    restored = cli.json("restore", str(backup), str(tmp_path / "data"), "--partial")
    assert all(name.startswith("single/") for name in restored["empty"])

    shutil.copytree(backup / "node-1", backup / "node-1-of-yesterday")
    assert "two backups" in cli.refusal("restore", str(backup), str(tmp_path / "another"))

    changed = next((backup / "node-1" / FILES / "logs").rglob("*.log"))
    changed.write_bytes(changed.read_bytes() + b"x")
    assert "has changed" in cli.refusal("restore", str(backup), "--check")
