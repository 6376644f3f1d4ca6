"""Reserved names are spelled in `millstream.names` and nowhere else.

A header that is spelled twice can be spelled differently: then a client asks for a delay that the
broker does not see. Docstrings and comments may name them.
"""

import ast
import re

from millstream import names
from tests.support.source_tree import modules

OWNER = "names.py"
# Too short to be searched for: also a separator in environment variables, and part of `__init__`.
NOT_SEARCHED = {names.INTERNAL_PREFIX, names.HEADER_PREFIX}


def reserved() -> set[str]:
    values = {value for name, value in vars(names).items() if name.isupper()}
    return {value for value in values if isinstance(value, str)} - NOT_SEARCHED


NAMES = "|".join(re.escape(name) for name in sorted(reserved()))
SPELLING = re.compile(rf"(?<![\w-])ms-[a-z]|(?:{NAMES})(?![a-z_])")


def spellings(tree: ast.Module) -> list[str]:
    """Literals with a reserved name in them, docstrings left out."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        f"line {node.lineno}: {node.value!r}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and id(node) not in docstrings
        and isinstance(node.value, str | bytes)
        and SPELLING.search(
            node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        )
    ]


def test_reserved_names_are_spelled_once() -> None:
    again = {
        path: places
        for path, tree in modules().items()
        if path != OWNER and (places := spellings(tree))
    }

    assert again == {}, "take the name from millstream.names"


def test_the_search_sees_names_inside_of_texts_and_bytes() -> None:
    tree = ast.parse(
        '"""About ms-key."""\n'
        'a, b, c = f"{topic}.dlq", b"ms-ttl-ms", "__deferred"\n'
        'd, e = "atoms-left", "ms-anything-new"\n'
        'f = "dlq"'
    )

    assert {text.partition(": ")[2] for text in spellings(tree)} == {
        "'.dlq'",
        "b'ms-ttl-ms'",
        "'__deferred'",
        "'ms-anything-new'",
    }
