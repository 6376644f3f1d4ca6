"""Which module of the package imports which, read from the source."""

import ast
from collections import defaultdict
from functools import cache

from tests.support.source_tree import ROOT, SOURCE, modules

PACKAGE = SOURCE.name


def module_name(path: str) -> str:
    """`millstream.engine.gate` for `engine/gate.py`, the package for its `__init__.py`."""
    parts = [PACKAGE, *path.removesuffix(".py").split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def users() -> dict[str, frozenset[str]]:
    """The modules that import each module, by their dotted names."""
    known = {module_name(path) for path in modules()}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for user, tree in _trees().items():
        for imported in _imported(tree, known):
            importers[imported].add(user)
    return {name: frozenset(importers[name] - {name}) for name in known}


def _trees() -> dict[str, ast.Module]:
    other = ROOT / "src" / "pyspark_millstream"
    return {module_name(path): tree for path, tree in modules().items()} | {
        f"{other.name}.{path.stem}": ast.parse(path.read_text(encoding="utf-8"))
        for path in other.rglob("*.py")
    }


def _imported(tree: ast.Module, known: set[str]) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=str(module), names=aliases):
                parts = {f"{module}.{alias.name}" for alias in aliases}
                # `from package import module` uses the module; any other name is the package's.
                names |= parts & known
                if parts - known:
                    names.add(module)
    return names & known
