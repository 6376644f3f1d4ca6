"""Runs the queries of `every_version` in an environment, and compares with the table."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from millstream.spark.versions import ADMISSION_CONTROL, AVAILABLE_NOW, INSERT, LATEST_OFFSET, parse
from tests.spark.every_version import ROWS
from tests.support.source_tree import ROOT

RUN_SECONDS_MAX = 500


def run_queries(python: Path, address: str, folder: Path) -> dict[str, Any]:
    """What the program printed; fails with all that it said if it ended otherwise."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("SPARK_")}
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        inherited.pop(name, None)
    run = subprocess.run(
        [python, "-m", "tests.spark.every_version", address, folder],
        cwd=ROOT,
        env=inherited | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert run.returncode == 0, f"{run.stdout[-4000:]}\n{run.stderr[-4000:]}"
    printed: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return printed


def check_table(printed: dict[str, Any]) -> None:
    version, outcomes = parse(printed["spark"]), printed["outcomes"]
    bad = ROWS // 10
    assert outcomes["batch"] == [ROWS, ROWS]
    assert outcomes["stream"] == 2 * ROWS
    assert outcomes["values"] == [ROWS - bad, bad, ROWS // 2]
    assert outcomes["sql"] == [ROWS, ROWS, ROWS]
    if INSERT.works_in(version):
        assert outcomes["insert"] == [ROWS + 2]
        assert outcomes["sql_stream"] is True
    else:
        assert "Cannot find data for the output column" in outcomes["insert"]
    assert "does not support continuous processing" in outcomes["real_time"]
    if ADMISSION_CONTROL.works_in(version):
        assert AVAILABLE_NOW.works_in(version)
        assert LATEST_OFFSET.works_in(version)
        assert outcomes["limits"] == {"batches": ROWS // 10, "latest": True, "rows": ROWS}
    else:
        assert (
            f"maxOffsetsPerTrigger needs Spark 4.2 or newer, this is {printed['spark']}"
            in (outcomes["limits"])
        )
