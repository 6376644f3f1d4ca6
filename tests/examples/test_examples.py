"""The projects in examples/ run as they are."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from millstream.client import connect
from tests.support.broker_process import BrokerProcess
from tests.support.source_tree import ROOT

EXAMPLES = ROOT / "examples"


def run(*command: str, directory: Path, bootstrap: str = "") -> str:
    process = subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        env=os.environ | {"MILLSTREAM_BOOTSTRAP": bootstrap, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_every_example_is_in_the_list() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    folders = [path.name for path in EXAMPLES.iterdir() if path.is_dir()]

    assert [name for name in folders if f"[{name}]({name}/" not in index] == []


def test_the_pytest_project_passes() -> None:
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull)

    assert "2 passed" in run(*command, "--rootdir=.", ".", directory=EXAMPLES / "pytest-project")


@pytest.mark.skipif(
    importlib.util.find_spec("fastapi") is None or importlib.util.find_spec("httpx") is None,
    reason="FastAPI's test client needs: pip install fastapi httpx",
)
def test_the_http_service_takes_orders_and_adds_them_up(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    program = """
from fastapi.testclient import TestClient
from app import app
import time
with TestClient(app) as http:
    for kg in (2, 3):
        assert http.post("/orders", json={"item": "rye", "kg": kg}).status_code == 200
    deadline = time.monotonic() + 30
    while http.get("/totals").json() != {"rye": 5.0}:
        assert time.monotonic() < deadline, http.get("/totals").json()
        time.sleep(0.1)
"""
    try:
        run("-c", program, directory=EXAMPLES / "fastapi", bootstrap=broker.address)
    finally:
        broker.kill()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_spark_job_writes_each_row_once(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        with connect(broker.address) as client:
            client.set_serde("json")
            for number, kg in enumerate((25, 5, 0)):
                client.produce("orders", {"id": number, "item": "rye", "kg": kg})
            job = str(EXAMPLES / "spark-job" / "job.py")
            for _ in range(2):
                run(job, "checkpoint", directory=tmp_path, bootstrap=broker.address)
            with client.consumer("orders-grams", idle_s=2) as consumer:
                grams = [message.value["grams"] for message in consumer]
    finally:
        broker.kill()

    assert sorted(grams) == [5000.0, 25000.0]


def test_the_containers_build_this_checkout_and_wait_for_the_broker() -> None:
    folder = EXAMPLES / "compose"
    services = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))["services"]

    assert [(folder / service["build"]).resolve() for service in services.values()] == [ROOT, ROOT]
    assert services["reader"]["depends_on"]["broker"]["condition"] == "service_healthy"
