"""Delayed records and durable subscriptions by REST."""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from tests.support.http import HttpClient, HttpNode, http_node

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def flux_node() -> Iterator[HttpNode]:
    with http_node(listeners=("kafka", "flux", "http"), flux_port=0) as started:
        yield started


def produce_delayed(node: HttpNode, topic: str, delays: list[int]) -> None:
    port = node.broker.call(lambda broker: broker.addresses["kafka"].port)
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
    for delay in delays:
        producer.produce(topic, b"later", headers={"ms-delay-ms": str(delay)})
    assert producer.flush(10) == 0


def test_delayed_records_are_listed_shown_and_cancelled(node: HttpNode, ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "mail", "partitions": 1})
    produce_delayed(node, "mail", [HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS])

    first = ask.get("/v1/delayed?topic=mail&limit=2").json
    second = ask.get(f"/v1/delayed?topic=mail&limit=2&after={first['next']}").json
    record = first["items"][0]
    described = ask.get(f"/v1/delayed/{record['id']}").json
    cancelled = ask("DELETE", f"/v1/delayed/{record['id']}")

    assert [len(first["items"]), len(second["items"]), second["next"]] == [2, 1, None]
    assert (described["topic"], described["partition"], described["late_ms"]) == ("mail", 0, 0)
    assert described["due_at"].endswith("Z")
    assert cancelled.json["id"] == record["id"]
    assert len(ask.get("/v1/delayed?topic=mail").json["items"]) == 2
    assert ask("DELETE", f"/v1/delayed/{record['id']}").status == 404


def test_only_records_due_before_a_time_are_listed(node: HttpNode, ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "letters", "partitions": 1})
    produce_delayed(node, "letters", [HOUR_MS, 5 * HOUR_MS])
    due = [item["due_at_ms"] for item in ask.get("/v1/delayed?topic=letters").json["items"]]

    listed = ask.get(f"/v1/delayed?topic=letters&due_before_ms={max(due)}").json["items"]

    assert [item["due_at_ms"] for item in listed] == [min(due)]


def test_a_page_of_records_due_before_a_time_is_full(node: HttpNode, ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "parcels", "partitions": 1})
    produce_delayed(node, "parcels", [5 * HOUR_MS, HOUR_MS, 5 * HOUR_MS, HOUR_MS, HOUR_MS])
    due = [item["due_at_ms"] for item in ask.get("/v1/delayed?topic=parcels").json["items"]]

    path = f"/v1/delayed?topic=parcels&limit=2&due_before_ms={max(due) - HOUR_MS}"
    first = ask.get(path).json
    second = ask.get(f"{path}&after={first['next']}").json

    assert [len(first["items"]), len(second["items"]), second["next"]] == [2, 1, None]


def test_due_times_are_counted(node: HttpNode, ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "calendar", "partitions": 1})
    produce_delayed(node, "calendar", [2 * HOUR_MS, 3 * HOUR_MS, 48 * HOUR_MS])

    counted = ask.get("/v1/delayed/histogram?topic=calendar").json

    assert counted["count"] == 3
    assert {each["ahead_ms"]: each["count"] for each in counted["items"] if each["count"]} == {
        6 * HOUR_MS: 2,
        7 * 24 * HOUR_MS: 1,
    }
    assert ask.get("/v1/delayed/histogram?topic=nowhere").status == 404


def test_a_durable_subscription_is_listed_described_and_deleted(
    flux_node: HttpNode,
) -> None:
    ask = flux_node.ask
    port = flux_node.broker.call(lambda broker: broker.addresses["flux"].port)
    ask.post("/v1/topics", {"name": "ovens", "partitions": 1})
    with closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as flux:
        flux.sendall(b"SUB ovens DURABLE:bakers 1\r\nPING\r\n")
        answer = b""
        while b"PONG" not in answer:
            answer += flux.recv(4096)
        listed = ask.get("/v1/subscriptions").json["items"]
        described = ask.get("/v1/subscriptions/flux:durable:ovens:bakers").json

    assert [(item["name"], item["pattern"]) for item in listed] == [
        ("flux:durable:ovens:bakers", "ovens")
    ]
    assert (listed[0]["member_count"], listed[0]["in_flight"]) == (1, 0)
    assert len(described["members"]) == 1
    assert ask("DELETE", "/v1/subscriptions/flux:durable:ovens:bakers").status == 204
    assert ask.get("/v1/subscriptions/flux:durable:ovens:bakers").status == 404
