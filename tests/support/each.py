"""Checks many cases in one test, and reports all that fail at once.

A rule over hundreds of modules or message versions is one test: collecting a test for each case
costs every worker more than the cases themselves.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")


def check_each(
    cases: Iterable[T], check: Callable[[T], None], *, name: Callable[[T], str] = str
) -> None:
    """Run `check` for every case; raises an `ExceptionGroup` with the case's name in each note."""
    problems: list[Exception] = []
    for case in cases:
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as problem:
            failure = problem if isinstance(problem, Exception) else AssertionError(str(problem))
            failure.add_note(f"case: {name(case)}")
            problems.append(failure)
    if problems:
        raise ExceptionGroup(f"{len(problems)} cases fail", problems)
