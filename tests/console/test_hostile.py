"""Hostile names and values on every page: shown, inert, and the page lives."""

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, expect

from millstream.security.audit import Audit
from tests.console.conftest import SHOWN_MS
from tests.console.test_console import PAGES, WCAG
from tests.support.http import HttpNode, http_node

MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
BIDI = "\u202egnp.exe\u2066"
HOSTILE = MARKUP + BIDI + "\u0007"
LINE_BYTES = 2 * 1024 * 1024
SETTINGS = {"purpose": MARKUP, "max.message.bytes": str(2 * LINE_BYTES)}
DEEP = 5_000
HEADERS = 1_000
WAIT_MS = 60_000
OF_THINGS = (
    "/console/topics/hostile",
    "/console/topics/hostile?at=0@0",
    *(
        f"/console/topics/hostile/{tab}"
        for tab in ("partitions", "groups", "settings", "schema", "delayed", "views", "access")
    ),
    "/console/dead-letters?topic=hostile",
    "/console/access?tab=roles",
    "/console/access?tab=acls",
    "/console/access?tab=matrix",
    "/console/access?tab=why",
    "/console/index",
)


@pytest.fixture(scope="module")
def node() -> Iterator[HttpNode]:
    with http_node(audit=Audit(enabled="on")) as started:
        fill(started)
        yield started


def fill(node: HttpNode) -> None:
    """One of each thing that a client can name, with a name that a browser could run."""
    ask = node.ask
    made = ask.post("/v1/topics", {"name": "hostile", "settings": SETTINGS})
    assert made.status == 201, made.text
    deep = "[" * DEEP + "]" * DEEP
    records = [
        {"key": HOSTILE, "value": {"json": {HOSTILE: HOSTILE}}, "headers": {HOSTILE: HOSTILE}},
        {"value": deep},
        {"value": "x" * LINE_BYTES},
        {"value": {"base64": "/////w=="}, "key": {"base64": "gICA"}},
        {"value": "h", "headers": {f"h{number}": HOSTILE for number in range(HEADERS)}},
        {"value": HOSTILE, "delay_ms": 3_600_000},
    ]
    for record in records:
        answer = ask.post("/v1/topics/hostile/records", {"records": [record]})
        assert answer.status == 200, answer.text[:500]
    dead = {"ms-dlq-topic": "hostile", "ms-dlq-group": HOSTILE, "ms-dlq-error": HOSTILE}
    answer = ask.post(
        "/v1/topics/hostile.dlq/records", {"records": [{"value": HOSTILE, "headers": dead}]}
    )
    assert answer.status == 200, answer.text
    view = {
        "name": "hostile-view",
        "topic": "hostile",
        "filter": "key == '<img src=x onerror=alert(1)>'",
    }
    assert ask.post("/v1/views", view).status == 201
    field = {"name": "a", "type": "string", "doc": HOSTILE}
    schema = {"type": "record", "name": "R", "doc": HOSTILE, "fields": [field]}
    ask.post("/subjects/hostile-value/versions", {"schema": json.dumps(schema)})
    ask.post("/v1/roles", {"name": "hostile", "description": HOSTILE})
    rule = {"resource_type": "group", "resource_name": HOSTILE, "operation": "read"}
    ask.post("/v1/acls", {"acls": [{**rule, "principal": f"User:{MARKUP}"}]})
    ask("PUT", "/v1/quotas", {"client_id": HOSTILE, "limits": {"producer_byte_rate": 10**9}})
    address = {"bootstrap.servers": node.broker.bootstrap, "client.id": HOSTILE[:-1]}
    consumer = Consumer({**address, "group.id": MARKUP})
    try:
        consumer.commit(offsets=[TopicPartition("hostile", 0, 1)], asynchronous=False)
    finally:
        consumer.close()
    producer = Producer({**address, "transactional.id": MARKUP})
    producer.init_transactions(30)
    pipeline = {"name": HOSTILE, "state": "failed", "error": HOSTILE, "flows": []}
    ask.post("/v1/topics", {"name": "_pipelines"})
    ask.post(
        "/v1/topics/_pipelines/records",
        {"records": [{"key": HOSTILE, "value": {"json": pipeline}}]},
    )


class Watch:
    """What a page must never do."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        page.on("dialog", self._dialog)
        page.on("console", self._said)

    def _dialog(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _said(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            self.problems.append(message.text)

    def look(self, path: str) -> None:
        self.page.goto(path)
        expect(self.page.locator("main h1, main h2").first).to_be_visible(timeout=WAIT_MS)
        expect(self.page.locator("main .waiting")).to_have_count(0, timeout=WAIT_MS)
        for mark in ("img[src='x']", "main script", "main iframe"):
            if self.page.locator(mark).count():
                self.problems.append(f"{path}: {mark}")
        if "owned" in self.page.title().replace("document.title='owned'", ""):
            self.problems.append(f"{path}: a script ran")
        text = self.page.locator("body").inner_text()
        self.problems += [f"{path}: {mark!r}" for mark in "\u202e\u2066\u0007" if mark in text]


@pytest.mark.parametrize("path", [*PAGES, *OF_THINGS])
def test_hostile_data_is_inert_on(page: Page, node: HttpNode, path: str) -> None:
    watch = Watch(page)

    watch.look(path)

    assert watch.problems == []
    expect(page.locator("main [role=alert]")).to_have_count(0)


@pytest.mark.parametrize("offset", range(5))
def test_a_hostile_record_opens(page: Page, node: HttpNode, offset: int) -> None:
    watch = Watch(page)

    watch.look(f"/console/topics/hostile?at=0@{offset}")

    expect(page.locator("aside.detail h2")).to_have_text(f"hostile/0@{offset}", timeout=WAIT_MS)
    for form in ("raw", "hex", "tree"):
        page.locator("aside.detail").get_by_role("button", name=form, exact=True).click()
        expect(
            page.locator("aside.detail .rawtext, aside.detail [role=tree]").first
        ).to_be_visible()
    assert watch.problems == []


def test_names_of_things_lead_to_their_pages(page: Page, node: HttpNode) -> None:
    watch = Watch(page)
    for listing, name in (("groups", MARKUP), ("schemas", "hostile-value")):
        watch.look(f"/console/{listing}")
        page.get_by_role("link", name=name).first.click()
        expect(page.locator("main h1")).to_contain_text(name, timeout=WAIT_MS)
        watch.look(page.url)

    assert watch.problems == []


@pytest.fixture
def open_page(browser: Browser, node: HttpNode) -> Iterator[Page]:
    """A page into which axe can be put."""
    address = f"http://127.0.0.1:{node.ask.port}"
    with browser.new_context(base_url=address, bypass_csp=True) as context:
        context.set_default_timeout(SHOWN_MS)
        yield context.new_page()


def barriers(page: Page) -> list[tuple[str, str]]:
    violations = Axe().run(page, options=WCAG).response["violations"]
    return [(each["id"], each["nodes"][0]["html"][:300]) for each in violations]


def test_full_pages_have_no_barrier(open_page: Page) -> None:
    """Axe on pages with something to show: other controls than those of empty ones."""
    for path in OF_THINGS:
        Watch(open_page).look(path)
        assert (path, barriers(open_page)) == (path, [])


DIALOGS = (
    ("/console/topics", "p"),
    ("/console/topics/hostile", "p"),
    ("/console/topics/hostile", "x"),
    ("/console/access", "p"),
    ("/console/access?tab=roles", "p"),
    ("/console/access?tab=acls", "p"),
    ("/console/views", "p"),
    (f"/console/groups/{quote(MARKUP, safe='')}?plan=reset", ""),
    ("/console/", "?"),
    ("/console/", "Control+k"),
)


def test_dialogs_open_by_a_key_close_by_escape_and_have_no_barrier(open_page: Page) -> None:
    for path, key in DIALOGS:
        Watch(open_page).look(path)
        if key:
            open_page.keyboard.press(key)
        expect(open_page.get_by_role("dialog")).to_be_visible(timeout=WAIT_MS)
        assert (path, key, barriers(open_page)) == (path, key, [])
        open_page.keyboard.press("Escape")
        expect(open_page.get_by_role("dialog")).to_have_count(0)
