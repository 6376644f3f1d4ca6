"""Groups over REST: both kinds, offsets, lag, plans that go stale, resets."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from millstream.embedding.broker import Broker
from tests.support.http import HttpClient, HttpNode, http_node


@pytest.fixture(scope="module")
def node() -> Iterator[HttpNode]:
    with http_node() as started:
        started.ask.post("/v1/topics", {"name": "orders", "partitions": 2})
        records = [
            {"value": str(at), "partition": at % 2, "timestamp_ms": 1_700_000_000_000 + at}
            for at in range(20)
        ]
        started.ask.post("/v1/topics/orders/records", {"records": records})
        yield started


def consumer(node: HttpNode, group: str, protocol: str = "classic") -> Consumer:
    member = Consumer(
        {
            "bootstrap.servers": node.broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    member.subscribe(["orders"])
    return member


def read(member: Consumer, count: int) -> None:
    read_count = 0
    while read_count < count:
        read_count += len(member.consume(count - read_count, timeout=1))
    member.commit(asynchronous=False)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_shown_with_its_members(node: HttpNode, protocol: str) -> None:
    group = f"readers-{protocol}"
    member = consumer(node, group, protocol)
    read(member, 20)

    detail = node.ask.get(f"/v1/groups/{group}").json
    listed = node.ask.get(f"/v1/groups?name={group}").json["items"]
    refused = node.ask("DELETE", f"/v1/groups/{group}")
    member.close()

    assert (detail["kind"], detail["state"], detail["members"]) == (protocol, "stable", 1)
    assert len(detail["member_list"][0]["partitions"]) == 2
    assert [each["offset"] for each in detail["offsets"]] == [10, 10]
    assert detail["lag"] == 0
    assert [each["name"] for each in listed] == [group]
    assert (refused.status, refused.json["error"]) == (409, "group_not_empty")
    assert node.ask("DELETE", f"/v1/groups/{group}").status == 204
    assert node.ask.get(f"/v1/groups/{group}").status == 404


def moves(plan: dict[str, Any]) -> list[tuple[int | None, int, int, int]]:
    return [(each["from"], each["to"], each["repeated"], each["skipped"]) for each in plan["items"]]


def committed(node: HttpNode, group: str) -> None:
    member = consumer(node, group)
    read(member, 20)
    member.close()


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ({"earliest": True}, [(10, 0, 10, 0)] * 2),
        ({"latest": True}, [(10, 10, 0, 0)] * 2),
        ({"offset": 3}, [(10, 3, 7, 0)] * 2),
        ({"shift": -2}, [(10, 8, 2, 0)] * 2),
        ({"shift": 99}, [(10, 10, 0, 0)] * 2),
        ({"time": "2023-11-14T22:13:20.010Z"}, [(10, 5, 5, 0)] * 2),
        ({"age": "1s"}, [(10, 10, 0, 0)] * 2),
    ],
)
def test_a_plan_says_what_would_be_repeated(
    node: HttpNode, to: dict[str, Any], expected: list[tuple[int, int, int, int]]
) -> None:
    if node.ask.get("/v1/groups/planned").status == 404:
        committed(node, "planned")

    plan = node.ask.post("/v1/groups/planned:plan", {"to": to}).json

    assert moves(plan) == expected


def test_a_reset_carries_out_its_plan_once_nothing_moved(node: HttpNode) -> None:
    committed(node, "reset")
    ask = node.ask
    plan = ask.post("/v1/groups/reset:plan", {"to": {"earliest": True}}).json

    done = ask.post("/v1/groups/reset:reset", {"token": plan["token"]})
    stale = ask.post("/v1/groups/reset:reset", {"token": plan["token"]})

    assert done.json == plan
    assert (stale.status, stale.json["error"]) == (409, "plan_stale")
    offsets = ask.get("/v1/groups/reset/offsets").json["items"]
    assert [each["offset"] for each in offsets] == [0, 0]
    lag = ask.get("/v1/groups/reset/lag").json
    assert lag["records"] == 20
    assert lag["seconds"] > 1_000


def test_lag_has_a_history(node: HttpNode) -> None:
    committed(node, "remembered")
    for _ in range(2):
        node.broker.call(note_lags)

    history = node.ask.get("/v1/groups/remembered/lag").json["history"]

    assert [point["records"] for point in history[-2:]] == [0, 0]
    assert history[-1]["at_ms"] >= history[-2]["at_ms"] > 0
    assert node.ask.get("/v1/groups/nowhere/lag").json.get("history", []) == []


async def note_lags(broker: Broker) -> None:
    assert broker._service is not None
    vitals = broker._service.vitals
    assert vitals is not None
    await vitals.note_lags()


def test_a_group_with_members_is_not_reset(node: HttpNode) -> None:
    member = consumer(node, "busy")
    read(member, 20)
    plan = node.ask.post("/v1/groups/busy:plan", {"to": {"earliest": True}}).json

    refused = node.ask.post("/v1/groups/busy:reset", {"token": plan["token"]})
    member.close()

    assert (refused.status, refused.json["error"]) == (409, "group_not_empty")


def test_offsets_of_a_topic_can_be_forgotten(node: HttpNode) -> None:
    committed(node, "forgetful")

    forgotten = node.ask("DELETE", "/v1/groups/forgetful/offsets?topic=orders&partition=0")

    assert [each["partition"] for each in forgotten.json["items"]] == [0]
    left = node.ask.get("/v1/groups/forgetful/offsets").json["items"]
    assert [each["partition"] for each in left] == [1]


def test_a_name_may_look_like_a_verb(ask: HttpClient) -> None:
    body = {"to": {"earliest": True}, "topics": ["orders"]}
    plan = ask.post("/v1/groups/a%2Fb%3Aplan:plan", body).json

    assert plan["group"] == "a/b:plan"
    assert ask.post("/v1/groups/a%2Fb%3Aplan:reset", {"token": plan["token"]}).status == 200
    assert ask.get("/v1/groups/a%2Fb%3Aplan").json["name"] == "a/b:plan"


@pytest.mark.parametrize(
    "body",
    [
        {"to": {}},
        {"to": {"earliest": True, "latest": True}, "topics": ["orders"]},
        {"to": {"age": "soon"}, "topics": ["orders"]},
    ],
)
def test_a_wrong_plan_is_refused(ask: HttpClient, body: dict[str, Any]) -> None:
    assert ask.post("/v1/groups/wrong:plan", body).status in {400, 422}
