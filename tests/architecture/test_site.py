"""The site is whole: every page is in the nav, every anchor is there, every sentence is printed."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.support.documents import pages
from tests.support.source_tree import ROOT, modules

DOCS = ROOT / "docs"
NAV = re.findall(r"([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
LINK_WITH_ANCHOR = re.compile(r"\[[^\]]+\]\(([^)#\s:]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """The anchors that MkDocs and GitHub make of the headings of a page."""
    headings = HEADING.findall(FENCED.sub("", text_of(page)))
    words = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"[-\s]+", "-", heading) for heading in words}


def test_every_page_is_in_the_nav_once() -> None:
    on_disk = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))

    assert sorted(NAV) == on_disk


def test_the_index_leads_to_every_page_that_is_not_a_decision() -> None:
    index = text_of(DOCS / "index.md")
    names = [name for name in NAV if not name.startswith(("decisions/0", "index"))]

    assert [name for name in names if f"({name})" not in index] == []


def test_links_to_a_heading_lead_to_one() -> None:
    broken = []
    for page in pages():
        for target, anchor in LINK_WITH_ANCHOR.findall(text_of(page)):
            aim = page.parent / target if target else page
            if aim.suffix == ".md" and anchor not in anchors(aim):
                broken.append(f"{page.name}: {target}#{anchor}")

    assert broken == []


@pytest.mark.parametrize(
    "name", ["demo", "explore-topics", "explore-records", "explore-groups", "rates"]
)
def test_the_pictures_are_there(name: str) -> None:
    assert (DOCS / "pictures" / f"{name}.svg").read_text("utf-8").startswith("<svg")


@cache
def printed() -> str:
    """All texts of the source, one after another."""
    texts = (
        node.value
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return "\n".join(texts)


FOREIGN = ("From pip", "From the shell", "From librdkafka", "From Spark", "From a Kafka client")
SENTENCES = re.findall(
    r"^### `([^`]+)`\n\n(.*?)$", text_of(DOCS / "troubleshooting.md"), re.MULTILINE
)


@pytest.mark.parametrize("sentence", [s for s, fix in SENTENCES if not fix.startswith(FOREIGN)])
def test_the_sentence_of_the_troubleshooting_page_is_one_of_ours(sentence: str) -> None:
    parts = [part.strip(" :=()") for part in sentence.split("…")]

    assert [part for part in parts if part not in printed()] == []


WALKED = re.findall(
    r"^\| `([\w/]+\.py)` \| `(\w+)` \|", text_of(DOCS / "reading-the-code.md"), re.MULTILINE
)


def test_the_walks_through_the_code_meet_what_is_there() -> None:
    assert len(WALKED) > 40
    lost = []
    for name, function in WALKED:
        file = ROOT / "src" / "millstream" / name
        source = file.read_text(encoding="utf-8") if file.exists() else ""
        if not re.search(rf"^ *(async )?def {function}\(", source, re.MULTILINE):
            lost.append(f"{name}: {function}")

    assert lost == []


TERMS = re.findall(
    r"^\| [^|]+ \| .+ \| `([^`|]+)` \|$", text_of(DOCS / "glossary.md"), re.MULTILINE
)


def test_the_words_of_the_glossary_are_in_the_code() -> None:
    """A module exists; a class exists, and exists once."""
    assert len(TERMS) > 40
    sources = {path: text_of(path) for path in (ROOT / "src" / "millstream").rglob("*.py")}
    wrong = []
    for where in TERMS:
        if where.endswith(".py"):
            is_there = (ROOT / "src" / "millstream" / where).is_file()
        else:
            defined = re.compile(rf"^class {where}\b", re.MULTILINE)
            is_there = sum(len(defined.findall(source)) for source in sources.values()) == 1
        if not is_there:
            wrong.append(where)

    assert wrong == []


def test_compose_starts_the_image_of_the_dockerfile() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (service,) = compose["services"].values()
    exposed = re.findall(r"\d+", re.findall(r"^EXPOSE (.+)$", dockerfile, re.MULTILINE)[0])
    (volume,) = service["volumes"]

    assert service["build"] == "."
    assert {port.split(":")[1] for port in service["ports"]} <= set(exposed)
    assert f"VOLUME {volume.partition(':')[2]}\n" in dockerfile
    assert volume.partition(":")[0] in compose["volumes"]


WORDS_MAX = 60
NO_PROSE = ("|", "#", "- ", "<!--", "!")


def long_paragraphs(page: Path) -> list[str]:
    """The beginnings of paragraphs with more than `WORDS_MAX` words; lists and tables are none."""
    paragraphs = re.split(r"\n\s*\n", FENCED.sub("", text_of(page)))
    prose = [
        text
        for paragraph in paragraphs
        if not re.search(r"^(\||- |\d+\. )", text := paragraph.strip(), re.MULTILINE)
        and not text.startswith(NO_PROSE)
    ]
    return [text[:60] for text in prose if len(text.split()) > WORDS_MAX]


def test_paragraphs_are_short() -> None:
    """Decisions are left as they were written."""
    user_pages = [page for page in DOCS.rglob("*.md") if page.parent.name != "decisions"]
    long = {str(page.relative_to(DOCS)): long_paragraphs(page) for page in user_pages}

    assert {name: texts for name, texts in long.items() if texts} == {}


def test_no_page_installs_from_where_millstream_is_not() -> None:
    """It is not on PyPI yet: a command like that fails."""
    wrong = re.compile(r"pip install ['\"]?millstream")

    assert [page.name for page in pages() if wrong.search(text_of(page))] == []
