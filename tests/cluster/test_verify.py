"""`millstream verify` against real clusters: sound ones hold, one that forgets is found out."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from millstream.cli.main import commands
from millstream.client import connect
from millstream.testing import RunningBroker, RunningCluster, run_broker
from millstream.verify.faults import Fault, Node
from millstream.verify.run import VerifyConfig, verify

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with run_broker(nodes=3) as running:
        yield running


def restart(broker: RunningBroker) -> Fault:
    def act(node: Node) -> str:
        broker.kill()
        broker.restart()
        return "restarted"

    return Fault("restart", act)


@pytest.mark.timeout(300)
def test_a_cluster_whose_nodes_are_killed_and_cut_off_holds(cluster: RunningCluster) -> None:
    turns: list[str] = []

    def kill(node: Node) -> str:
        turns.append("kill")
        cluster.kill(node.node_id)
        cluster.start(node.node_id)
        return "killed and back"

    def cut_off(node: Node) -> str:
        turns.append("cut off")
        cluster.isolate(node.node_id)
        time.sleep(2.5)  # Longer than an election takes.
        cluster.heal()
        return "cut off and back"

    config = VerifyConfig(seconds=20, records_per_s=100, fault_every_s=3.0)
    with connect(cluster.bootstrap, timeout_s=DEADLINE_S) as client:
        settings = {"bootstrap.servers": cluster.bootstrap, "log_level": "0"}
        report = verify(
            client, settings, config, faults=[Fault("cut off", cut_off), Fault("kill", kill)]
        )

    assert report.verdict == "holds", (report.reason, report.counts, report.findings[:10])
    assert report.acknowledged > 100
    assert report.read >= report.acknowledged
    assert {"kill", "cut off"} <= set(turns)


@pytest.mark.timeout(300)
def test_the_command_answers_people_and_programs(cluster: RunningCluster, tmp_path: Path) -> None:
    marks, history = tmp_path / "marks", tmp_path / "history.json"
    arguments = ["verify", "--seconds", "6", "--rate", "50", "--every", "1", "--drain"]
    arguments += ["--fault", f"mark=echo {{node}} {{address}} >> {marks}", "--fault", "no=exit 3"]
    arguments += ["--history", str(history), "-b", cluster.bootstrap, "--output", "json"]

    result = CliRunner().invoke(commands, arguments)

    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["verdict"] == "holds"
    assert report["not_tested"]
    outcomes = {(each["fault"], each["is_done"]) for each in report["faults"]}
    assert {("mark", True), ("no", False)} <= outcomes
    assert marks.read_text().startswith(f"1 {cluster.address(1)}\n")
    assert len(json.loads(history.read_text())["sends"]) == report["sent"]
    with connect(cluster.bootstrap, timeout_s=DEADLINE_S) as client:
        assert report["topic"] not in {topic.name for topic in client.admin.list_topics()}


@pytest.mark.timeout(300)
def test_a_broker_that_forgets_does_not_hold() -> None:
    """Memory of a process of its own is gone with it: acknowledged records are lost."""
    with run_broker(mode="subprocess", storage="memory") as broker:
        settings = {"bootstrap.servers": broker.bootstrap, "log_level": "0"}
        config = VerifyConfig(seconds=9, partitions=1, records_per_s=50, fault_every_s=6.0)
        with connect(broker.bootstrap, timeout_s=DEADLINE_S) as client:
            report = verify(client, settings, config, faults=[restart(broker)])

    assert report.acknowledged > 0
    assert report.verdict != "holds"


def test_flags_that_make_no_sense_are_misuse() -> None:
    result = CliRunner().invoke(commands, ["verify", "--writers", "0"])

    assert result.exit_code == 2
    assert "writers = 0 is not in 1 to 50" in result.output
