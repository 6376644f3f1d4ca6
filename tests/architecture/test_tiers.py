"""Every test is in `make test` or in `make test-slow`; sizes follow the tier, workers get files."""

import gc
import re

import pytest

from tests.support.heap import leave_out_what_stays
from tests.support.scheduling import (
    ARCHITECTURE,
    BY_TEST,
    COMPUTING,
    SPARK,
    in_running_order,
    unit_of,
)
from tests.support.source_tree import ROOT, modules
from tests.support.tiers import IS_WHOLE, NOT_SLOW, SIZED, SLOW, relative

LITERAL = re.compile(r"max_examples=\d")


def test_numbers_of_examples_follow_the_tier() -> None:
    files = [path for path in (ROOT / "tests").rglob("*.py") if "architecture" not in path.parts]

    literal = [path.name for path in files if LITERAL.search(path.read_text(encoding="utf-8"))]

    assert literal == []


def test_the_tiers_name_what_exists() -> None:
    names = (*SLOW, *NOT_SLOW, *SIZED, *COMPUTING, *BY_TEST, SPARK)

    missing = [name for name in names if not (ROOT / name).exists()]

    assert missing == []


def test_ci_runs_both_tiers() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").split("\n")

    assert script[-3:-1] == ["make test", "make test-slow"]


def test_a_worker_runs_a_whole_file_and_all_of_spark_in_the_fast_tier() -> None:
    first, second = "tests/cli/test_x.py::test_a[b::c]", "tests/cli/test_x.py::test_b"
    spark = {unit_of(f"{SPARK}{name}::test_a") for name in ("test_x.py", "test_y.py")}

    assert unit_of(first) == unit_of(second) == "tests/cli/test_x.py"
    assert len(spark) == (2 if IS_WHOLE else 1)
    assert unit_of(f"{ARCHITECTURE}test_x.py::test_a") == ARCHITECTURE


def test_what_a_file_of_tests_leaves_behind_is_not_collected_again_and_again() -> None:
    kept = [[] for _ in range(2_000)]  # type: ignore[var-annotated]

    leave_out_what_stays(objects_max=10**9)
    assert any(value is kept for value in gc.get_objects())

    leave_out_what_stays(objects_max=1_000)
    assert not any(value is kept for value in gc.get_objects())


def test_syntax_trees_are_left_out_of_garbage_collection() -> None:
    trees = modules()

    assert gc.isenabled()
    tracked = {id(value) for value in gc.get_objects()}
    assert not any(id(tree) in tracked for tree in trees.values())


def test_the_running_order_loses_no_test_and_keeps_files_together(
    request: pytest.FixtureRequest,
) -> None:
    items = request.session.items

    ordered = in_running_order(items)

    paths = [relative(item.path) for item in ordered]
    starts = [path for at, path in enumerate(paths) if at == 0 or paths[at - 1] != path]
    assert sorted(map(id, ordered)) == sorted(map(id, items))
    assert len(starts) == len(set(starts))
