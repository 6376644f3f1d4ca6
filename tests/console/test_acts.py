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


def test_a_dead_letter_is_sent_back_and_the_others_are_purged(page: Page, node: HttpNode) -> None:
    make_topic(node, "sold")
    headers = {
        "ms-dlq-topic": "sold",
        "ms-dlq-partition": "0",
        "ms-dlq-offset": "0",
        "ms-dlq-group": "billing",
        "ms-dlq-attempts": "3",
        "ms-dlq-reason": "max_retries",
        "ms-dlq-error": HOSTILE,
    }
    letters = [{"value": str(number), "headers": headers} for number in range(3)]
    assert node.ask.post("/v1/topics/sold.dlq/records", {"records": letters}).status == 200

    page.goto("/console/dead-letters?topic=sold")
    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    page.get_by_role("button", name="Send this one back").click()
    expect(page.get_by_text("2 records").first).to_be_visible()
    assert len(node.ask.get("/v1/topics/sold/records").json["items"]) == 1

    page.get_by_role("button", name="Purge…").click()
    sure = page.get_by_role("dialog")
    sure.get_by_role("textbox").fill("2")
    sure.get_by_role("button", name="Delete 2 dead letters").click()
    expect(page.get_by_text("No dead letters wait")).to_be_visible()
    assert node.ask.get("/v1/dead-letters/sold/stats").json["waiting"] == 0


def test_a_schema_gets_a_version_if_the_broker_takes_it(page: Page, node: HttpNode) -> None:
    def order(*fields: str) -> str:
        listed = [{"name": name, "type": "string", "default": ""} for name in fields]
        return json.dumps({"type": "record", "name": "Order", "fields": listed})

    made = node.ask.post("/subjects/sold-value/versions", {"schema": order("id")})
    assert made.status == 200, made.text

    page.goto("/console/schemas/sold-value")
    page.get_by_role("button", name="New version…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Schema").fill('{"type": "recor')
    expect(dialog.get_by_role("button", name="Register the version")).to_be_disabled()
    dialog.get_by_role("textbox", name="Schema").fill(order("id", "note"))
    expect(dialog.get_by_text("It may be registered.")).to_be_visible()
    dialog.get_by_role("button", name="Register the version").click()
    expect(dialog).to_have_count(0)
    assert node.ask.get("/subjects/sold-value/versions").json == [1, 2]
