"""A cluster of broker processes on this machine, which pretend to be several machines.

Owns the processes. The cluster grows as any other: the first node invites the others.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from millstream.config import Config
from millstream.control.balance import control_voter_count
from millstream.control.nodes import Address, NodeState
from millstream.engine.cluster.members import split_address
from millstream.storage.files.disk import DiskFiles
from millstream.storage.files.membership import read_membership
from millstream.testing.lives import START_SECONDS_MAX, NotRunning
from millstream.testing.process import Subprocess
from millstream.testing.proxy import Network

_JOIN = """
import json, sys
from millstream.cli.main import commands
for arguments in json.loads(sys.argv[1]):
    try:
        commands(arguments)
    except SystemExit as end:
        if end.code:
            raise
"""
POLL_S = 0.05
NODES_MAX = 9  # Processes on this machine.


class ClusterProcesses:
    """Nodes 1 to `count`, each a process with a data directory below `directory`.

    `config` is that of every node; ports are free ones that stay the same over restarts.
    """

    def __init__(
        self, config: Config, directory: Path, *, count: int = 3, network: Network | None = None
    ) -> None:
        """With `network` nodes reach each other by its lines."""
        self.nodes: dict[int, Subprocess] = {}
        self._directory = directory
        self._network = network
        for number in range(1, count + 1):
            folder = directory / f"node-{number}"
            folder.mkdir(parents=True, exist_ok=True)
            own = replace(config, data_dir=str(folder / "data"), node_id=1, storage="disk")
            if network is not None:
                peers = replace(config.peers, addresses=network.addresses(number))
                own = replace(own, peers=peers)
            self.nodes[number] = Subprocess(own, folder / "broker.log", is_spared_signals=True)
        self._running: set[int] = set()

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes that were started, for clients."""
        return ",".join(self.address(number) for number, node in self.nodes.items() if node.port)

    def address(self, number: int) -> str:
        node = self.nodes[number]
        return f"{node.host}:{node.port}"

    @property
    def running(self) -> list[int]:
        return sorted(self._running)

    def start(self) -> None:
        """Start the nodes, each joined to the first; returns when all take replicas."""
        self.start_node(1)
        self.grow()

    def grow(self, count: int | None = None) -> None:
        """Have the nodes up to `count`, or all, join the first, which runs; returns when all take
        replicas. They join in their order, which makes their ids, and start at the same time."""
        newcomers = [
            number
            for number, node in self.nodes.items()
            if number <= (count or len(self.nodes)) and not node.port
        ]
        self._join(newcomers)
        with ThreadPoolExecutor() as threads:
            list(threads.map(self.start_node, newcomers))
        self.wait(lambda: self._are_taken_in(newcomers), "all nodes are registered")

    def start_node(self, number: int) -> None:
        """Start a node that is not running, on the ports that it had."""
        if self._network is not None:
            self._place_nodes(self._network)
        self.nodes[number].start()
        self._running.add(number)

    def kill(self, number: int) -> None:
        """End a node without a goodbye."""
        self._running.discard(number)
        self.nodes[number].kill()
        self._hold_peer_port(number)

    def stop_node(self, number: int) -> None:
        """Stop a node in good order."""
        self._running.discard(number)
        self.nodes[number].stop()
        self._hold_peer_port(number)

    def stop(self) -> None:
        """End all nodes."""
        for number in self.running:
            self.kill(number)

    def log(self, number: int) -> str:
        """What a node said so far, over all its lives."""
        return (self._directory / f"node-{number}" / "broker.log").read_text(encoding="utf-8")

    def wait(self, condition: Callable[[], bool], claim: str) -> None:
        """Wait until `condition` holds, no longer than a start may take."""
        until = time.monotonic() + START_SECONDS_MAX
        while not condition():
            if time.monotonic() > until:
                raise TimeoutError(f"not within {START_SECONDS_MAX} s: {claim}")
            time.sleep(POLL_S)

    def _are_taken_in(self, numbers: Sequence[int]) -> bool:
        """Whether these nodes take replicas, and the control log has its voters."""
        from millstream.client import connect

        with connect(self.address(self.running[0]), timeout_s=START_SECONDS_MAX) as client:
            nodes = {node.node_id: node for node in client.cluster.nodes()}
        members = [node for node in nodes.values() if node.state != NodeState.REMOVED.value]
        are_up = all(n in nodes and nodes[n].address and nodes[n].is_up for n in numbers)
        voters = sum(node.is_voter for node in members)
        return are_up and voters == control_voter_count(len(members))

    def _place_nodes(self, network: Network) -> None:
        """Tell the network where the nodes listen that have joined."""
        for number in self.nodes:
            if (address := self._peer_address(number)) is not None:
                network.place(number, address)

    def _hold_peer_port(self, number: int) -> None:
        """Keep other programs from the port of a node that is not running: its peers know it."""
        if (address := self._peer_address(number)) is not None:
            self.nodes[number].ports.hold(*address)

    def _peer_address(self, number: int) -> Address | None:
        """Where a node listens for its peers, once it has joined."""
        path = self.nodes[number].config.data_dir
        membership = read_membership(DiskFiles(Path(path)), path)
        return None if membership is None else split_address(membership.listen)

    def _join(self, numbers: Sequence[int]) -> None:
        """Have one process make the data directories of all of them: each would load the same."""
        from millstream.client import connect

        commands = []
        with connect(self.address(self.running[0]), timeout_s=START_SECONDS_MAX) as client:
            for number in numbers:
                config = self.nodes[number].config
                command = ["cluster", "join", client.cluster.invite(), "--port", "0"]
                commands.append([*command, "--data-dir", config.data_dir, "--host", config.host])
        joined = subprocess.run(
            [sys.executable, "-c", _JOIN, json.dumps(commands)],
            capture_output=True,
            text=True,
            timeout=START_SECONDS_MAX,
            check=False,
        )
        if joined.returncode:
            raise RuntimeError(f"nodes {numbers} could not join: {joined.stderr.strip()}")
        for number in numbers:
            self._hold_peer_port(number)


@contextmanager
def running_cluster(
    config: Config, directory: Path, *, count: int = 3, network: Network | None = None
) -> Iterator[ClusterProcesses]:
    """Run a cluster for the length of a block."""
    cluster = ClusterProcesses(config, directory, count=count, network=network)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


class RunningCluster:
    """A cluster that a test runs against; made by `run_broker(nodes=3)`. Nodes count from 1."""

    def __init__(self, processes: ClusterProcesses, network: Network) -> None:
        self._processes = processes
        self._network = network
        self._paused: set[int] = set()

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, as clients take them in `bootstrap.servers`."""
        return self._processes.bootstrap

    @property
    def running(self) -> list[int]:
        """The nodes that were neither killed nor stopped."""
        return self._processes.running

    def address(self, node: int) -> str:
        """The address of one node; it stays the same over its lives."""
        self._check(node)
        return self._processes.address(node)

    def kill(self, node: int) -> None:
        """End a node as kill -9 does, also one that is paused."""
        self._check(node, is_running=True)
        self._paused.discard(node)
        self._processes.kill(node)

    def stop(self, node: int) -> None:
        """Stop a node in good order: it hands over what it leads."""
        self._check(node, is_running=True, is_paused=False)
        self._processes.stop_node(node)

    def start(self, node: int) -> None:
        """Start a node that was killed or stopped, with the records that it has.

        It waits for a majority: raises `RuntimeError` if most other nodes are down.
        """
        self._check(node, is_running=False)
        self._processes.start_node(node)

    def pause(self, node: int) -> None:
        """Freeze a node (SIGSTOP): its connections stay open, and it answers nothing."""
        self._check(node, is_running=True, is_paused=False)
        self._processes.nodes[node].pause()
        self._paused.add(node)

    def resume(self, node: int) -> None:
        """Go on after `pause`."""
        self._check(node, is_running=True, is_paused=True)
        self._paused.discard(node)
        self._processes.nodes[node].resume()

    def cut(self, a: int, b: int, *, one_way: bool = False) -> None:
        """Let nothing pass between two nodes, without a word, until `heal`.

        With `one_way` nothing of `a` reaches `b`, and `a` hears `b`. Clients reach both as before.
        """
        self._check(a)
        self._check(b)
        if a == b:
            raise ValueError(f"node {a} has no line to itself")
        self._network.cut(a, b, one_way=one_way)

    def isolate(self, node: int) -> None:
        """Cut a node off from all others, until `heal`."""
        self._check(node)
        for other in self._processes.nodes:
            if other != node:
                self._network.cut(node, other)

    def heal(self) -> None:
        """End all cuts. Nodes reach each other again within a second or two."""
        self._network.heal()

    def links(self, node: int) -> list[int]:
        """The nodes that `node` has a link to by its own word: a cut ends links within seconds."""
        from millstream.client.extensions.requests import exchange, open_connection
        from millstream.client.models import BrokerNode
        from millstream.kafka_wire.apis.cluster import DescribeNodesRequest, DescribeNodesResponse

        self._check(node, is_running=True, is_paused=False)
        host, _, port = self.address(node).rpartition(":")
        broker, doing = BrokerNode(node_id=node, host=host, port=int(port)), "describe the nodes"
        with open_connection(broker, {}, doing, START_SECONDS_MAX) as connection:
            answer = exchange(connection, DescribeNodesRequest(), DescribeNodesResponse, doing)
        return [each.node_id for each in answer.nodes if each.is_up and each.node_id != node]

    def create_topic(
        self, name: str, *, partitions: int = 1, settings: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic with as many replicas as there are nodes, three at most."""
        from millstream.client import connect

        with connect(self.bootstrap, timeout_s=START_SECONDS_MAX) as client:
            client.admin.create_topic(name, partitions=partitions, settings=settings or {})

    def _check(
        self, node: int, *, is_running: bool | None = None, is_paused: bool | None = None
    ) -> None:
        if node not in self._processes.nodes:
            raise ValueError(f"node {node} is none of 1 to {len(self._processes.nodes)}")
        if is_running is not None and (node in self.running) != is_running:
            raise NotRunning(f"node {node} is {'down' if is_running else 'running'}")
        if is_paused is not None and (node in self._paused) != is_paused:
            raise NotRunning(f"node {node} is {'running' if is_paused else 'paused'}")


@contextmanager
def run_cluster(
    count: int, *, directory: str | Path | None, config: Config
) -> Iterator[RunningCluster]:
    """Run `count` nodes for the length of a block; all take replicas when the block begins."""
    if not 1 <= count <= NODES_MAX:
        raise ValueError(f"nodes = {count}: 1 to {NODES_MAX} run on one machine")
    with ExitStack() as stack:
        if directory is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-"))
        # Each node takes free ports.
        config = replace(config, port=0)
        network = Network(range(1, count + 1))
        stack.callback(network.close)
        running = running_cluster(config, Path(directory), count=count, network=network)
        yield RunningCluster(stack.enter_context(running), network)
