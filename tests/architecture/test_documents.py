"""What the documents say is true of the tree they stand in."""

import re
import tomllib
from pathlib import Path

from millstream.cli.reference import setting_rows
from tests.support.source_tree import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)(?:#[^)]*)?\)")
# What only the machine that wrote it could know.
MACHINE = re.compile(r"/root/|/work/|/home/\w+|/tmp/\w")


def broken_links(document: Path) -> list[str]:
    targets = [t for t in LINK.findall(document.read_text(encoding="utf-8")) if "://" not in t]
    return [target for target in targets if not (document.parent / target).exists()]


def test_links_lead_somewhere() -> None:
    broken = {document.name: broken_links(document) for document in DOCUMENTS}

    assert {name: links for name, links in broken.items() if links} == {}


def test_no_document_names_a_machine() -> None:
    named = {d.name: MACHINE.findall(d.read_text(encoding="utf-8")) for d in DOCUMENTS}

    assert {name: paths for name, paths in named.items() if paths} == {}


def test_every_decision_is_listed() -> None:
    decisions = ROOT / "docs" / "decisions"
    index = (decisions / "README.md").read_text(encoding="utf-8")

    unlisted = [p.name for p in decisions.glob("0*.md") if p.name not in index]

    assert unlisted == []


def test_every_part_that_can_be_installed_is_in_the_first_document() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    table = (ROOT / "docs" / "get-started.md").read_text(encoding="utf-8").partition("## See it")[0]

    missing = [name for name in project["optional-dependencies"] if f"`{name}`" not in table]

    assert missing == ["dev"]


def test_every_setting_says_what_it_means() -> None:
    rows = setting_rows()

    assert len(rows) > 100
    assert [row["key"] for row in rows if not str(row["meaning"]).endswith(".")] == []


def test_contributing_names_paths_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"(?<![\w/])((?:src|tests|docs)/[\w./]+\w/?)", text)

    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_fault_that_was_seen_names_tests_that_exist() -> None:
    page = ROOT / "docs" / "decisions" / "0033-every-fault-has-a-test.md"
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", page.read_text(encoding="utf-8"))

    assert len(named) > 30
    missing = [
        f"{path} {name}"
        for path, name in named
        if not (ROOT / path).exists() or f"def {name}" not in (ROOT / path).read_text()
    ]
    assert missing == []
