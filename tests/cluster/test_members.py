"""A cluster of broker processes grows from one node to five and shrinks to three, under load.

A producer writes all the time. In the end every acknowledged record is read (none unseen, none
lost), once, and no delivery has failed. The commands are those of an operator.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from millstream.cli.main import commands
from millstream.client import connect
from millstream.client.extensions.cluster import ClusterNode
from millstream.testing.cluster import ClusterProcesses
from tests.cluster.test_growing import LEARNS_NODES, voters_of
from tests.cluster.test_hand_over import PARTITIONS, Stream
from tests.cluster.test_three_nodes import CONFIG, consumer, create, read

STEP_S_MAX = 120.0  # Of two cores that other tests keep busy.


def wait(condition: Callable[[], bool], claim: str) -> None:
    until = time.monotonic() + STEP_S_MAX
    while not condition():
        assert time.monotonic() < until, f"not within {STEP_S_MAX:g} s: {claim}"
        time.sleep(0.1)


def say(cluster: ClusterProcesses, asked: int, *arguments: str) -> str:
    """Give a command of `millstream cluster` to a node; return what it prints."""
    place = ["--bootstrap", cluster.address(asked)]
    outcome: Any = CliRunner().invoke(commands, ["cluster", *arguments, *place])
    assert outcome.exit_code == 0, outcome.output
    text: str = outcome.output
    return text


def nodes(cluster: ClusterProcesses, asked: int) -> dict[int, ClusterNode]:
    with connect(cluster.address(asked), timeout_s=STEP_S_MAX) as client:
        return {node.node_id: node for node in client.cluster.nodes()}


def leave(cluster: ClusterProcesses, node: int, *, asked: int) -> None:
    """Decommission a node, and stop it when it is no part of the cluster any more."""
    assert "leaves" in say(cluster, asked, "decommission", str(node), "--yes")
    wait(lambda: node not in nodes(cluster, asked), f"node {node} is removed")
    cluster.stop_node(node)


def test_one_node_becomes_three_then_five_then_three_and_no_record_is_lost(tmp_path: Path) -> None:
    cluster = ClusterProcesses(CONFIG, tmp_path, count=5)
    try:
        cluster.start_node(1)
        create(cluster, "orders", PARTITIONS)
        stream = Stream(cluster, **LEARNS_NODES)
        with stream.running():
            stream.wait_for_more()
            cluster.grow(3)
            wait(lambda: voters_of(cluster, "orders") == [[1, 2, 3]] * PARTITIONS, "three vote")
            cluster.grow(5)
            stream.wait_for_more()
            assert "moves to 4, 5, 3" in say(cluster, 2, "move", "orders", "0", "4,5,3")
            wait(lambda: say(cluster, 3, "moves") == "nothing moves\n", "it has moved")
            assert voters_of(cluster, "orders")[0] == [3, 4, 5]
            stream.wait_for_more()
            assert "can leave" in say(cluster, 3, "decommission", "1", "--dry-run")
            leave(cluster, 1, asked=3)
            stream.wait_for_more()
            leave(cluster, 2, asked=4)
            stream.wait_for_more()

        assert stream.failed == []
        assert sorted(nodes(cluster, 5)) == [3, 4, 5]
        assert all(node.is_voter for node in nodes(cluster, 5).values())
        reader = consumer(cluster, "auditors")
        reader.subscribe(["orders"])
        values = read(reader, len(stream.acknowledged))
        reader.close()
        assert sorted(values) == sorted(stream.acknowledged)
    except BaseException:
        for number in cluster.nodes:
            if cluster.nodes[number].port:
                print(f"--- node {number}\n{cluster.log(number)[-4000:]}")
        raise
    finally:
        cluster.stop()


def test_a_node_whose_disk_is_lost_is_replaced_by_a_new_one(tmp_path: Path) -> None:
    cluster = ClusterProcesses(CONFIG, tmp_path, count=4)
    try:
        cluster.start_node(1)
        cluster.grow(3)
        create(cluster, "orders", PARTITIONS)
        stream = Stream(cluster, **LEARNS_NODES)
        with stream.running():
            stream.wait_for_more()
            cluster.kill(3)
            cluster.grow(4)
            with connect(cluster.address(1), timeout_s=STEP_S_MAX) as client:
                client.cluster.decommission(3, successor=4, dry_run=True)
            say(cluster, 1, "replace", "3", "4", "--yes")
            wait(lambda: 3 not in nodes(cluster, 2), "node 3 is removed")
            stream.wait_for_more()

        assert stream.failed == []
        assert voters_of(cluster, "orders") == [[1, 2, 4]] * PARTITIONS
        reader = consumer(cluster, "auditors")
        reader.subscribe(["orders"])
        assert sorted(read(reader, len(stream.acknowledged))) == sorted(stream.acknowledged)
        reader.close()
    finally:
        cluster.stop()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["move", "orders", "0"], "say the nodes, such as 1,2,4, or --cancel"),
        (["move", "orders", "0", "a,b"], "are no nodes"),
    ],
)
def test_a_move_without_nodes_is_misuse(arguments: list[str], sentence: str) -> None:
    outcome = CliRunner().invoke(
        commands, ["cluster", *arguments, "--bootstrap", "127.0.0.1:1"], standalone_mode=True
    )
    assert outcome.exit_code == 2
    assert sentence in outcome.output
