"""Words that make a sentence hard to read become fewer.

The table has how often each stands in `src` and `docs`. A change may lower a number, never raise
it: new text has a thing of the code as its subject.
"""

import ast
import re
from collections import Counter

from tests.support.source_tree import ROOT

COUNT_MAX = {
    # Once each: the decision that counts them.
    "the one thing to know": 1,
    "whoever": 1,
    "nobody": 1,
    # Listeners were called so. The setting's earlier name is still read, and an example has one.
    "doors": 2,
    "door": 1,
}
# A name says what the thing is: `topic`, `future`, `partition_ends`.
CODE = ("src", "tests", "benchmarks", "examples", "tools")
NO_NAMES = {"found", "given", "one", "rest", "told", "wanted", "what"}
WORD = re.compile("|".join(rf"\b{word}\b" for word in COUNT_MAX), re.IGNORECASE)


def counts() -> Counter[str]:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    texts = (re.sub(r"\s+#?\s*", " ", path.read_text(encoding="utf-8")) for path in files)
    return Counter(word.lower() for text in texts for word in WORD.findall(text))


def test_words_that_must_be_decoded_become_fewer() -> None:
    now = counts()

    assert {word: now[word] for word, limit in COUNT_MAX.items() if now[word] > limit} == {}


def test_the_search_sees_words_across_lines() -> None:
    assert WORD.findall("Nobody knows. The one thing to know: whoever asks.") == [
        "Nobody",
        "The one thing to know",
        "whoever",
    ]


def test_a_name_says_what_the_thing_is() -> None:
    files = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]

    assert [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in files
        for line, name in bound_names(path.read_text(encoding="utf-8"))
        if name.strip("_") in NO_NAMES
    ] == []


def bound_names(source: str) -> list[tuple[int, str]]:
    """Lines and names of the variables, parameters, functions and attributes that are defined."""
    names: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store(), lineno=line):
                names.append((line, name))
            case ast.Attribute(attr=name, ctx=ast.Store(), lineno=line):
                names.append((line, name))
            case ast.arg(arg=name, lineno=line):
                names.append((line, name))
            case (
                ast.FunctionDef(name=name, lineno=line)
                | ast.AsyncFunctionDef(name=name, lineno=line)
            ):
                names.append((line, name))
    return names


def test_the_search_sees_names_of_every_kind() -> None:
    source = "found = [one for one in told]\ndef rest(wanted): self.given = what = 1"

    assert sorted(name for _, name in bound_names(source)) == sorted(NO_NAMES - {"told"})
