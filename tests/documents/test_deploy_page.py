"""The page on deployment: its files are valid, its metrics exist, its alarms can fire."""

import re
import shutil
import subprocess
import urllib.request
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

from millstream.cli.main import commands
from millstream.config_sources import load
from millstream.metrics import DECLARED
from tests.support.broker_process import BrokerProcess
from tests.support.documents import blocks
from tests.support.source_tree import ROOT

PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
METRICS = set(re.findall(r"millstream_[a-z_]+", PAGE))
PARAGRAPH_WORDS_MAX = 60


def unit() -> ConfigParser:
    (text,) = blocks(PAGE, "ini")
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # Keys keep their case.
    parser.read_string(text)
    return parser


def test_every_metric_is_declared() -> None:
    assert METRICS - {metric.name for metric in DECLARED} == set()


def test_the_settings_are_a_configuration(tmp_path: Path) -> None:
    (text,) = blocks(PAGE, "toml")
    file = tmp_path / "millstream.toml"
    file.write_text(text)

    config = load(path=str(file), environment={})

    assert config.listeners == ("kafka", "http")
    assert config.http_port == 9094


def test_the_service_runs_a_command_that_exists() -> None:
    program, command, *flags = unit()["Service"]["ExecStart"].split()

    parsed = commands.get_command(None, command)  # type: ignore[arg-type]  # It needs no context.
    assert program.endswith("/bin/millstream")
    assert parsed is not None
    known = {name for option in parsed.params for name in option.opts}
    assert {flag for flag in flags if flag.startswith("-")} - known == set()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_service_is_a_unit_of_systemd(tmp_path: Path) -> None:
    (text,) = blocks(PAGE, "ini")
    file = tmp_path / "millstream.service"
    # The program and its user are not on this machine.
    text = re.sub("ExecStart=.*", "ExecStart=/bin/true", text).replace(
        "User=millstream", "User=root"
    )
    file.write_text(text)

    checked = subprocess.run(
        ["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False
    )

    assert [line for line in checked.stderr.splitlines() if "millstream.service" in line] == []


def test_the_files_of_compose_and_prometheus_are_whole() -> None:
    compose, scrape, rules = (yaml.safe_load(text) for text in blocks(PAGE, "yaml"))

    assert set(compose["services"]["millstream"]["environment"]) == {
        "MILLSTREAM_LISTENERS",
        "MILLSTREAM_ADVERTISED_HOST",
    }
    assert scrape["scrape_configs"][0]["static_configs"][0]["targets"] == ["broker.example:9094"]
    alarms = [rule["expr"] for rule in rules["groups"][0]["rules"]]
    table = set(re.findall(r"^\| `(millstream_[a-z_]+)` \|", PAGE, re.MULTILINE))
    assert len(table) == 10
    assert [name for name in table if not any(name in alarm for alarm in alarms)] == []


def test_a_broker_serves_the_metrics_of_all_alarms(tmp_path: Path) -> None:
    labelled = {metric.name for metric in DECLARED if metric.labels}  # They come with their labels.
    process = BrokerProcess(tmp_path, LISTENERS="kafka,http")
    process.start()
    try:
        url = f"http://{process.host}:{process.config.http_port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as response:
            text = response.read().decode()
    finally:
        process.kill()

    served = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert METRICS - labelled - served == set()


def test_paragraphs_are_short() -> None:
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    lengths = {
        text[:40]: len(text.split())
        for text in re.split(r"\n\n|\n- ", prose)
        if not text.startswith("|")
    }

    assert {text: n for text, n in lengths.items() if n > PARAGRAPH_WORDS_MAX} == {}
