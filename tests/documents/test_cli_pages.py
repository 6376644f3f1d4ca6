"""The documents say what the code says, and the commands in them print what they say."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream.cli.reference import DOCUMENTS, rewritten
from millstream.config_sources import load
from tests.support.broker_process import BrokerProcess
from tests.support.documents import Program, blocks, carried_out, pages, plot, steps
from tests.support.source_tree import ROOT

BIN = Path(sys.executable).parent
REWRITE = "python -m millstream.cli.reference docs"
# Time for a JVM to start.
SPARK = pytest.mark.timeout(600)


def document(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


# Its programs write what its later commands read, so it is run as a whole.
WHOLE = "get-started.md"
SHOWING = [
    pytest.param(page.name, marks=SPARK if "\n$ millstream pipeline run" in text else ())
    for page in pages()
    if page.parent == ROOT / "docs"
    and page.name != WHOLE
    and steps(text := page.read_text(encoding="utf-8"))
]


@pytest.mark.smoke
@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_the_reference_is_that_of_the_code(name: str) -> None:
    text = document(name)

    assert rewritten(text, DOCUMENTS[name]()) == text, f"run: {REWRITE}"


@contextmanager
def reader_with_a_broker(directory: Path) -> Iterator[dict[str, str]]:
    """The environment of a reader who has started a broker, as the page says."""
    broker = BrokerProcess(directory, LISTENERS="kafka,flymq,flux,classic,http")
    broker.start()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
    try:
        yield inherited | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "MILLSTREAM_BOOTSTRAP": broker.address,
            "MILLSTREAM_REGISTRY_URL": f"http://{broker.host}:{broker.config.http_port}",
            "XDG_CONFIG_HOME": str(directory),
        }
    finally:
        broker.kill()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SHOWING)
def test_the_examples_print_what_the_document_says(name: str, tmp_path: Path) -> None:
    with reader_with_a_broker(tmp_path) as environment:
        printed = [
            carried_out(step, directory=tmp_path, environment=environment)
            for step in steps(document(name))
        ]

    assert printed == steps(document(name))


@pytest.mark.timeout(600)
def test_the_first_page_prints_what_it_says_from_top_to_bottom(tmp_path: Path) -> None:
    acts = plot(document(WHOLE))
    assert len([act for act in acts if isinstance(act, Program)]) == 4
    with reader_with_a_broker(tmp_path) as environment:
        for act in acts:
            if isinstance(act, Program):
                program = subprocess.run(
                    [sys.executable, "-c", act.code],
                    capture_output=True,
                    text=True,
                    cwd=tmp_path,
                    env=environment,
                    timeout=120,
                    check=False,
                )
                assert program.stdout == act.output, program.stderr
            else:
                assert carried_out(act, directory=tmp_path, environment=environment) == act


def test_the_example_of_a_file_is_a_configuration(tmp_path: Path) -> None:
    (text,) = blocks(document("configuration.md"), "toml")
    file = tmp_path / "node.toml"
    file.write_text(text)

    assert load(path=str(file), environment={}).limits.connections_max == 2000
