"""The same queries in every Spark that the package supports, and a sentence in an older one."""

import os
import subprocess
from pathlib import Path

import pytest

from millstream.spark.versions import SUPPORTED, parse
from tests.interop.spark.environments import TOO_OLD, VERSIONS, environment
from tests.spark.versions import check_table, run_queries
from tests.support.broker_process import BrokerProcess
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.timeout(1800)  # An environment is made from PyPI the first time.


@pytest.mark.parametrize("version", VERSIONS)
def test_every_spark_does_what_the_table_says(
    version: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    printed = run_queries(environment(version), broker.address, tmp_path)

    assert printed["spark"] == version
    check_table(printed)


def test_all_versions_but_the_newest_have_an_environment() -> None:
    assert tuple(map(parse, VERSIONS)) == SUPPORTED[:-1]


@pytest.mark.parametrize(
    "program", ["import millstream.spark as s; s.session()", "import pyspark_millstream"]
)
def test_spark_3_is_refused_in_a_sentence(program: str) -> None:
    run = subprocess.run(
        [environment(TOO_OLD), "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert run.stderr.splitlines()[-1].startswith(
        f"millstream.spark.errors.UnsupportedSpark: this is Spark {TOO_OLD}; "
    )
