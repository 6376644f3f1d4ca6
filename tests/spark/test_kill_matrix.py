"""Driver, workers, executors and broker are killed at every step of a batch, in every output mode.

On a standalone cluster with speculation, and in one process.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.spark.matrix_driver import LOCAL, MODES, ROWS_PER_BATCH, steps_on
from tests.spark.sinks import each_once, logged_batches, numbers
from tests.spark.standalone import Cluster, wait_until
from tests.support.broker_process import BrokerProcess

LIFE_SECONDS_MAX = 240
BATCHES_AFTER = 3


class MortalBroker(BrokerProcess):
    """A broker that others may kill."""

    @property
    def pid(self) -> int:
        return self._running.pid

    def revive(self) -> None:
        if self._running.poll() is not None:
            self.kill()
            self.start()


@contextmanager
def driver(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    # A clean environment: that of other tests names a home of Spark that only they know.
    kept = {name: text for name, text in os.environ.items() if "SPARK" not in name}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.matrix_driver", *arguments],
        env={**kept, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        # The driver leads a group of its own: its JVM and their workers go with it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.timeout(3600)
@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_no_row_is_missing_and_none_is_doubled_whoever_is_killed_whenever(
    mode: str, topic: str, tmp_path: Path
) -> None:
    check(mode, topic, tmp_path, LOCAL)


@pytest.mark.timeout(3600)
@pytest.mark.interop
@pytest.mark.parametrize("mode", MODES)
def test_the_same_on_a_cluster_with_speculation_whose_executors_are_killed(
    mode: str, topic: str, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path)
    try:
        wait_until(cluster.is_up)
        check(mode, topic, tmp_path, cluster.url)
    finally:
        cluster.stop()


def check(mode: str, topic: str, directory: Path, master: str) -> None:
    """Run a query through all kills, then some batches more, and count what it wrote."""
    steps = steps_on(master)
    site, checkpoint = directory / "site", directory / "checkpoint"
    site.mkdir()
    broker = MortalBroker(directory, DEFAULT_PARTITIONS=2)
    broker.start()
    arguments = (broker.address, topic, str(checkpoint), mode, str(site), master)
    lives, batches_needed = 0, None
    try:
        while batches_needed is None or len(logged_batches(checkpoint)) < batches_needed:
            lives += 1
            assert lives <= 2 * len(steps)
            deadline = time.monotonic() + LIFE_SECONDS_MAX
            with driver(*arguments) as process:
                while process.poll() is None:
                    assert time.monotonic() < deadline, f"stuck after {list(site.iterdir())}"
                    broker.revive()
                    (site / "broker-pid").write_text(str(broker.pid), encoding="utf-8")
                    time.sleep(0.05)
                    logged = len(logged_batches(checkpoint))
                    is_killed = all((site / step).exists() for step in steps)
                    if is_killed and batches_needed is None:
                        batches_needed = logged + BATCHES_AFTER
                    if batches_needed is not None and logged >= batches_needed:
                        break

        committed = len(logged_batches(checkpoint))
        written = numbers(broker.address, topic)
        # The last life was killed too: its last batch is there, whole or not at all.
        wholes = [each_once(ROWS_PER_BATCH * count) for count in (committed, committed + 1)]
        assert written in wholes
        assert lives > 5
    finally:
        broker.kill()
