"""The documents say what the code says, and the commands in them print what they say."""

import os
import sys
from pathlib import Path

import pytest

from millstream.cli.reference import DOCUMENTS, rewritten
from millstream.config_sources import load
from tests.support.broker_process import BrokerProcess
from tests.support.documents import blocks, carried_out, pages, steps
from tests.support.source_tree import ROOT

BIN = Path(sys.executable).parent
REWRITE = "python -m millstream.cli.reference docs"
# One JVM at a time, with the tests of Spark, and time for it to start.
SPARK = (pytest.mark.xdist_group("spark"), pytest.mark.timeout(600))


def document(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


SHOWING = [
    pytest.param(page.name, marks=SPARK if "\n$ millstream pipeline run" in text else ())
    for page in pages()
    if page.parent == ROOT / "docs" and steps(text := page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_the_reference_is_that_of_the_code(name: str) -> None:
    text = document(name)

    assert rewritten(text, DOCUMENTS[name]()) == text, f"run: {REWRITE}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SHOWING)
def test_the_examples_print_what_the_document_says(name: str, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
    environment = inherited | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "MILLSTREAM_BOOTSTRAP": broker.address,
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    try:
        told = [
            carried_out(step, directory=tmp_path, environment=environment)
            for step in steps(document(name))
        ]
    finally:
        broker.kill()

    assert told == steps(document(name))


def test_the_example_of_a_file_is_a_configuration(tmp_path: Path) -> None:
    (text,) = blocks(document("configuration.md"), "toml")
    file = tmp_path / "node.toml"
    file.write_text(text)

    assert load(path=str(file), environment={}).limits.connections_max == 2000
