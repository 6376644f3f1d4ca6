"""Every Python example in the documents runs, as it stands there."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.documents import blocks, pages

# Time for a JVM or a cluster to start.
LONG = (pytest.mark.slow, pytest.mark.timeout(300))
STARTS_LONG = ("spark", "nodes=3")

EXAMPLES = [
    pytest.param(
        code,
        id=f"{document.name}-{at}",
        marks=LONG if any(word in code for word in STARTS_LONG) else (),
    )
    for document in pages()
    if document.name != "get-started.md"  # tests/cli/test_documents.py runs it as a whole.
    for at, code in enumerate(blocks(document.read_text(encoding="utf-8"), "python"))
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.stop()


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_example_runs(code: str, tmp_path: Path, broker: BrokerProcess) -> None:
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"MILLSTREAM_BOOTSTRAP": broker.address},
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout
