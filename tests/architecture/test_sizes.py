"""A module owns one thing, a function does one thing: past these sizes they rarely do."""

import pytest

from tests.support.source_tree import SOURCE, functions, modules

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60


@pytest.mark.parametrize("path", sorted(modules()))
def test_modules_and_functions_stay_small(path: str) -> None:
    lines = (SOURCE / path).read_text(encoding="utf-8").count("\n")
    long_functions = {
        node.name: size
        for node in functions(modules()[path])
        if (size := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    }

    assert lines <= MODULE_LINES_MAX
    assert long_functions == {}


@pytest.mark.parametrize("path", sorted(modules()))
def test_every_module_says_what_it_owns(path: str) -> None:
    first = modules()[path].body[:1]

    assert first, f"{path} is empty"
    assert getattr(getattr(first[0], "value", None), "value", ""), f"{path} has no docstring"
