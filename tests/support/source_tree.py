"""Our own source as syntax trees, for the tests that hold the code to its rules."""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "millstream"


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its path below `src/millstream`.

    They are a million objects that live as long as the process. Garbage collection leaves them out:
    with them each `gc.collect()` of a later test would take more than a second of CPU.
    """
    gc.collect()
    gc.disable()
    trees = {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }
    gc.freeze()
    gc.enable()
    return trees


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def dotted(node: ast.AST) -> str | None:
    """`os.path.join` for an attribute chain on a plain name, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return None if inner is None else f"{inner}.{node.attr}"
    return None
