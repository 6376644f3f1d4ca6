"""Pipelines choose their brokers as all commands do: flags, variables, file, context in use."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import NOBODY, Cli
from tests.support.broker_process import BrokerProcess

SPEC = """
name: copy
flows:
  - name: all
    source: {topic: orders}
    sink: {topic: copies, format: raw}
"""
NOT_RUN_YET = "pipeline copy has not run yet\n"


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[str]:
    """A pipeline without a bootstrap; commands change to its directory."""
    before = Path.cwd()
    path = tmp_path / "pipeline.yml"
    path.write_text(SPEC)
    yield str(path)
    os.chdir(before)


def test_the_context_in_use_is_the_one_of_a_pipeline_without_a_bootstrap(
    offline: Cli, broker: BrokerProcess, pipeline: str
) -> None:
    offline.run("context", "add", "home", broker.address)

    assert offline.text("pipeline", "status", pipeline) == NOT_RUN_YET


def test_a_bootstrap_of_the_file_wins_over_the_context_in_use(
    offline: Cli, broker: BrokerProcess, pipeline: str
) -> None:
    offline.run("context", "add", "away", NOBODY)
    Path(pipeline).write_text(f"bootstrap: {broker.address}\n{SPEC}")

    assert offline.text("pipeline", "status", pipeline) == NOT_RUN_YET


def test_a_context_that_is_named_wins_over_the_file(
    offline: Cli, broker: BrokerProcess, pipeline: str
) -> None:
    offline.run("context", "add", "home", broker.address)
    offline.run("context", "add", "away", NOBODY)
    Path(pipeline).write_text(f"bootstrap: {broker.address}\n{SPEC}")

    assert offline.text("pipeline", "status", pipeline, "--context", "home") == NOT_RUN_YET
    assert NOBODY in offline.refusal("pipeline", "status", pipeline, "--context", "away")
    assert "no context 'hom'" in offline.refusal("pipeline", "status", pipeline, "--context", "hom")


def test_settings_reach_the_connection_of_a_pipeline(cli: Cli, pipeline: str) -> None:
    secured = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanisms=GSSAPI"]

    assert cli.text("pipeline", "status", pipeline, "-X", "client.id=me") == NOT_RUN_YET
    assert "'GSSAPI'" in cli.refusal("pipeline", "status", pipeline, *secured)
    assert "-X takes KEY=VALUE" in cli.misuse("pipeline", "status", pipeline, "-X", "nonsense")


def test_settings_that_cannot_reach_a_declarative_project_are_refused(
    cli: Cli, tmp_path: Path, pipeline: str
) -> None:
    path = tmp_path / "spark-pipeline.yml"
    path.write_text("name: sums\nstorage: file:///tmp/sums\nlibraries: []\n")

    refusal = cli.refusal("pipeline", "run", str(path), "-X", "sasl.username=ann")

    assert "sasl.username: settings of -X" in refusal
