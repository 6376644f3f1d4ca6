"""kafka-python's own tests of SASL, TLS and ACLs, from its source archive, with our brokers."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.interop.programs.building import run
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.interop

FIXTURES = Path(__file__).parent / "upstream_fixtures.py"
KAFKA_VERSION = "4.0.0"  # What the suite takes the broker for.
SUITE_SECONDS_MAX = 400
SASL = "test/integration/test_sasl_integration.py"
TLS = "test/integration/test_ssl_integration.py"
ACLS = "test/integration/test_admin_integration.py::test_create_describe_delete_acls"
PASSED_MIN = {SASL: 9, TLS: 2, ACLS: 1}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive of the installed version, with our brokers in the place of Kafka's."""
    home, release = tmp_path_factory.mktemp("kafka-python"), version("kafka-python")
    download = ["download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    named = f"kafka-python=={release}"
    run([sys.executable, "-m", "pip", *download, "-d", home, named], home, f"download of {named}")
    (archive,) = home.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(home, filter="data")
    folder = home / archive.name.removesuffix(".tar.gz")
    (folder / "test" / "__init__.py").touch()  # Else Python's own package of that name is taken.
    shutil.copy(FIXTURES, folder / "test" / "integration" / "fixtures.py")
    return folder


@pytest.mark.timeout(SUITE_SECONDS_MAX)
@pytest.mark.parametrize("part", PASSED_MIN)
def test_its_own_tests_pass(suite: Path, part: str) -> None:
    plain = ["-o", "addopts=", "-p", "no:cacheprovider", "-q", "-W", "ignore"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, part],
        cwd=suite,
        env={**os.environ, "KAFKA_VERSION": KAFKA_VERSION, "PYTHONPATH": f"{suite}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS_MAX,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    assert int(passed[1]) >= PASSED_MIN[part], "its tests were skipped"
