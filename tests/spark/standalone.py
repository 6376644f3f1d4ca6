"""A standalone cluster of Spark's, a master and two workers as processes."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pyspark

WAIT_SECONDS = 480
# Of the workers: Spark never runs a task twice at the same time on one host.
HOSTS = ("127.0.0.1", "127.0.0.2")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
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
