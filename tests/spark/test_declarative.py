"""A Spark Declarative Pipelines project, made from our template, run by Spark's own engine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

RUN_SECONDS_MAX = 500
MILLSTREAM = Path(sys.executable).parent / "millstream"


def do(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of its own, as the engine runs once in a process and wants Spark for itself."""
    kept = {key: value for key, value in os.environ.items() if "SPARK" not in key}
    return subprocess.run(
        [MILLSTREAM, "pipeline", *words],
        cwd=directory,
        env=kept,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )


def run(directory: Path, broker: BrokerProcess) -> Any:
    done = do(directory, "run", "mill", "--bootstrap", broker.address, "--output", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def order(number: int, kg: float) -> str:
    return json.dumps({"id": number, "item": "flour", "kg": kg, "at": "2026-01-01T12:00:00Z"})


@pytest.mark.timeout(2 * RUN_SECONDS_MAX)
def test_a_project_goes_on_where_it_ended_and_knows_its_tables(
    broker: BrokerProcess, topics: Topics, tmp_path: Path
) -> None:
    topics.create("orders")
    topics.send("orders", [order(number, kg=number) for number in range(50)])
    assert do(tmp_path, "init", "mill", "--template", "sdp").returncode == 0

    first = run(tmp_path, broker)
    topics.send("orders", [order(50, kg=100)])
    second = run(tmp_path, broker)
    status = do(tmp_path, "status", "mill", "--bootstrap", broker.address)

    assert first["flows"] == {"orders": "completed", "items": "completed", "heavy": "completed"}
    assert (first["rows_in"], second["rows_in"]) == (50, 1)
    assert topics.size("orders-heavy") == 9 + 1
    assert "orders 0:51" in status.stdout


def test_no_broker_is_said_before_spark_starts(tmp_path: Path) -> None:
    do(tmp_path, "init", "mill", "--template", "sdp")

    done = do(tmp_path, "run", "mill", "--bootstrap", "127.0.0.1:1")

    assert done.returncode == 1
    assert "no broker answers at 127.0.0.1:1" in done.stderr
    assert done.stderr.count("\n") == 1
