"""Runs the pipeline of the demonstration as a user does: `millstream pipeline run` in a process.

Owns that process and its files. Its output goes to a file that is read as it grows, because a pipe
without a reader would fill. It does not get the Ctrl-C of the terminal: it is stopped while its
broker still answers.
"""

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from millstream.demo.failures import DemoFailed
from millstream.testing.process import FOLLOW

FILE = "orders.yml"
# The consumer groups that show how far its flows are, and what they read.
FLOWS = {"orders.check": "orders", "orders.minutes": "orders.valid"}
STOP_SECONDS_MAX = 10.0  # Then it is killed; what it was in the middle of was not to be seen yet.
POLL_SECONDS = 0.05
_COMMAND = "from millstream.cli.main import main\nmain()\n"
_NEEDED = ("pyspark", "pyarrow", "numpy", "yaml")
_OF_JAVA = "WARNING: Using incubator modules"  # About itself, whenever Spark starts it.


def what_spark_lacks() -> str | None:
    """The reason why Spark cannot run here, with the remedy; None if it can."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        return "Spark is not installed; to see the pipeline: pip install 'millstream[spark,java]'"
    from millstream.spark.errors import JavaMissing
    from millstream.spark.session import java_home, scratch

    try:
        java_home(os.environ, scratch())
    except JavaMissing as problem:
        return str(problem)
    return None


class Pipeline:
    """A run of it in `directory`, over what is there or for ever."""

    def __init__(self, directory: Path, address: str, *, is_continuous: bool) -> None:
        self._log = directory / "pipeline.log"
        self._summary = directory / "pipeline.json"
        self._read_bytes = self._log.stat().st_size if self._log.exists() else 0
        path, state = directory / FILE, directory / "state"
        path.write_bytes(files("millstream.demo").joinpath(FILE).read_bytes())
        words = ["pipeline", "run", str(path), "--bootstrap", address, "--state-dir", str(state)]
        words += ["--continuous"] if is_continuous else []
        self.command = shlex.join(["millstream", *words])
        with self._log.open("ab") as log, self._summary.open("wb") as summary:
            self._process = subprocess.Popen(
                [sys.executable, "-c", FOLLOW + _COMMAND, *words, "--output", "json"],
                stdin=subprocess.PIPE,
                stdout=summary,
                stderr=log,
                process_group=0,
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def new_lines(self) -> list[str]:
        """The whole lines that it said since the last time."""
        with self._log.open("rb") as log:
            log.seek(self._read_bytes)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        lines = whole.decode(errors="replace").splitlines()
        return [line for line in lines if not line.startswith(_OF_JAVA)]

    # JSON, of the shape that the command documents.
    def summary(self) -> dict[str, Any]:
        """The summary, once it has ended; raises with its last line if it failed."""
        if self._process.wait(STOP_SECONDS_MAX) != 0:
            raise DemoFailed(f"the pipeline failed: {self._last_words()}")
        summary: dict[str, Any] = json.loads(self._summary.read_text(encoding="utf-8"))
        return summary

    def stop(self) -> None:
        """End it, and return when its JVM is gone too and no longer writes to the directory."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS_MAX)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while _kill_group(self._process.pid) and time.monotonic() < deadline:
            self._process.poll()
            time.sleep(POLL_SECONDS)

    def _last_words(self) -> str:
        text = self._log.read_text(encoding="utf-8", errors="replace").strip()
        return text.rpartition("\n")[2].removeprefix("millstream: ")


def _kill_group(leader: int) -> bool:
    """Kill what is left of a process group; return whether a process was left."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def running(directory: Path, address: str, *, is_continuous: bool) -> Iterator[Pipeline]:
    pipeline = Pipeline(directory, address, is_continuous=is_continuous)
    try:
        yield pipeline
    finally:
        pipeline.stop()
