"""A real browser before a real broker. Without a browser the tests are skipped by one sentence."""

import json
import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from tests.support.http import HttpNode, http_node

BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome")
# Deadlines, not times that are measured: several workers may share two cores.
LAUNCH_MS = 180_000
SHOWN_MS = 60_000


def browser_path() -> str | None:
    asked = os.environ.get("TESTS_CHROMIUM")
    return asked or next((path for name in BROWSERS if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")  # Its event loop runs on in this thread until it is closed.
def browser() -> Iterator[Browser]:
    path = browser_path()
    if path is None:
        sentence = "no Chromium on the path: apt-get install chromium, or set MILLSTREAM_CHROMIUM"
        if os.environ.get("TESTS_BROWSER") == "required":
            pytest.fail(sentence)
        pytest.skip(sentence)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, timeout=LAUNCH_MS)
        expect.set_options(timeout=SHOWN_MS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def node() -> Iterator[HttpNode]:
    with http_node(listeners=("kafka", "flux", "http"), flux_port=0) as started:
        yield started


@pytest.fixture
def page(browser: Browser, node: HttpNode) -> Iterator[Page]:
    """A page that fails its test by an error of a script, or a request to another address."""
    context = browser.new_context(
        base_url=f"http://127.0.0.1:{node.ask.port}", viewport={"width": 1440, "height": 900}
    )
    context.set_default_timeout(SHOWN_MS)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(f"script: {error}"))

    def look(request: Request) -> None:
        if not request.url.startswith((f"http://127.0.0.1:{node.ask.port}/", "data:", "blob:")):
            problems.append(f"request to {request.url}")

    opened.on("request", look)
    yield opened
    context.close()
    assert problems == []


def produce(node: HttpNode, topic: str, values: list[object], **record: object) -> None:
    """Write records by REST, `values` as JSON."""
    records = [{"value": {"json": value}, **record} for value in values]
    answer = node.ask.post(f"/v1/topics/{topic}/records", {"records": records})
    assert answer.status == 200, json.dumps(answer.json)
