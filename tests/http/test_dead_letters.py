"""Dead letters, jobs, filters and pipelines over REST."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.http import HttpClient, HttpNode, http_node

HEADERS = {
    "ms-dlq-topic": "orders",
    "ms-dlq-partition": "0",
    "ms-dlq-offset": "0",
    "ms-dlq-group": "billing",
    "ms-dlq-attempts": "3",
    "ms-dlq-reason": "max_retries",
    "ms-dlq-error": "no such customer",
}


@pytest.fixture
def node() -> Iterator[HttpNode]:
    with http_node() as started:
        started.ask.post("/v1/topics", {"name": "orders"})
        letters = [{"value": str(at), "headers": HEADERS} for at in range(3)]
        made = started.ask.post("/v1/topics/orders.dlq/records", {"records": letters})
        assert made.status == 200, made.text
        yield started


def ended(ask: HttpClient, job: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while job["state"] == "running" and time.monotonic() < deadline:
        job = ask.get(f"/v1/jobs/{job['id']}").json
    return job


def test_dead_letters_are_listed_and_counted(ask: HttpClient) -> None:
    topics = ask.get("/v1/dead-letters").json["items"]
    letters = ask.get("/v1/dead-letters/orders?limit=2").json
    second = ask.get(f"/v1/dead-letters/orders?limit=2&after={letters['next']}").json
    counted = ask.get("/v1/dead-letters/orders/stats").json

    assert topics == [{"topic": "orders", "dead_letter_topic": "orders.dlq", "kept": 3}]
    assert [each["record"]["value"]["json"] for each in letters["items"]] == [0, 1]
    assert [each["record"]["value"]["json"] for each in second["items"]] == [2]
    assert letters["items"][0]["reason"] == "max_retries"
    assert counted["by_group"] == {"billing": 3}
    assert ask.get("/v1/dead-letters/orders?reason=other").json["items"] == []


def test_a_letter_is_replayed_once(ask: HttpClient) -> None:
    sent = ask.post("/v1/dead-letters/orders/0/1:replay", {})

    assert sent.json == {"topic": "orders", "partition": 0, "offset": 0}
    assert ask.post("/v1/dead-letters/orders/0/1:replay", {}).status == 404


def test_a_redrive_is_a_job(ask: HttpClient) -> None:
    planned = ask.post("/v1/dead-letters/orders:redrive", {"dry_run": True})
    first = ended(ask, planned.json)
    begun = ask.post("/v1/dead-letters/orders:redrive", {"group": "billing"})
    second = ended(ask, begun.json)

    assert planned.status == 202
    assert planned.headers["location"] == f"/v1/jobs/{planned.json['id']}"
    assert first["result"] == {"sent": 3, "skipped": 0, "dry_run": True}
    assert second["result"]["sent"] == 3
    assert ask.get("/v1/topics/orders").json["records"] == 3
    assert len(ask.get("/v1/jobs").json["items"]) == 2
    assert ask.get("/v1/jobs/99").status == 404
    assert ask.post("/v1/dead-letters/orders:redrive", {"filter": "("}).status == 422


def test_a_job_is_stopped(ask: HttpClient) -> None:
    slow = ask.post("/v1/dead-letters/orders:redrive", {"rate": 0.01}).json

    stopped = ask("DELETE", f"/v1/jobs/{slow['id']}").json

    assert stopped["state"] == "stopped"
    assert ask.get("/v1/dead-letters/orders/stats").json["waiting"] >= 2


def test_a_purge_needs_the_count(ask: HttpClient) -> None:
    refused = ask("DELETE", "/v1/dead-letters/orders?expected_count=2")
    done = ask("DELETE", "/v1/dead-letters/orders?expected_count=3")

    assert (refused.status, refused.json["error"]) == (409, "count_differs")
    assert done.json == {"count": 3}


def test_a_filter_is_checked_with_the_place_of_its_mistake(ask: HttpClient) -> None:
    wrong = ask.post("/v1/filters:check", {"filter": 'key == "a" and'}).json
    right = ask.post("/v1/filters:check", {"filter": "value == '1'", "topic": "orders.dlq"}).json

    assert (wrong["is_valid"], wrong["place"]) == (False, 14)
    assert (right["looked_at"], right["passed"]) == (3, 1)


def test_pipelines_are_what_they_report(ask: HttpClient) -> None:
    now_ms = int(time.time() * 1000)
    reports = [
        {"name": "live", "state": "running", "updated_ms": now_ms, "flows": [{"name": "a"}]},
        {"name": "quiet", "state": "running", "updated_ms": now_ms - 60_000},
        {"name": "live", "state": "running", "updated_ms": now_ms, "flows": [{"name": "b"}]},
    ]
    assert ask.get("/v1/pipelines").json["items"] == []
    records = [{"key": each["name"], "value": {"json": each}} for each in reports]
    ask.post("/v1/topics/_pipelines/records", {"records": [*records, {"key": "x", "value": "?"}]})

    live, quiet = ask.get("/v1/pipelines").json["items"]

    assert (live["state"], [flow["name"] for flow in live["flows"]]) == ("running", ["b"])
    assert quiet["state"] == "lost"
    assert ask.get("/v1/pipelines/none").status == 404


def test_pages_over_several_partitions_show_every_letter_once(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "shop.dlq", "partitions": 3})
    spread = [2, 0, 0, 1, 2, 2, 0, 1]
    letters = [
        {
            "value": str(at),
            "partition": partition,
            "headers": {**HEADERS, "ms-dlq-topic": "shop", "ms-dlq-group": f"g{at % 2}"},
        }
        for at, partition in enumerate(spread)
    ]
    assert ask.post("/v1/topics/shop.dlq/records", {"records": letters}).status == 200

    def shown(query: str) -> list[int]:
        collected, after = [], ""
        while True:
            answer = ask.get(f"/v1/dead-letters/shop?{query}&after={after}").json
            collected += [each["record"]["value"]["json"] for each in answer["items"]]
            if answer["next"] is None:
                return collected
            after = answer["next"]

    for limit in (1, 2, 3, 8):
        assert sorted(shown(f"limit={limit}")) == list(range(8))
    # A page of a search is as full as one of all.
    assert len(ask.get("/v1/dead-letters/shop?limit=4&group=g1").json["items"]) == 4
    assert sorted(shown("limit=1&group=g1")) == [1, 3, 5, 7]
    assert shown("limit=10&origin=orders") == []
