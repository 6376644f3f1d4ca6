"""Modules and functions stay small, and every module says in its docstring what it does."""

import ast

from tests.support.source_tree import SOURCE, functions, modules

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60


def test_modules_stay_small() -> None:
    sizes = {path: (SOURCE / path).read_text(encoding="utf-8").count("\n") for path in modules()}

    assert {path: size for path, size in sizes.items() if size > MODULE_LINES_MAX} == {}


def test_functions_stay_small() -> None:
    long_functions = {
        f"{path}: {node.name}": size
        for path, tree in modules().items()
        for node in functions(tree)
        if (size := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    }

    assert long_functions == {}


def test_every_module_says_what_it_does() -> None:
    assert [path for path, tree in modules().items() if not ast.get_docstring(tree)] == []
