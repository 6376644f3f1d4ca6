"""Checks that the Python of Spark's workers has this package, in the same version.

Spark itself says `DATA_SOURCE_NOT_FOUND`, or ends a task in a ModuleNotFoundError, where a worker
lacks it.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import millstream
from millstream.spark.errors import WorkerLacksPackage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE = 4  # So that each executor is likely to get one.
IMPORT_SECONDS_MAX = 60
_COLUMNS = "host string, python string, version string, package string"


def check_workers(spark: "SparkSession") -> list[dict[str, str]]:
    """What the workers of a cluster have, one row for each kind; raises `WorkerLacksPackage`."""
    tasks = TASKS_PER_CORE * max(spark.sparkContext.defaultParallelism, 1)
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(_reporter(), _COLUMNS).distinct().collect()
    reports = sorted((row.asDict() for row in rows), key=str)
    for report in reports:
        if report["package"] != millstream.__version__:
            raise WorkerLacksPackage(report["host"], report["python"], report["package"])
    return reports


def check_python(python: str) -> None:
    """Raise unless this program, which will run the workers here, can import the package."""
    if os.path.realpath(python) == os.path.realpath(sys.executable):
        return
    command = [python, "-c", "import millstream, pyspark_millstream; print(millstream.__version__)"]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=IMPORT_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.SubprocessError) as problem:
        raise WorkerLacksPackage("this machine", python, f"it does not run: {problem}") from None
    if run.returncode or run.stdout.strip() != millstream.__version__:
        raise WorkerLacksPackage("this machine", python, run.stdout.strip())


def _reporter() -> Callable[[Iterable[Any]], Iterator[Any]]:
    # Defined in here, so that Spark sends the function itself: a worker without the package could
    # not import it by name.
    def report(batches: Iterable[Any]) -> Iterator[Any]:
        import importlib
        import platform
        import sys

        import pyarrow as pa

        for _ in batches:
            pass
        try:
            package = str(importlib.import_module("millstream").__version__)
        except ImportError:
            package = ""
        columns = [[platform.node()], [sys.executable], [platform.python_version()], [package]]
        names = ["host", "python", "version", "package"]
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=names)

    return report
