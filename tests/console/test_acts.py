"""Acts in the console, and what the broker says afterwards: groups, schemas, users, the trail."""

import json
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import Dialog, Page, expect

from millstream.security.audit import Audit
from tests.console.conftest import produce
from tests.console.test_console import make_topic
from tests.support.http import HttpNode, http_node

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def node() -> Iterator[HttpNode]:
    with http_node(audit=Audit(enabled="on")) as started:
        yield started


def test_the_trail_is_shown_narrowed_and_exported(page: Page, node: HttpNode) -> None:
    page.goto("/console/audit")

    table = page.get_by_role("table", name="Audit")
    expect(table.get_by_role("row").filter(has_text="system.start")).to_be_visible()
    table.get_by_role("button", name="system.start").click()
    expect(page).to_have_url(re.compile("event=system.start"))
    expect(page.get_by_text("millstream audit query --type system.start")).to_be_visible()
    with page.expect_download() as downloading:
        page.get_by_role("link", name="NDJSON").click()
    lines = downloading.value.path().read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["system.start"]
    page.get_by_role("button", name="Failure").click()
    expect(page.get_by_text("No event fits")).to_be_visible()


def committed(node: HttpNode, group: str) -> list[int]:
    offsets = node.ask.get(f"/v1/groups/{group}/offsets").json["items"]
    return [each["offset"] for each in offsets]


def commit(node: HttpNode, group: str, topic: str, offset: int) -> None:
    address = node.broker.call(lambda broker: broker.addresses["kafka"])
    consumer = Consumer({"bootstrap.servers": f"{address.host}:{address.port}", "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def test_a_group_is_reset_by_its_plan_and_deleted_by_its_name(page: Page, node: HttpNode) -> None:
    make_topic(node, "moved")
    produce(node, "moved", [{"n": number} for number in range(5)])
    commit(node, "movers", "moved", 4)

    page.goto("/console/groups/movers")
    page.get_by_role("button", name="Reset…").click()
    plan = page.get_by_role("dialog")
    expect(plan.get_by_text("4 read again")).to_be_visible()
    assert committed(node, "movers") == [4]  # A plan changes nothing.
    plan.get_by_role("button", name="Reset 1 partition").click()
    expect(plan).to_have_count(0)
    assert committed(node, "movers") == [0]

    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Delete").click()
    sure = page.get_by_role("dialog")
    act = sure.get_by_role("button", name="Delete movers")
    expect(act).to_be_disabled()
    sure.get_by_role("textbox").fill("movers")
    act.click()
    expect(page).to_have_url(re.compile("/console/groups$"))
    assert "movers" not in node.ask.get("/v1/groups").text.decode()


def test_a_name_of_markup_is_text_on_every_list(page: Page, node: HttpNode) -> None:
    make_topic(node, "inert")
    produce(node, "inert", [{"a": HOSTILE}], key={"text": HOSTILE})
    alarms: list[str] = []

    def note(dialog: Dialog) -> None:
        alarms.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)

    for path in ("/console/topics/inert", f"/console/audit?principal={HOSTILE}"):
        page.goto(path)
        expect(page.get_by_text("onerror").first).to_be_visible()
        assert page.locator("img[src='x']").count() == 0
    assert alarms == []
