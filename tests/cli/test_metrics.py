"""`millstream top` and `millstream metrics dashboards`, against a real broker."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from millstream.cli.monitoring.files import expression, files
from millstream.cli.monitoring.panels import ALERTS, DASHBOARDS
from millstream.cli.monitoring.scrape import parse, quantile, rate
from millstream.metrics import DECLARED, Kind
from tests.cli.conftest import Cli
from tests.support.http import HttpNode, http_node

# No broker speaks Kafka there, so the exit code is 1 in any case.
DOCTOR = ("doctor", "--output", "json", "--bootstrap", "127.0.0.1:1", "--url")
METRIC = re.compile(r"\b(?:millstream|process)_\w+")


@pytest.fixture(scope="module")
def node() -> Iterator[HttpNode]:
    with http_node() as started:
        yield started


@pytest.fixture
def shell(tmp_path: Path) -> Cli:
    return Cli({"XDG_CONFIG_HOME": str(tmp_path)})


def url_of(node: HttpNode) -> str:
    return f"http://127.0.0.1:{node.ask.port}"


def test_top_shows_what_a_broker_does(node: HttpNode, shell: Cli) -> None:
    node.ask.post("/v1/topics", {"name": "sold"})
    node.ask.post("/v1/topics/sold/records", {"records": [{"value": {"text": "x"}}]})

    looks = shell.text(
        "top", "--url", url_of(node), "--interval", "0.2", "--count", "2", "--output", "json"
    ).splitlines()
    text = shell.text("top", "--url", url_of(node), "--interval", "0.2", "--count", "1")

    assert len(looks) == 2
    figures = json.loads(looks[-1])
    assert figures["memory_bytes"] > 0
    assert "sold" in [row["topic"] for row in figures["topics"]]
    assert "sold" in text


def test_top_says_why_it_shows_nothing(shell: Cli) -> None:
    assert "no metrics at http://127.0.0.1:1" in shell.refusal("top", "--url", "http://127.0.0.1:1")
    assert "no address" in shell.refusal("top", "--url", "127.0.0.1:9094")


def test_dashboards_are_written_once(shell: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "grafana"
    names = sorted(
        Path(path).name for path in shell.json("metrics", "dashboards", str(folder))["files"]
    )

    assert names == sorted(name for name, _ in files())
    assert len([name for name in names if name.endswith(".json")]) == len(DASHBOARDS) == 5
    shell.run("metrics", "dashboards", str(folder))
    (folder / names[0]).write_text("{}", encoding="utf-8")
    assert "differs" in shell.refusal("metrics", "dashboards", str(folder))
    assert (folder / names[0]).read_text(encoding="utf-8") == "{}"
    shell.run("metrics", "dashboards", str(folder), "--overwrite")
    assert json.loads((folder / names[0]).read_text(encoding="utf-8"))["uid"].startswith(
        "millstream"
    )


def test_every_expression_names_metrics_that_there_are() -> None:
    known = {metric.name for metric in DECLARED}
    known |= {f"{m.name}_bucket" for m in DECLARED if m.kind is Kind.HISTOGRAM}
    texts = [
        text for board in DASHBOARDS for panel in board.panels for text, _ in panel.expressions
    ]
    texts += [alert.expression for alert in ALERTS]

    named = {name for text in texts for name in METRIC.findall(text)}

    assert named <= known
    assert all("{}" not in expression(text, selector="", span="1m") for text in texts)


def test_rules_are_yaml_that_prometheus_knows() -> None:
    rules = yaml.safe_load(dict(files())["millstream-rules.yml"])["groups"][0]["rules"]

    assert [rule["alert"] for rule in rules] == [alert.name for alert in ALERTS]
    assert all(rule["expr"] and rule["annotations"]["summary"].endswith(".") for rule in rules)


def test_rates_and_percentiles_are_those_between_two_looks() -> None:
    before = parse(
        'x_total{topic="a \\"b\\""} 10\nh_bucket{le="0.1"} 5\nh_bucket{le="+Inf"} 5\n', 1.0
    )
    now = parse('x_total{topic="a \\"b\\""} 30\nh_bucket{le="0.1"} 5\nh_bucket{le="+Inf"} 9\n', 3.0)

    assert rate(before, now, "x_total", topic='a "b"') == 10
    assert quantile(before, now, "h", 0.99) == 0.1
    assert quantile(now, now, "h", 0.99) is None


def test_health_of_a_node_is_asked_over_http(node: HttpNode, shell: Cli) -> None:
    report = shell.json("health", "--url", url_of(node))

    assert report["status"] in {"healthy", "degraded"}
    assert len(report["checks"]) == 12
    assert "status" in shell.text("health", "--url", url_of(node))
    findings = json.loads(shell.run(*DOCTOR, url_of(node), code=1).stdout)
    assert {finding["check"]: finding["verdict"] for finding in findings}["health"] == "ok"
    node.broker.call(lambda broker: broker._running.node.hub.commits._fail(OSError("gone")))
    findings = json.loads(shell.run(*DOCTOR, url_of(node), code=1).stdout)
    verdicts = {finding["check"]: finding["verdict"] for finding in findings}
    assert (verdicts["health sync"], verdicts["health"]) == ("problem", "problem")
    assert "until a restart" in shell.run("health", "--url", url_of(node), code=1).stdout
    assert "no node answers" in shell.refusal("health", "--url", "http://127.0.0.1:1")
