"""The console in a real browser: what it shows is what the API says, and its acts happen."""

import re
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from tests.console.conftest import SHOWN_MS, produce
from tests.support.http import HttpNode

PAGES = (
    "/console/",
    "/console/topics",
    "/console/groups",
    "/console/dead-letters",
    "/console/delayed",
    "/console/views",
    "/console/schemas",
    "/console/pipelines",
    "/console/subscriptions",
    "/console/transactions",
    "/console/connections",
    "/console/cluster",
    "/console/access",
    "/console/audit",
    "/console/quotas",
    "/console/config",
    "/console/api",
    "/console/jobs",
    "/console/about",
    "/console/login",
)
WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}


def make_topic(node: HttpNode, name: str, partitions: int = 1) -> None:
    answer = node.ask.post("/v1/topics", {"name": name, "partitions": partitions})
    assert answer.status in {201, 409}


def test_the_root_leads_a_browser_to_the_console(page: Page) -> None:
    page.goto("/")

    expect(page).to_have_url(re.compile("/console/"))


def test_an_empty_broker_leads_to_the_first_record(page: Page, node: HttpNode) -> None:
    page.goto("/console/?fresh=1")

    expect(page.get_by_role("heading", name="The broker runs, and is empty")).to_be_visible()
    expect(page.get_by_text("millstream topic create orders --partitions 3")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_has_a_barrier(
    browser: Browser, node: HttpNode, theme: Literal["light", "dark"]
) -> None:
    make_topic(node, "axed")
    produce(node, "axed", [{"n": 1}])
    context = browser.new_context(
        base_url=f"http://127.0.0.1:{node.ask.port}", color_scheme=theme, bypass_csp=True
    )
    context.set_default_timeout(SHOWN_MS)
    page = context.new_page()
    barriers = []
    for path in (*PAGES, "/console/topics/axed", "/console/topics/axed/settings"):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        result = Axe().run(page, options=WCAG)
        barriers += [(path, v["id"], v["nodes"][0]["html"]) for v in result.response["violations"]]
    context.close()

    assert barriers == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_shows_a_heading_and_its_command(page: Page, path: str) -> None:
    page.goto(path)

    expect(page.locator("main h1, main h2").first).to_be_visible()
    expect(page.locator("[data-command]")).not_to_be_empty()
    expect(page.locator("main [role=alert]")).to_have_count(0)


def test_topics_are_listed_as_the_api_lists_them(page: Page, node: HttpNode) -> None:
    for name in ("bread", "rolls", "cakes"):
        make_topic(node, name, 2)
    page.goto("/console/topics?sort=name&name=r")

    names = page.locator("tbody a.name")
    expect(names.first).to_be_visible()

    listed = [item["name"] for item in node.ask.get("/v1/topics?name=r").json["items"]]
    assert names.all_inner_texts() == listed


def test_a_long_list_is_shown_from_its_first_page_on(page: Page, node: HttpNode) -> None:
    for number in range(5):
        make_topic(node, f"paged-{number}")
    held: list[Route] = []
    is_held = True

    def shorten(route: Route) -> None:
        if "after=" in route.request.url and is_held:
            held.append(route)
        else:
            route.continue_(url=route.request.url.replace("limit=1000", "limit=2"))

    page.route("**/v1/topics?*", shorten)
    page.goto("/console/topics?sort=name")
    expect(page.locator("tbody a.name")).to_have_count(2)
    is_held = False
    for route in held:
        route.continue_(url=route.request.url.replace("limit=1000", "limit=2"))

    for number in range(5):
        expect(page.get_by_role("link", name=f"paged-{number}", exact=True)).to_be_visible()
    page.unroute_all(behavior="wait")


def test_a_topic_is_created_by_keyboard_alone(page: Page, node: HttpNode) -> None:
    page.goto("/console/topics")
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    page.keyboard.press("p")
    page.get_by_label("Name", exact=True).focus()
    page.keyboard.type("by-keyboard")
    page.get_by_role("button", name="Create by-keyboard").focus()
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name="by-keyboard")).to_be_visible()
    assert node.ask.get("/v1/topics/by-keyboard").json["partitions"] == 3


def test_a_record_is_shown_with_all_its_digits(page: Page, node: HttpNode) -> None:
    make_topic(node, "digits")
    node.ask(
        "POST",
        "/v1/topics/digits/records",
        raw=b'{"records": [{"key": {"text": "k"}, "value": {"json": {"id": 9007199254740993}}}]}',
        headers={"Content-Type": "application/json"},
    )
    page.goto("/console/topics/digits")
    page.locator("tbody tr").first.click()

    expect(page).to_have_url(re.compile("at=0%400|at=0@0"))
    expect(page.get_by_role("tree")).to_contain_text("9007199254740993")


def test_a_record_is_produced_and_seen(page: Page, node: HttpNode) -> None:
    make_topic(node, "written")
    page.goto("/console/topics/written")
    expect(page.get_by_role("heading", name="written")).to_be_visible()
    page.keyboard.press("p")
    page.get_by_label("Value", exact=True).fill('{"kg": 12345678901234567890}')
    page.get_by_role("button", name="Produce 1 record").click()

    expect(page.get_by_text("Written to written/0@0.")).to_be_visible()
    record = node.ask.get("/v1/topics/written/records/0/0")
    assert b"12345678901234567890" in record.text


def test_hostile_data_is_text(page: Page, node: HttpNode) -> None:
    make_topic(node, "hostile")
    attack = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    produce(node, "hostile", [{"a": attack, attack: "\u202eevil\u0000"}], key={"text": attack})
    page.goto("/console/topics/hostile")
    page.locator("tbody tr").first.click()

    expect(page.get_by_role("tree")).to_contain_text("onerror")
    expect(page.get_by_role("tree")).to_contain_text("\\u202e")
    assert "owned" not in page.title()


def test_a_filter_is_run_by_the_broker(page: Page, node: HttpNode) -> None:
    make_topic(node, "filtered")
    produce(node, "filtered", [{"n": n} for n in range(20)])
    page.goto("/console/topics/filtered")
    box = page.get_by_label("Filter, run by the broker")
    box.fill("$.n >= 18")
    box.press("Enter")

    expect(page.get_by_text("2 match")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("[data-command]")).to_contain_text("--filter")


def test_a_live_tail_shows_what_is_written(page: Page, node: HttpNode) -> None:
    make_topic(node, "tailed")
    page.goto("/console/topics/tailed?live=1")
    expect(page.locator(".status")).to_contain_text("Live")
    page.wait_for_timeout(300)
    produce(node, "tailed", [{"now": True}])

    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_setting_is_changed(page: Page, node: HttpNode) -> None:
    make_topic(node, "tuned")
    page.goto("/console/topics/tuned/settings")
    name = page.locator("code", has_text=re.compile("^retention_ms$"))
    row = page.locator("tr", has=name)
    row.get_by_role("button", name="Change…").click()
    page.get_by_label("New value").fill("3600000")
    page.get_by_role("button", name="Change the setting").click()

    expect(row).to_contain_text("3600000")
    assert node.ask.get("/v1/topics/tuned").json["settings"]["retention_ms"] == "3600000"


def test_a_topic_is_deleted_only_when_its_name_is_typed(page: Page, node: HttpNode) -> None:
    make_topic(node, "doomed")
    page.goto("/console/topics/doomed")
    page.get_by_label("More acts").click()
    page.get_by_role("menuitem", name="Delete the topic…").click()
    button = page.get_by_role("button", name="Delete doomed")
    expect(button).to_have_attribute("aria-disabled", "true")
    page.get_by_label("Type doomed to confirm").fill("doomed")
    button.click()

    expect(page).to_have_url(re.compile("/console/topics$"))
    assert node.ask.get("/v1/topics/doomed").status == 404


def test_the_palette_goes_to_a_record(page: Page, node: HttpNode) -> None:
    make_topic(node, "jumped")
    produce(node, "jumped", [{"n": 0}, {"n": 1}])
    page.goto("/console/")
    expect(page.locator("main h1")).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("jumped/0@1")
    page.keyboard.press("Enter")

    expect(page.locator("aside.detail h2")).to_have_text("jumped/0@1")


def test_a_wrong_request_shows_the_brokers_sentence(page: Page, node: HttpNode) -> None:
    page.goto("/console/topics/no-such-topic")

    expect(page.get_by_role("alert")).to_contain_text("no-such-topic")
    expect(page.get_by_role("alert")).to_contain_text("unknown_topic")


def test_files_are_kept_for_ever_and_the_page_is_asked_for(node: HttpNode) -> None:
    page = node.ask.get("/console/topics/orders")
    number = re.search(rb"/console/([0-9a-f]{16})/app.js", page.text)
    assert number is not None
    file = node.ask.get(f"/console/{number[1].decode()}/app.js", **{"Accept-Encoding": "gzip"})
    old = node.ask.get("/console/0123456789abcdef/app.js")

    assert page.headers["cache-control"] == "no-cache"
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "immutable" in file.headers["cache-control"]
    assert file.headers["content-encoding"] == "gzip"
    assert old.status == 404
