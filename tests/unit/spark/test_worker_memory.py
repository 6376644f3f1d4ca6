"""Only a worker that Spark uses again exempts its modules from collections."""

import subprocess
import sys

import pytest

PROGRAM = """
import gc
from millstream.spark.worker_memory import exempt_modules
exempt_modules()
frozen = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
exempt_modules()
again = gc.get_freeze_count()
import colorsys
exempt_modules()
print(frozen > 0, again == frozen, gc.get_freeze_count() > again + 1000)
"""


@pytest.mark.parametrize(("reuse", "is_frozen"), [("1", True), ("", False)])
def test_modules_are_exempt_in_a_worker_that_is_used_again_once_until_more_are_imported(
    reuse: str, is_frozen: bool
) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"SPARK_REUSE_WORKER": reuse},
        capture_output=True,
        text=True,
        check=True,
    )

    assert run.stdout.split() == [str(is_frozen), "True", str(is_frozen)]
