"""Bad input to a cluster: each a sentence, and no harm to the others."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millstream.cli.cluster.joining import join
from millstream.client import connect
from millstream.client.errors import ClientError
from millstream.config import Config
from millstream.testing import RunningCluster, run_broker
from millstream.testing.cluster import ClusterProcesses, running_cluster
from tests.cluster.test_three_nodes import CONFIG, DEADLINE_S, Sender, consumer, create, read

SERVE = "from millstream.cli.main import main; main()"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with running_cluster(CONFIG, tmp_path_factory.mktemp("three")) as running:
        yield running


def serve(data_dir: str) -> subprocess.CompletedProcess[str]:
    """Start a node that is expected to refuse."""
    command = [sys.executable, "-c", SERVE, "serve", "--data-dir", data_dir, "--port", "0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_a_wiped_directory_under_an_old_id_does_not_start(cluster: ClusterProcesses) -> None:
    """The node would vote on promises that it forgot. The others go on meanwhile."""
    create(cluster, "wiped")
    cluster.stop_node(3)
    data = Path(cluster.nodes[3].config.data_dir)
    kept = data.with_name("kept")
    shutil.copytree(data, kept)
    for path in data.iterdir():
        if path.name not in {"cluster.json", "cluster.key"}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    refused = serve(str(data))

    assert refused.returncode == 1
    assert "was that of node 3 and has lost its records" in refused.stderr
    assert "millstream cluster replace 3 NEW" in refused.stderr
    sender = Sender(cluster)
    sender.send("wiped", [b"two of three"])
    shutil.rmtree(data)
    kept.rename(data)
    cluster.start_node(3)  # With its data back it is itself again.


def test_a_token_serves_once(cluster: ClusterProcesses, tmp_path: Path) -> None:
    with connect(cluster.address(1), timeout_s=DEADLINE_S) as client:
        token = client.cluster.invite()
        before = len(client.cluster.nodes())
        joined = join(token, Config(port=0, data_dir=str(tmp_path / "first")), {})
        with pytest.raises(ClientError, match="this token was used, or was never given"):
            join(token, Config(port=0, data_dir=str(tmp_path / "second")), {})

        assert not (tmp_path / "second" / "cluster.json").exists()
        assert len(client.cluster.nodes()) == before + 1
        assert joined.node_id == before + 1


def test_an_expired_token_is_refused_and_lets_no_node_in(tmp_path: Path) -> None:
    with run_broker(storage="disk") as broker, connect(broker.bootstrap) as client:
        token = client.cluster.invite()
        broker.advance_clock(2 * 3600 * 1000)

        with pytest.raises(ClientError, match="this token has expired: make another one with"):
            join(token, Config(port=0, data_dir=str(tmp_path / "late")), {})

        assert len(client.cluster.nodes()) == 1
        assert not (tmp_path / "late" / "cluster.json").exists()


@pytest.mark.timeout(300)
def test_with_half_of_a_cluster_gone_nothing_is_written_and_nothing_is_lost() -> None:
    with run_broker(nodes=3) as cluster:
        cluster.create_topic("orders")
        with connect(cluster.bootstrap, timeout_s=DEADLINE_S) as client:
            assert client.produce("orders", "before").offset == 0
        cluster.kill(2)
        cluster.kill(3)

        assert write_for(cluster, seconds=5) == []
        assert cluster.links(1) == []  # It still answers.

        start_both(cluster)
        with connect(cluster.bootstrap, timeout_s=DEADLINE_S) as client:
            client.produce("orders", "after")
            with client.consumer("orders", start="earliest") as records:
                values = [next(records).value for _ in range(2)]
        # The record of the meantime may be there: its producer was not told that it is not.
        assert values[0] == b"before"
        assert values[1] in (b"meanwhile", b"after")


def write_for(cluster: RunningCluster, *, seconds: int) -> list[int | None]:
    """Try to write to the node that is left; return the offsets that were acknowledged."""
    offsets: list[int | None] = []
    producer = Producer(
        {"bootstrap.servers": cluster.address(1), "message.timeout.ms": seconds * 1000}
    )
    producer.produce(
        "orders",
        b"meanwhile",
        on_delivery=lambda problem, message: (
            offsets.append(message.offset()) if problem is None else None
        ),
    )
    assert producer.flush(DEADLINE_S) == 0
    return offsets


def start_both(cluster: RunningCluster) -> None:
    """Start node 2, which makes a majority with node 1, then node 3."""
    cluster.start(2)
    cluster.start(3)
    deadline = time.monotonic() + DEADLINE_S
    while cluster.links(1) != [2, 3]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_records_of_all_this_are_whole(cluster: ClusterProcesses) -> None:
    """The cluster that met a wiped node and used tokens serves as before."""
    create(cluster, "whole", partitions=3)
    sender = Sender(cluster)
    sender.send("whole", [b"%d" % at for at in range(100)])
    reader = consumer(cluster, "whole-readers")
    reader.subscribe(["whole"])
    values = read(reader, 100)
    reader.close()
    assert sorted(values) == sorted(sender.acknowledged)
