"""A standalone cluster, a master and two workers as processes, runs a pipeline until Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.sinks import each_once, numbers
from tests.spark.speculation_driver import ROWS
from tests.spark.standalone import WAIT_SECONDS, Cluster, wait_until
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess
from tests.support.source_tree import ROOT

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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        wait_until(cluster.is_up)
        yield cluster
    finally:
        cluster.stop()


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
    flow = json.loads(out)["flows"]["grams"]
    assert (flow["rows_in"], flow["rows_out"]) == (ROW_COUNT, ROW_COUNT)
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
