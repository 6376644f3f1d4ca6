"""docs/cli.md and docs/configuration.md say what the code says, and their examples run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.cli.reference import DOCUMENTS, rewritten
from millstream.config import load
from tests.support.broker_process import BrokerProcess
from tests.support.source_tree import ROOT

BIN = Path(sys.executable).parent
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
REWRITE = "python -m millstream.cli.reference docs"


def document(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def steps(text: str) -> list[tuple[str, str]]:
    """The commands of all examples, in order, with what the document says they print."""
    found = []
    for block in CONSOLE.findall(text):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            found.append((command, output))
    return found


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_the_reference_is_that_of_the_code(name: str) -> None:
    text = document(name)

    assert rewritten(text, DOCUMENTS[name]()) == text, f"run: {REWRITE}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_the_examples_print_what_the_document_says(name: str, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
    environment = inherited | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "MILLSTREAM_BOOTSTRAP": broker.address,
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    told = []
    try:
        for command, _ in steps(document(name)):
            result = subprocess.run(
                ["/bin/sh", "-c", command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=tmp_path,
                env=environment,
                timeout=120,
                check=False,
            )
            told.append((command, result.stdout))
    finally:
        broker.kill()

    assert told == steps(document(name))


def test_the_example_of_a_file_is_a_configuration(tmp_path: Path) -> None:
    (text,) = TOML.findall(document("configuration.md"))
    file = tmp_path / "node.toml"
    file.write_text(text)

    assert load(path=str(file), environment={}).limits.connections_max == 2000
