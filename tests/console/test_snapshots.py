"""What a screen reader finds on each page: headings, controls and columns, as golden files tell.

`TESTS_UPDATE_GOLDEN=1 pytest tests/console/test_snapshots.py` writes the files: read the diff then.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import SHOWN_MS, produce
from tests.console.test_acts import commit
from tests.console.test_console import PAGES, make_topic
from tests.support.http import HttpNode, http_node

GOLDEN = Path(__file__).parents[1] / "golden" / "console"
IS_UPDATE = bool(os.environ.get("TESTS_UPDATE_GOLDEN"))
SECTION = re.compile(r"^=== (\S+)\n", re.MULTILINE)
# Of a line that differs from run to run, with the load of the machine, or with the settings.
CHANGING = re.compile(
    r"\d|User:|ANONYMOUS|default|limit|healthy|degraded|ready|in time|controller"
    r"|begins with|Go on|Soon|No member|waiting for|listitem$"
)
LEVEL = re.compile(r"\[level=\d\]")
TABS = ("", "/partitions", "/groups", "/settings", "/schema", "/access")
FILLED = (
    "/console/topics",
    *(f"/console/topics/orders{tab}" for tab in TABS),
    "/console/groups",
    "/console/groups/billing",
    "/console/views",
    "/console/schemas",
    "/console/schemas/orders-value",
)
NARROW = ("/console/topics", "/console/topics/orders", "/console/groups", "/console/cluster")


@pytest.fixture(scope="module")
def filled() -> Iterator[HttpNode]:
    """A topic with records, a group that has read some, a view and a schema."""
    with http_node(listeners=("kafka", "http")) as node:
        make_topic(node, "orders")
        produce(node, "orders", [{"item": "flour"}, {"item": "rye"}])
        commit(node, "billing", "orders", 1)
        schema = {"schema": '{"type": "string"}'}
        assert node.ask.post("/subjects/orders-value/versions", schema).status == 200
        view = {"name": "rye", "topic": "orders", "filter": "$.item == 'rye'"}
        assert node.ask.post("/v1/views", view).status == 201
        yield node


def opened(browser: Browser, node: HttpNode, width: int) -> Page:
    context = browser.new_context(
        base_url=f"http://127.0.0.1:{node.ask.port}", viewport={"width": width, "height": 900}
    )
    context.set_default_timeout(SHOWN_MS)
    return context.new_page()


def check(page: Page, claim: str, paths: tuple[str, ...]) -> None:
    """Compare each page with its section; a page has its time until it is as the section says."""
    golden = GOLDEN / f"{claim}.txt"
    if IS_UPDATE:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text("".join(f"=== {path}\n{lasting(page, path)}" for path in paths))
    _, *parts = SECTION.split(golden.read_text(encoding="utf-8"))
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert tuple(sections) == paths
    for path, section in sections.items():
        page.goto(path)
        expect(page.locator("main")).to_match_aria_snapshot(section)


def lasting(page: Page, path: str) -> str:
    """The snapshot of a page without lines that change, and what is below them."""
    page.goto(path)
    page.wait_for_load_state("networkidle")
    kept: list[str] = []
    dropped_depth: int | None = None
    for line in page.locator("main").aria_snapshot().splitlines():
        depth = len(line) - len(line.lstrip())
        if dropped_depth is not None and depth > dropped_depth:
            continue
        dropped_depth = depth if CHANGING.search(LEVEL.sub("", line)) else None
        if dropped_depth is None:
            kept.append(line)
    return "".join(f"{line}\n" for line in without_empty(kept))


def without_empty(lines: list[str]) -> Iterator[str]:
    """Leave out names of groups whose members are all left out."""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        depth = len(line) - len(line.lstrip())
        is_parent = len(following) - len(following.lstrip()) > depth
        yield line if is_parent else line.removesuffix(":")


def test_an_empty_broker_is_read_aloud_as_ever(browser: Browser) -> None:
    with http_node(listeners=("kafka", "http")) as node:
        page = opened(browser, node, 1440)
        check(page, "empty", PAGES)
        page.context.close()


@pytest.mark.parametrize(
    ("claim", "width", "paths"), [("filled", 1440, FILLED), ("narrow", 360, NARROW)]
)
def test_pages_with_data_are_read_aloud_as_ever(
    browser: Browser, filled: HttpNode, claim: str, width: int, paths: tuple[str, ...]
) -> None:
    page = opened(browser, filled, width)
    check(page, claim, paths)
    page.context.close()
