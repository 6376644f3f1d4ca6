"""The brokers that are compared: how each is set up, started, watched and stopped.

A `Peer` is a kind of broker, a `Server` one process of it. The peers differ in nothing but what
their `prepare` writes and in the client they need: the measuring code does not know which is which.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from benchmarks.kafka.install import KAFKA_VERSION, NATS_SERVER_VERSION
from millstream import __version__

Durability = Literal["sync", "write"]
DURABILITIES: tuple[Durability, ...] = ("sync", "write")

HOST = "127.0.0.1"
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 20

MILLSTREAM, KAFKA, JETSTREAM = "Millstream", "Apache Kafka", "JetStream"
BEFORE = "Millstream before"

# What Kafka's start script passes by default.
JAVA = (
    *("java", "-server", "-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    *("-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
)
# In the directory of a server that has metrics.
HTTP_PORT_FILE = "http-port"
CLUSTER_ID = "bWlsbHN0cmVhbS1iZW5jaA"

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A kind of broker. `prepare` fills a directory and returns the command that serves it."""

    name: str
    version: str
    client: tuple[str, ...]
    speaks_kafka: bool
    durability: Mapping[Durability, str]
    prepare: Callable[[Path, int, Durability], list[str]]
    environment: Mapping[str, str] = field(default_factory=dict)


def millstream(*, flux_port: int = 0, settings: str = "", has_http: bool = True) -> Peer:
    """Our broker; `settings` is the text of a configuration file."""
    listeners = ["kafka", "flymq", "flux", "classic", *(["http"] if has_http else [])]
    program = str(Path(sys.executable).parent / "millstream")

    def prepare(directory: Path, port: int, durability: Durability) -> list[str]:
        configuration = directory / "millstream.toml"
        configuration.write_text(settings, encoding="utf-8")
        others = [f"--flux-port={flux_port}", "--classic-port=0"]
        if has_http:
            http_port = free_port()
            (directory / HTTP_PORT_FILE).write_text(str(http_port), encoding="utf-8")
            others.append(f"--http-port={http_port}")
        data = ["--data-dir", str(directory / "data"), "--durability", durability]
        return [program, "serve", f"--config={configuration}", f"--port={port}", *others, *data]

    return Peer(
        name=MILLSTREAM,
        version=__version__,
        client=(sys.executable, "-m", "benchmarks.kafka.client_librdkafka"),
        speaks_kafka=True,
        durability={
            "sync": "durability=sync: acks=all waits for fdatasync",
            "write": "durability=write: synced every 500 ms in the background",
        },
        prepare=prepare,
        environment={"MILLSTREAM_LISTENERS": ",".join(listeners)},
    )


def has_http(checkout: Path) -> bool:
    """Whether that commit serves HTTP. If not, neither side does: a listener costs memory."""
    return (checkout / "src/millstream/protocols/http").is_dir()


def millstream_before(checkout: Path) -> Peer:
    """Our broker as it is in another checkout, such as a worktree of the commit before."""
    commit = subprocess.run(
        ["git", "-C", str(checkout), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    source = {"PYTHONPATH": str((checkout / "src").resolve())}
    peer = millstream(has_http=has_http(checkout))
    environment = {**peer.environment, **source}
    if "    listeners:" not in (checkout / "src/millstream/config.py").read_text(encoding="utf-8"):
        del environment["MILLSTREAM_LISTENERS"]  # It was called so before there was HTTP.
        environment["MILLSTREAM_DOORS"] = "kafka,flux,classic"
    return replace(peer, name=BEFORE, version=commit, environment=environment)


def apache_kafka(jars: Path) -> Peer:
    def prepare(directory: Path, port: int, durability: Durability) -> list[str]:
        controller_port = free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
            "log.dirs": str(directory / "data"),
            "offsets.topic.replication.factor": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        if durability == "sync":
            settings["log.flush.interval.messages"] = "1"
        properties = directory / "server.properties"
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        properties.write_text(lines, encoding="utf-8")
        java = [*JAVA, "-cp", f"{jars}/*"]
        form = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
        subprocess.run([*java, *form], check=True, capture_output=True, timeout=START_SECONDS_MAX)
        return [*java, "kafka.Kafka", str(properties)]

    return Peer(
        name=KAFKA,
        version=f"{KAFKA_VERSION} on Java {_java_version()}, heap 1 GiB as in its start script",
        client=(sys.executable, "-m", "benchmarks.kafka.client_librdkafka"),
        speaks_kafka=True,
        durability={
            "sync": "log.flush.interval.messages=1: fsync before every ack",
            "write": "its defaults: no fsync of its own",
        },
        prepare=prepare,
    )


def jetstream(programs: Path) -> Peer:
    def prepare(directory: Path, port: int, durability: Durability) -> list[str]:
        sync = "  sync_interval: always\n" if durability == "sync" else ""
        configuration = directory / "nats.conf"
        configuration.write_text(
            f'listen: "{HOST}:{port}"\n'
            f'jetstream {{\n  store_dir: "{directory / "data"}"\n{sync}}}\n',
            encoding="utf-8",
        )
        return [str(programs / "nats-server"), "--config", str(configuration)]

    return Peer(
        name=JETSTREAM,
        version=NATS_SERVER_VERSION,
        client=(str(programs / "python"), "-m", "benchmarks.kafka.client_jetstream"),
        speaks_kafka=False,
        durability={
            "sync": "sync_interval=always: fsync before every ack",
            "write": "its defaults: synced every 2 minutes",
        },
        prepare=prepare,
    )


class NotRunning(Exception):
    """The broker did not start or died; the message holds what it said."""


class Server:
    """One broker process in a directory of its own. Use it as a context."""

    def __init__(self, peer: Peer, directory: Path, durability: Durability) -> None:
        self.peer = peer
        self.port = free_port()
        self._directory = directory
        directory.mkdir(parents=True)
        try:
            self._command = peer.prepare(directory, self.port, durability)
        except subprocess.SubprocessError as problem:
            raise NotRunning(f"{peer.name} could not be set up: {problem}") from problem
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> "Server":
        self.start()
        try:
            self.wait_until_listening()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._directory)

    def start(self) -> int:
        """Start, and return when that was, in ns of the monotonic clock."""
        # As installed: without settings of ours, and with compiled files whatever the shell says.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("MILLSTREAM_") and name != "PYTHONDONTWRITEBYTECODE"
        } | dict(self.peer.environment)
        with (self._directory / "log").open("ab") as log:
            started_ns = time.monotonic_ns()
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=environment, cwd=self._directory
            )
        return started_ns

    def wait_until_listening(self) -> None:
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > until:
                log = (self._directory / "log").read_text(errors="replace")
                said = log.strip().splitlines() or ["it said nothing"]
                raise NotRunning(f"{self.peer.name} did not start: {said[-1]}")
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End it with SIGKILL: no orderly stop, as after a crash."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def rss_bytes(self) -> int:
        return self._memory("VmRSS")

    def peak_rss_bytes(self) -> int:
        return self._memory("VmHWM")

    def cpu_seconds(self) -> float:
        """The time on a core of all its threads since it started, to the nanosecond."""
        assert self._process is not None
        tasks = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text(encoding="utf-8").split()[0]) for task in tasks) / 1e9

    def metric(self, name: str) -> float | None:
        """The value of a metric without labels; None for a peer that has no metrics."""
        port_file = self._directory / HTTP_PORT_FILE
        if not port_file.exists():
            return None
        url = f"http://{HOST}:{port_file.read_text(encoding='utf-8')}/metrics"
        with urllib.request.urlopen(url, timeout=START_SECONDS_MAX) as response:
            for line in response.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.rpartition(" ")[2])
        return None

    def pin(self, cores: set[int]) -> None:
        """Let it run on these cores alone, with all the threads that it has and will have."""
        assert self._process is not None
        for thread in Path(f"/proc/{self._process.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)

    def _memory(self, field: str) -> int:
        return 1024 * int(self._proc("status").partition(f"{field}:")[2].split()[0])

    def _proc(self, file: str) -> str:
        assert self._process is not None
        if self._process.poll() is not None:
            raise NotRunning(f"{self.peer.name} died with {self._process.returncode}")
        return Path(f"/proc/{self._process.pid}/{file}").read_text(encoding="utf-8")


def _java_version() -> str:
    result = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return result.stderr.partition('"')[2].partition('"')[0]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
