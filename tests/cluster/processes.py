"""Three nodes as real processes, with a proxy between each two of them, and their history.

`History` is the checker: what was acknowledged is there, once, at its offset, on every node.
"""

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.testing.process import HeldPorts
from millstream.testing.proxy import Direction, Proxy

NODES = (1, 2, 3)
HOST = "127.0.0.1"
TOPIC = "orders"
NOW_MS = 1_700_000_000_000
ANSWER_S_MAX = 4.0
CALM_S_MAX = 60.0
LINE_BYTES_MAX = 64 * 2**20


class NodeProcess:
    def __init__(self, node: int, directory: Path) -> None:
        self.node = node
        self.directory = directory
        self._ports = HeldPorts()  # Also while it is dead: its peers know where it was.
        self.listen = f"{HOST}:{self._ports.choose(HOST)}"
        self.control = f"{HOST}:{self._ports.choose(HOST)}"
        self.peers: dict[int, str] = {}
        self.is_stopped = False
        self.clock_ahead_ms = 0  # Its wall clock is wrong by so much.
        self._process: asyncio.subprocess.Process | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        options = {
            "node": self.node,
            "nodes": NODES,
            "data_dir": str(self.directory / f"node-{self.node}"),
            "listen": self.listen,
            "control": self.control,
            "peers": self.peers,
            "clock_ahead_ms": self.clock_ahead_ms,
        }
        with (self.directory / f"node-{self.node}.log").open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.cluster.node",
                json.dumps(options),
                stdout=output,
                stderr=output,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )

    async def kill(self) -> None:
        """As a power cut for the process: SIGKILL."""
        if self._process is not None and self.is_alive:
            self._process.kill()
            await self._process.wait()
        self._hang_up()

    def log_text(self) -> str:
        """What its processes have logged so far."""
        return (self.directory / f"node-{self.node}.log").read_text(errors="replace")

    def freeze(self) -> None:
        self.is_stopped = True
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.is_stopped = False
        self._signal(signal.SIGCONT)

    async def ask(self, *, answer_s_max: float = ANSWER_S_MAX, **request: Any) -> dict[str, Any]:
        """The node's answer; an `error` if it does not give one."""
        async with self._turn:
            try:
                async with asyncio.timeout(answer_s_max):
                    reader, writer = await self._connect()
                    writer.write(json.dumps(request).encode() + b"\n")
                    line = await reader.readline()
                    if not line:
                        raise ConnectionError
                    answer: dict[str, Any] = json.loads(line)
                    return answer
            except (OSError, TimeoutError) as problem:
                self._hang_up()
                return {"error": type(problem).__name__}

    async def close(self) -> None:
        if self.is_stopped:
            self.thaw()
        await self.kill()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            host, _, port = self.control.rpartition(":")
            self._streams = await asyncio.open_connection(host, int(port), limit=LINE_BYTES_MAX)
        return self._streams

    def _hang_up(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    def _signal(self, number: int) -> None:
        if self._process is not None and self.is_alive:
            self._process.send_signal(number)


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.nodes = {node: NodeProcess(node, directory) for node in NODES}
        # The node with the greater id dials: by (dialler, dialled).
        self.proxies: dict[tuple[int, int], Proxy] = {}

    async def start(self) -> None:
        for dialler in NODES:
            for target in NODES:
                self.nodes[dialler].peers[target] = self.nodes[target].listen
                if target < dialler:
                    host, _, port = self.nodes[target].listen.rpartition(":")
                    proxy = self.proxies[dialler, target] = Proxy((host, int(port)))
                    await proxy.start()
                    self.nodes[dialler].peers[target] = proxy.address
        for node in self.nodes.values():
            await node.start()

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.close()
        for proxy in self.proxies.values():
            await proxy.close()

    def cut(self, a: int, b: int) -> None:
        """Nothing passes between the two, without a word."""
        self.proxies[max(a, b), min(a, b)].stall("to", "from")

    def isolate(self, node: int) -> None:
        for other in self.nodes:
            if other != node:
                self.cut(node, other)

    def cut_one_way(self, source: int, target: int) -> None:
        direction: Direction = "to" if source > target else "from"
        self.proxies[max(source, target), min(source, target)].stall(direction)

    def heal(self) -> None:
        for proxy in self.proxies.values():
            proxy.heal()

    async def leader_of(self, partition: int) -> int | None:
        """The node that leads the partition by its own word, in the highest epoch."""
        best: tuple[int, int] | None = None
        for node in self.nodes.values():
            if not node.is_alive or node.is_stopped:
                continue
            state = await node.ask(do="state")
            for name, log in state.get("logs", {}).items():
                is_here = name.endswith(f"-{partition}") and not name.startswith("0" * 32)
                if is_here and log["role"] == "leader":
                    best = max(best or (0, 0), (log["epoch"], node.node))
        return None if best is None else best[1]

    async def create_topic(self, partitions: int) -> None:
        async with asyncio.timeout(CALM_S_MAX):
            while True:
                for node in self.nodes.values():
                    answer = await node.ask(do="create", topic=TOPIC, partitions=partitions)
                    if answer.get("error") in (None, "TopicExists"):
                        return
                await asyncio.sleep(0.05)

    async def calm(self, partitions: int, *, is_quiesced: bool = False) -> None:
        """Wait until every replica of every log is led and in one place."""
        async with asyncio.timeout(CALM_S_MAX):
            while not await self._is_calm(partitions, is_quiesced=is_quiesced):
                await asyncio.sleep(0.1)

    async def _is_calm(self, partitions: int, *, is_quiesced: bool) -> bool:
        places: dict[str, set[tuple[Any, ...]]] = {}
        for node in self.nodes.values():
            state = await node.ask(do="state")
            if len(state.get("logs", {})) != partitions + 1:
                return False
            for name, log in state["logs"].items():
                assert not log["failure"], f"node {node.node} {name}: {log['failure']}"
                is_whole = log["high_watermark"] == log["last"][1] and log["leader"] is not None
                if not is_whole or (is_quiesced and not log["is_quiesced"]):
                    return False
                places.setdefault(name, set()).add((*log["last"], log["leader"]))
        return all(len(where) == 1 for where in places.values())


class History:
    """What writers were told, and what every node has in the end."""

    def __init__(self, partitions: int, *, value_bytes: int = 0) -> None:
        """Values have `value_bytes` at least."""
        self.partitions = partitions
        self._padding = "x" * value_bytes
        self.acknowledged: list[tuple[int, int, str]] = []  # Partition, offset, value.
        self.sent: set[str] = set()
        self.is_over = False

    async def write(self, cluster: Cluster, partition: int, random: Random) -> None:
        """An idempotent producer: sends each batch until it is acknowledged."""
        sequence = 0
        while not self.is_over:
            numbers = range(sequence, sequence + random.randint(1, 4))
            values = [f"{partition}/{number}/{self._padding}" for number in numbers]
            self.sent.update(values)
            data = encode_batch(
                [Record(at, NOW_MS, None, value.encode()) for at, value in enumerate(values)],
                producer_id=100 + partition,
                producer_epoch=0,
                base_sequence=sequence,
            )
            offset = await self._send(cluster, partition, data, random)
            if offset is None:
                return
            for at, value in enumerate(values):
                self.acknowledged.append((partition, offset + at, value))
            sequence += len(values)

    async def _send(
        self, cluster: Cluster, partition: int, data: bytes, random: Random
    ) -> int | None:
        encoded = base64.b64encode(data).decode()
        order = list(NODES)
        while not self.is_over:
            for node in order:
                process = cluster.nodes[node]
                if not process.is_alive or process.is_stopped:
                    continue
                answer = await process.ask(
                    do="append", topic=TOPIC, partition=partition, data=encoded
                )
                if "offset" in answer:
                    offset: int = answer["offset"]
                    return offset
            random.shuffle(order)
            await asyncio.sleep(0.02)
        return None

    async def check(self, cluster: Cluster) -> None:
        """Raise with the name of the first claim that does not hold."""
        for partition in range(self.partitions):
            stories = {}
            for node in NODES:
                answer = await cluster.nodes[node].ask(
                    do="read", topic=TOPIC, partition=partition, answer_s_max=CALM_S_MAX
                )
                stories[node] = [(offset, value) for offset, value in answer["values"]]
            first = stories[NODES[0]]
            for node, story in stories.items():
                assert story == first, f"inconsistent-offsets: node {node} partition {partition}"
            offsets, values = [at for at, _ in first], [value for _, value in first]
            assert offsets == list(range(len(first))), f"gap: partition {partition}"
            assert len(values) == len(set(values)), f"duplicate: partition {partition}"
            assert set(values) <= self.sent, f"never sent: partition {partition}"
            story_by_offset = dict(first)
            lost = [
                entry
                for entry in self.acknowledged
                if entry[0] == partition and story_by_offset.get(entry[1]) != entry[2]
            ]
            assert not lost, f"lost-write: {lost[:5]} of {len(lost)}"


def print_logs(directory: Path) -> None:
    """Show the ends of all nodes' logs with a test that failed."""
    for log in sorted(directory.glob("node-*.log")):
        print(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}")


@asynccontextmanager
async def running_cluster(directory: Path, *, partitions: int) -> AsyncIterator[Cluster]:
    cluster = Cluster(directory)
    try:
        await cluster.start()
        await cluster.create_topic(partitions)
        await cluster.calm(partitions)
        yield cluster
    except BaseException:
        print_logs(directory)
        raise
    finally:
        await cluster.close()
