"""Every test is in `make test` or in `make test-slow`, and sizes follow the tier."""

import re

from tests.support.source_tree import ROOT
from tests.support.tiers import NOT_SLOW, SIZED, SLOW

LITERAL = re.compile(r"max_examples=\d")


def test_numbers_of_examples_follow_the_tier() -> None:
    files = [path for path in (ROOT / "tests").rglob("*.py") if "architecture" not in path.parts]

    literal = [path.name for path in files if LITERAL.search(path.read_text(encoding="utf-8"))]

    assert literal == []


def test_the_tiers_name_what_exists() -> None:
    missing = [name for name in (*SLOW, *NOT_SLOW, *SIZED) if not (ROOT / name).exists()]

    assert missing == []


def test_ci_runs_both_tiers() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").split("\n")

    assert script[-3:-1] == ["make test", "make test-slow"]
