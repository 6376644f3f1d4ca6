"""MirrorMaker 2 and a Kafka Streams application, each in a process of its own."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.interop.java.releases import BUILD, COMPILE_SECONDS_MAX, HERE, JAVA, fetch, require, run

FOLDER = "kafka4_frameworks"
STOP_SECONDS_MAX = 60
WAIT_SECONDS_MAX = 240  # A worker of Connect needs half a minute to start, on an idle machine.

MIRROR_SETTINGS = """
clusters = a, b
a.bootstrap.servers = {a}
b.bootstrap.servers = {b}
a->b.enabled = true
b->a.enabled = false
a->b.topics = {topic}
a->b.groups = {group}
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.partitions = 1
status.storage.partitions = 1
refresh.topics.interval.seconds = 2
refresh.groups.interval.seconds = 2
sync.topic.configs.interval.seconds = 2
sync.topic.acls.enabled = false
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 2
emit.checkpoints.interval.seconds = 2
offset.lag.max = 0
tasks.max = 1
consumer.auto.offset.reset = earliest
"""


def install() -> None:
    """Fetch the jars, and compile the application."""
    require()
    fetch(FOLDER)
    jars = ["-cp", str(BUILD / FOLDER / "lib" / "*")]
    classes = ["-d", str(BUILD / FOLDER / "classes")]
    sources = [str(path) for path in sorted((HERE / "streams").glob("*.java"))]
    run(["javac", "-nowarn", *classes, *jars, *sources], COMPILE_SECONDS_MAX)


class Framework:
    """A program that runs until it is stopped, or killed."""

    def __init__(self, main_class: str, *arguments: str, log: Path) -> None:
        home = BUILD / FOLDER
        jars = f"{home / 'classes'}:{home / 'lib' / '*'}"
        self._log = log
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [*JAVA, "-Xmx384m", "-cp", jars, main_class, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def wait_for(self, expected: object, read: Callable[[], object]) -> float:
        """Read until `expected` is there; return how many seconds that took."""
        started = time.monotonic()
        while (value := read()) != expected:
            assert self._process.poll() is None, "\n".join(self.lines[-30:])
            assert time.monotonic() - started < WAIT_SECONDS_MAX, f"{value}, not {expected}"
            time.sleep(0.1)
        return time.monotonic() - started
