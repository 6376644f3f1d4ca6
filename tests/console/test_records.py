"""The records browser: time travel by the strip, exports, masked values."""

import base64
import json
import re
from collections.abc import Iterator

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from millstream.config import Http
from tests.console.conftest import SHOWN_MS, produce
from tests.console.test_console import make_topic
from tests.support.http import HttpNode, http_node


@pytest.fixture(scope="module")
def node() -> Iterator[HttpNode]:
    with http_node() as started:
        yield started


def write_hours(node: HttpNode, topic: str, hours: range) -> None:
    make_topic(node, topic)
    for hour in hours:  # A batch each: the times of one batch are one range.
        record = {"value": {"json": {"hour": hour}}, "timestamp": f"2026-11-17T{hour:02d}:00:00Z"}
        answer = node.ask.post(f"/v1/topics/{topic}/records", {"records": [record]})
        assert answer.status == 200


def test_the_strip_travels_in_time_by_keyboard(page: Page, node: HttpNode) -> None:
    write_hours(node, "travelled", range(12))
    page.goto("/console/topics/travelled")
    strip = page.get_by_role("slider", name="Records over time")
    expect(strip).to_have_attribute("aria-valuetext", "12 records kept")

    strip.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("where=time"))
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody")).to_contain_text("11")

    strip.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("Shift+PageDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("until="))
    expect(page.locator("tbody tr")).to_have_count(3)  # A quarter of eleven hours.
    page.get_by_role("button", name="Leave the range").click()
    expect(page.locator("tbody tr")).to_have_count(12)


def test_a_time_that_is_none_shows_the_brokers_sentence(page: Page, node: HttpNode) -> None:
    make_topic(node, "untimely")
    page.goto("/console/topics/untimely?where=time&time=yesterday")

    expect(page.get_by_role("alert")).to_contain_text("yesterday")


@pytest.mark.parametrize("form", ["NDJSON", "CSV"])
def test_what_the_filter_finds_is_exported(page: Page, node: HttpNode, form: str) -> None:
    make_topic(node, "exported")
    if not node.ask.get("/v1/topics/exported/records").json["items"]:
        produce(node, "exported", [{"n": number} for number in range(20)])
    page.goto("/console/topics/exported?filter=%24.n%20%3E%3D%2017")
    expect(page.locator("tbody tr")).to_have_count(3)

    page.get_by_role("button", name="Export…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=form, exact=True).click()
    expect(dialog).to_contain_text("$.n >= 17")
    with page.expect_download() as downloading:
        dialog.get_by_role("button", name=f"Export as {form}").click()
    expect(dialog.get_by_role("status")).to_contain_text("3 records")
    assert downloading.value.suggested_filename == f"exported.{form.lower()}"
    lines = downloading.value.path().read_text().splitlines()
    if form == "CSV":
        assert lines[0].startswith("partition,offset,timestamp")
        assert len(lines) == 4
    else:
        assert [json.loads(line)["value"]["json"]["n"] for line in lines] == [17, 18, 19]


def test_an_export_that_is_turned_off_says_so(browser: Browser) -> None:
    with http_node(Http(export=False)) as closed, browser.new_context() as context:
        context.set_default_timeout(SHOWN_MS)
        make_topic(closed, "kept")
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{closed.ask.port}/console/topics/kept")
        page.get_by_role("button", name="Export…").click()
        page.get_by_role("button", name="Export as NDJSON").click()

        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("turned off here")


def test_a_value_of_messagepack_is_read_by_choice(page: Page, node: HttpNode) -> None:
    make_topic(node, "packed")
    packed = base64.b64encode(msgspec.msgpack.encode({"id": 2**63, "item": "rye"})).decode()
    answer = node.ask.post(
        "/v1/topics/packed/records", {"records": [{"value": {"base64": packed}}]}
    )
    assert answer.status == 200
    page.goto("/console/topics/packed")
    expect(page.locator("tbody tr")).to_have_count(1)

    page.get_by_label("Decode").select_option("MessagePack")
    expect(page).to_have_url(re.compile("decode=msgpack"))
    expect(page.locator("tbody tr")).to_contain_text("9223372036854775808")
    page.locator("tbody tr").first.click()
    expect(page.get_by_role("tree")).to_contain_text("9223372036854775808")
