"""The glossary names what the code has: each class exists once, each path exists."""

import ast
import re
from collections import Counter

from tests.support.source_tree import ROOT, SOURCE, modules

# Names of classes that another package has too, as part of a message.
IN_SEVERAL_PACKAGES = {"Replica": "also a part of Kafka's DescribeQuorum answer"}
IN_CODE = re.compile(r"`([^`]+)`")


def places() -> list[str]:
    """What the last column of the tables with three columns names."""
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("\n")
    rows = [line.strip("|").split("|") for line in lines if line.startswith("| ")]
    return [place for row in rows if len(row) == 3 for place in IN_CODE.findall(row[2])]


def class_counts() -> Counter[str]:
    return Counter(
        node.name
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )


def test_every_class_of_the_glossary_exists_once() -> None:
    names = {place for place in places() if re.fullmatch(r"[A-Z][a-z]\w*", place)}
    counts = class_counts()

    assert len(names) > 10
    assert {
        name: counts[name]
        for name in names
        if counts[name] != 1 and name not in IN_SEVERAL_PACKAGES
    } == {}


def test_every_path_of_the_glossary_exists() -> None:
    paths = [place for place in places() if re.fullmatch(r"[\w/]+(\.py|/)", place)]

    assert [path for path in paths if not (SOURCE / path).exists()] == []
