"""A standalone cluster, a master and two workers as processes, runs a pipeline until Ctrl-C."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from tests.spark.sinks import each_once, numbers
from tests.spark.speculation_driver import ROWS
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess
from tests.support.source_tree import ROOT

WAIT_SECONDS = 480
# Of the workers: Spark never runs a task twice at the same time on one host.
HOSTS = ("127.0.0.1", "127.0.0.2")
ROW_COUNT = 200
MILLSTREAM = Path(sys.executable).parent / "millstream"
PIPELINE = """
name: cluster
trigger_seconds: 0
flows:
  - name: grams
    source: {topic: orders, options: {minPartitions: 4}, schema: "id bigint, kg double"}
    sql: SELECT id, kg * 1000 AS grams, spark_partition_id() AS task FROM source
    sink: {topic: grams, key: id}
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.2)


class Cluster:
    """The daemons of Spark's own, from the installed package."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._page = f"http://127.0.0.1:{free_port()}/json/"
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        page_port = re.findall(r"\d+", self._page)[-1]
        where = ["--host", HOSTS[0], "--port", str(port), "--webui-port", page_port]
        self._start("master.Master", *where)
        for host in HOSTS:
            work = ["--host", host, "--work-dir", str(directory / f"worker-{host}")]
            size = ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
            self._start("worker.Worker", *size, *work, self.url)

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(self._page, timeout=5) as page:
                return int(json.load(page)["aliveworkers"]) == 2
        except OSError:
            return False

    def executors(self) -> list[str]:
        """What the workers started last, by the directories that executors log in."""
        collected = [path.parent for path in self._directory.glob("worker-*/app-*/*/stderr")]
        newest = max((path.parent.name for path in collected), default="")
        return [str(path) for path in collected if path.parent.name == newest]

    def stop(self) -> None:
        for daemon in self._daemons:
            daemon.terminate()
        for daemon in self._daemons:
            daemon.wait(WAIT_SECONDS)

    def _start(self, name: str, *flags: str) -> None:
        home = Path(pyspark.__file__).parent
        command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}"]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self._directory / "daemons.log").open("ab") as log:
            self._daemons.append(
                subprocess.Popen(
                    [*command, *flags],  # type: ignore[list-item]
                    stdout=log,
                    stderr=log,
                    env=environment,
                )
            )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        wait_until(found.is_up)
        yield found
    finally:
        found.stop()


def driver(*command: str | Path) -> subprocess.Popen[str]:
    # A clean environment: that of the tests names a home of Spark that only this process knows.
    kept = {k: v for k, v in os.environ.items() if "SPARK" not in k}
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**kept, "SPARK_LOCAL_IP": "127.0.0.1"},
    )


@pytest.mark.interop  # Five JVMs: more than a minute on two busy cores.
@pytest.mark.timeout(1500)
def test_a_cluster_runs_a_pipeline_until_ctrl_c(
    cluster: Cluster, broker: BrokerProcess, topics: Topics, tmp_path: Path
) -> None:
    topics.create("orders", partitions=2)
    for partition in (0, 1):
        orders = [f'{{"id": {i}, "kg": 1}}' for i in range(partition, ROW_COUNT, 2)]
        topics.send("orders", orders, partition=partition)
    (tmp_path / "pipeline.yml").write_text(PIPELINE, encoding="utf-8")
    command = [MILLSTREAM, "pipeline", "run", tmp_path, "--continuous", "--output", "json"]
    where = ["--bootstrap", broker.address, "--master", cluster.url]
    settings = ["--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1"]

    run = driver(*command, *where, *settings)  # type: ignore[arg-type]
    try:
        wait_until(lambda: run.poll() is not None or topics.size("grams") == ROW_COUNT)
        run.send_signal(signal.SIGINT)
        out, said = run.communicate(timeout=WAIT_SECONDS)
    finally:
        run.kill()

    assert run.returncode == 0, said
    found = json.loads(out)["flows"]["grams"]
    assert (found["rows_in"], found["rows_out"]) == (ROW_COUNT, ROW_COUNT)
    assert len(cluster.executors()) == 2


@pytest.mark.interop
@pytest.mark.timeout(1500)
def test_a_task_that_runs_twice_at_the_same_time_writes_once(
    cluster: Cluster, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """With spark.speculation, and a task that is slow because it waits for its second attempt."""
    module = [sys.executable, "-m", "tests.spark.speculation_driver"]
    run = driver(*module, cluster.url, broker.address, topic, str(tmp_path))
    try:
        _, said = run.communicate(timeout=WAIT_SECONDS)
    finally:
        run.kill()

    assert run.returncode == 0, said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt-0", "attempt-1"]
    assert numbers(broker.address, topic) == each_once(ROWS)
