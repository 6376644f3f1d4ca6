"""One measurement of one broker: clients started, numbers brought back, nothing averaged.

Each trial starts its clients as processes, lets them connect, says go and collects what they
print. Values come back under names that `comparison` knows. A trial that could not be proven
raises `TrialFailed`; it never returns a figure.
"""

import json
import os
import re
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kafka.comparison import percentile
from benchmarks.kafka.job import RUN_SECONDS_MAX, Job, Told
from benchmarks.kafka.peers import HOST, ROOT, Peer, Server

STALLS = "millstream_loop_stalls_total"
CLIENT_SECONDS_MAX = RUN_SECONDS_MAX + 60
PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
PERF_TEST_SAID = re.compile(r"(\d+) steady state records sent, ([\d.]+) records/sec")


class TrialFailed(Exception):
    """The client did not finish or proved that records were lost; no figure comes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is measured: records of `size` bytes, `acks` as the producer asks, `partitions`."""

    size: int
    acks: str
    partitions: int

    def __str__(self) -> str:
        return f"{self.size} B, acks={self.acks}, {self.partitions} partition(s)"


class Client:
    """A client process that is ready, and waits for `go`."""

    def __init__(self, peer: Peer, action: str, job: Told) -> None:
        self._name = f"{peer.name} {action}"
        self._process = subprocess.Popen(
            [*peer.client, action, job.text()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            self._fail()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, list[int] | float]:
        try:
            out, error = self._process.communicate(timeout=CLIENT_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._fail()
        if self._process.returncode != 0:
            raise TrialFailed(f"{self._name}: {last_line(error)}")
        result: dict[str, list[int] | float] = json.loads(out)
        return result

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _fail(self) -> None:
        self._process.kill()
        _, error = self._process.communicate()
        raise TrialFailed(f"{self._name}: {last_line(error)}")


def throughput(server: Server, cell: Cell, *, topic: str, count: int) -> dict[str, float]:
    """Write `count` records as fast as possible, then read them all back."""
    job = job_of(server, cell, topic, count)
    values: dict[str, float] = {}
    for action in ("produce", "consume"):
        settle()
        client = Client(server.peer, action, job)
        cpu = server.cpu_seconds()
        client.go()
        result = client.result()
        values[f"{action}_per_s"] = count / _number(result["seconds"])
        values[f"{action}_client_busy"] = _number(result["busy"])
        values[f"{action}_client_cpu_us"] = _number(result["cpu_seconds"]) / count * 1e6
        values[f"{action}_cpu_us"] = (server.cpu_seconds() - cpu) / count * 1e6
    return values


def latency(
    server: Server, cell: Cell, *, topic: str, rate: int, warm_s: float, measured_s: float
) -> dict[str, float]:
    """Write and read at once, at a fixed rate; in milliseconds from when a record was due."""
    warm_count = int(rate * warm_s)
    count = warm_count + int(rate * measured_s)
    job = job_of(server, cell, topic, count, rate=rate, warm_count=warm_count)
    settle()
    stalls = server.metric(STALLS)
    receiver = Client(server.peer, "receive", job)
    try:
        sender = Client(server.peer, "send", job)
    except BaseException:
        receiver.kill()
        raise
    receiver.go()
    sender.go()
    try:
        acked = sender.result()["latencies_us"]
        arrived = receiver.result()["latencies_us"]
    finally:
        for client in (sender, receiver):
            client.kill()
    values: dict[str, float] = {}
    for kind, latencies in (("ack", acked), ("end_to_end", arrived)):
        assert isinstance(latencies, list)
        ordered = sorted(latencies)
        for name, share in PERCENTILES.items():
            values[f"{kind}_{name}_ms"] = percentile(ordered, share) / 1000
    if stalls is not None:
        values["stalls"] = (server.metric(STALLS) or 0.0) - stalls
    return values


def perf_test(
    server: Server, cell: Cell, *, topic: str, count: int, jars: Path
) -> dict[str, float]:
    """kafka-producer-perf-test: Kafka's Java producer at its defaults, as fast as it can."""
    # The first half warms the JVM up and is not counted.
    job = job_of(server, cell, topic, 2 * count)
    do(server.peer, "create", job)
    settle()
    result = subprocess.run(
        [
            *("java", "-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
            *("-cp", f"{jars}/*", "org.apache.kafka.tools.ProducerPerformance"),
            *("--bootstrap-server", server.address, "--topic", topic),
            *(
                "--num-records",
                str(job.count),
                "--warmup-records",
                str(count),
                "--record-size",
                str(cell.size),
            ),
            *("--throughput", "-1", "--command-property", f"acks={cell.acks}"),
        ],
        capture_output=True,
        text=True,
        timeout=CLIENT_SECONDS_MAX,
        check=False,
    )
    said = PERF_TEST_SAID.findall(result.stdout)
    if result.returncode != 0 or not said:
        raise TrialFailed(f"kafka-producer-perf-test: {last_line(result.stdout + result.stderr)}")
    do(server.peer, "check", job)
    return {"perf_test_per_s": float(said[-1][1])}


def start(server: Server) -> dict[str, float]:
    """From the start of the process to its first ack, and what it holds in memory then."""
    cell = Cell(size=100, acks="all", partitions=1)
    client = Client(server.peer, "first_ack", job_of(server, cell, "first", 1))
    client.go()
    try:
        started_ns = server.start()
        acked_ns = _number(client.result()["acked_ns"])
        return {
            "first_ack_s": (acked_ns - started_ns) / 1e9,
            "idle_rss_mb": server.rss_bytes() / 1e6,
        }
    finally:
        client.kill()


@contextmanager
def idle_connections(server: Server, count: int) -> Iterator[None]:
    """Hold `count` connections open that said hello and then nothing more."""
    connections: list[socket.socket] = []
    try:
        for _ in range(count):
            connection = socket.create_connection((HOST, server.port), timeout=10)
            connections.append(connection)
            (_greet_kafka if server.peer.speaks_kafka else _greet_nats)(connection)
        yield
    finally:
        for connection in connections:
            connection.close()


def _greet_kafka(connection: socket.socket) -> None:
    # ApiVersions v0 with correlation id 1 and no client id.
    connection.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
    (length,) = struct.unpack(">i", _receive(connection, 4))
    correlation, error = struct.unpack_from(">ih", _receive(connection, length))
    if (correlation, error) != (1, 0):
        raise TrialFailed(f"ApiVersions was answered with error {error}")


def _greet_nats(connection: socket.socket) -> None:
    connection.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
    said = b""
    while b"PONG" not in said:
        part = connection.recv(4096)
        if not part:
            raise TrialFailed("the server closed an idle connection")
        said += part


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise TrialFailed("the broker closed an idle connection")
        data += part
    return data


def job_of(server: Server, cell: Cell, topic: str, count: int, **paced: int) -> Job:
    return Job(
        address=server.address,
        topic=topic,
        partitions=cell.partitions,
        acks=cell.acks,
        size=cell.size,
        count=count,
        **paced,
    )


def do(peer: Peer, action: str, job: Job) -> None:
    """Have a client process take one step that is not measured."""
    client = Client(peer, action, job)
    client.go()
    client.result()


def settle() -> None:
    """Write out what the trial before left dirty, so that nobody pays for another's records."""
    os.sync()
    time.sleep(0.1)


def _number(value: list[int] | float) -> float:
    assert not isinstance(value, list)
    return value


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
