"""Prometheus scrapes a broker with load, and every expression of our dashboards finds data."""

import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from millstream.cli.monitoring.files import expression, files
from millstream.cli.monitoring.panels import ALERTS, DASHBOARDS
from tests.support.http import HttpNode, http_node

pytestmark = pytest.mark.interop

WAIT_S_MAX = 90.0
EXPRESSIONS = [
    expression(text, selector='instance=~".+"', span="30s")
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for text, _ in panel.expressions
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    data_dir = str(tmp_path_factory.mktemp("broker"))
    listeners = ("kafka", "http", "flux")
    with http_node(storage="disk", data_dir=data_dir, listeners=listeners) as started:
        yield started


@contextmanager
def load(node: HttpNode) -> Iterator[Producer]:
    """A producer, a group, a subscription of Flux and a topic of dead letters."""
    addresses = node.broker.call(lambda broker: broker.addresses)
    bootstrap = f"127.0.0.1:{addresses['kafka'].port}"
    for name in ("orders", "orders-dlq"):
        assert node.ask.post("/v1/topics", {"name": name}).status == 201
    settings = {"bootstrap.servers": bootstrap, "group.id": "billing"}
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    with socket.create_connection(("127.0.0.1", addresses["flux"].port), timeout=10) as flux:
        flux.sendall(b"CONNECT {}\r\nSUB orders workers 1\r\nPING\r\n")
        try:
            producer.produce("orders", b"first")
            producer.flush(30)
            assert consumer.poll(30) is not None
            consumer.commit(asynchronous=False)
            yield producer
        finally:
            consumer.close()


@contextmanager
def scraping(program: str, node: HttpNode, folder: Path) -> Iterator[str]:
    """Prometheus with our rules, scraping the node every second; yields its address."""
    (folder / "rules.yml").write_text(dict(files())["millstream-rules.yml"], encoding="utf-8")
    target = f"127.0.0.1:{node.ask.port}"
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
        "scrape_configs:\n  - job_name: millstream\n"
        f"    static_configs: [{{targets: ['{target}']}}]\n",
        encoding="utf-8",
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def asked(address: str, path: str, **query: str) -> Any:  # JSON of any shape.
    url = f"{address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]


def test_every_expression_of_the_dashboards_finds_data(
    node: HttpNode, prometheus: str, tmp_path: Path
) -> None:
    missing = list(EXPRESSIONS)
    until = time.monotonic() + WAIT_S_MAX
    with load(node) as producer, scraping(prometheus, node, tmp_path) as address:
        while missing and time.monotonic() < until:
            producer.produce("orders", b"more")
            producer.flush(30)
            with suppress(OSError):  # It has not opened its port yet.
                missing = [
                    text for text in missing if not asked(address, "query", query=text)["result"]
                ]
            time.sleep(0.5)
        assert missing == []
        (target,) = asked(address, "targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        loaded = asked(address, "rules")["groups"][0]["rules"]
        assert [rule["name"] for rule in loaded] == [alert.name for alert in ALERTS]
        assert {rule["health"] for rule in loaded} <= {"ok", "unknown"}


def test_promtool_has_nothing_to_say_of_the_metrics(node: HttpNode, promtool: str) -> None:
    text = node.ask.get("/metrics").text

    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, check=False, timeout=60
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_promtool_accepts_the_rules(promtool: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(dict(files())["millstream-rules.yml"], encoding="utf-8")

    command = [promtool, "check", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)

    assert done.returncode == 0, done.stdout
    assert f"{len(ALERTS)} rules found".encode() in done.stdout
    assert done.stderr == b""
