"""Confluent's REST proxy, version 3 in part: its shapes, and records one after the other."""

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.http import HttpClient, http_node


@pytest.fixture(scope="module")
def ask() -> Iterator[HttpClient]:
    with http_node() as node:
        yield node.ask


@pytest.fixture(scope="module")
def base(ask: HttpClient) -> str:
    [cluster] = ask.get("/v3/clusters").json["data"]
    return f"/v3/clusters/{cluster['cluster_id']}"


def test_topics_have_settings_and_partitions(ask: HttpClient, base: str) -> None:
    configs = [{"name": "retention.ms", "value": "1000"}]
    new = {"topic_name": "orders", "partitions_count": 2, "configs": configs}
    made = ask.post(f"{base}/topics", new)

    assert (made.status, made.json["kind"], made.json["partitions_count"]) == (201, "KafkaTopic", 2)
    assert ask.get(f"/kafka{base}/topics/orders").json == made.json
    assert made.json in ask.get(f"{base}/topics").json["data"]
    assert ask.get(base).json["topics"]["related"] == f"{base}/topics"

    def setting(name: str) -> dict[str, Any]:
        listed = ask.get(f"{base}/topics/orders/configs").json["data"]
        [chosen] = [each for each in listed if each["name"] == name]
        return dict(chosen)

    assert setting("retention.ms")["value"] == "1000"
    assert setting("retention.ms")["source"] == "DYNAMIC_TOPIC_CONFIG"
    changes = {"data": [{"name": "retention.ms", "operation": "DELETE"}]}
    assert ask.post(f"{base}/topics/orders/configs:alter", changes).status == 204
    assert setting("retention.ms")["is_default"]
    partitions = ask.get(f"{base}/topics/orders/partitions").json["data"]
    assert [each["partition_id"] for each in partitions] == [0, 1]
    assert ask("DELETE", f"{base}/topics/orders").status == 204
    gone = ask.get(f"{base}/topics/orders")
    assert (gone.status, gone.json["error_code"]) == (404, 404)
    assert ask.get("/v3/clusters/other/topics").status == 404


def test_records_are_answered_one_by_one(ask: HttpClient, base: str) -> None:
    ask.post(f"{base}/topics", {"topic_name": "sent"})
    records = [
        {"key": {"type": "STRING", "data": "k"}, "value": {"type": "JSON", "data": {"a": 1}}},
        {"value": {"type": "BINARY", "data": b64encode(b"\x00\x01").decode()}},
        {"headers": [{"name": "h", "value": b64encode(b"v").decode()}], "timestamp": 1000},
    ]
    body = b"".join(json.dumps(each).encode() for each in records)
    headers = {"Content-Type": "application/json"}

    answer = ask("POST", f"{base}/topics/sent/records", raw=body + b"{", headers=headers)
    single = ask.post(f"{base}/topics/sent/records", {"value": {"type": "STRING", "data": "x"}})
    wrong = ask.post(f"{base}/topics/sent/records", {"value": {"type": "BINARY", "data": "?"}})

    answers = [json.loads(line) for line in answer.text.splitlines()]
    assert [each["error_code"] for each in answers] == [200, 200, 200, 400]
    assert [each.get("offset") for each in answers[:3]] == [0, 1, 2]
    assert answers[0]["value"] == {"type": "JSON", "size": 8}
    assert (single.status, single.json["offset"]) == (200, 3)
    assert (wrong.status, wrong.json["error_code"]) == (400, 400)
    shown = ask.get("/v1/topics/sent/records").json["items"]
    by_offset = {each["offset"]: each for each in shown}
    assert by_offset[0]["value"]["json"] == {"a": 1}
    assert by_offset[2]["timestamp_ms"] == 1000
    assert by_offset[2]["headers"][0]["value"]["text"] == "v"


def test_groups_have_lags(ask: HttpClient, base: str) -> None:
    values = [{"value": str(at)} for at in range(5)]
    ask.post("/v1/topics/lagging/records", {"records": values})
    plan = ask.post("/v1/groups/slow:plan", {"to": {"offset": 2}, "topics": ["lagging"]}).json
    assert ask.post("/v1/groups/slow:reset", {"token": plan["token"]}).status == 200

    group = ask.get(f"{base}/consumer-groups/slow").json
    assert (group["kind"], group["state"]) == ("KafkaConsumerGroup", "EMPTY")
    assert group in ask.get(f"{base}/consumer-groups").json["data"]
    summary = ask.get(f"{base}/consumer-groups/slow/lag-summary").json
    assert (summary["max_lag_topic_name"], summary["total_lag"]) == ("lagging", 3)
    [lag] = ask.get(f"{base}/consumer-groups/slow/lags").json["data"]
    assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (2, 5, 3)
    assert ask.get(f"{base}/consumer-groups/none").status == 404
