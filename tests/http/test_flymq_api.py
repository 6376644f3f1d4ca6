"""FlyMQ's REST, `/api/v1`: its shapes and codes, with true values."""

import csv
import io
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.http import HttpClient, http_node, secured_http_node

LETTER = {"ms-dlq-topic": "orders", "ms-dlq-partition": "0", "ms-dlq-offset": "0"}


@pytest.fixture(scope="module")
def ask() -> Iterator[HttpClient]:
    with http_node() as node:
        yield node.ask


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpClient]:
    with secured_http_node(tmp_path_factory.mktemp("secrets")) as node:
        yield node.ask


def keys(value: dict[str, Any]) -> set[str]:
    return set(value)


def test_topics_are_made_listed_and_deleted(ask: HttpClient) -> None:
    options = {"partitions": 2, "retention_ms": 1000}
    made = ask.post("/api/v1/topics", {"name": "fly", "options": options, "more": 1})
    again = ask.post("/api/v1/topics", {"name": "fly"})
    ask.post("/v1/topics/fly/records", {"records": [{"value": "a"}, {"value": "b"}]})

    assert (made.status, made.text) == (201, b"")
    assert again.status == 409
    assert keys(again.json) == {"error"}
    topic = ask.get("/api/v1/topics/fly").json
    assert topic in ask.get("/api/v1/topics").json
    assert (topic["partitions"], topic["replica_factor"], topic["message_count"]) == (2, 1, 2)
    assert (topic["retention_ms"], topic["retention_bytes"]) == (1000, -1)
    assert ask("DELETE", "/api/v1/topics/fly").status == 204
    assert ask.get("/api/v1/topics/fly").status == 404


def test_groups_are_shown_by_topic(ask: HttpClient) -> None:
    ask.post("/api/v1/topics", {"name": "read"})
    ask.post("/v1/topics/read/records", {"records": [{"value": "a"}, {"value": "b"}]})
    plan = ask.post("/v1/groups/readers:plan", {"to": {"offset": 1}, "topics": ["read"]}).json
    assert ask.post("/v1/groups/readers:reset", {"token": plan["token"]}).status == 200

    expected = {
        "name": "readers",
        "topic": "read",
        "members": 0,
        "state": "empty",
        "lag": 1,
        "partitions": [{"partition": 0, "offset": 1, "lag": 1}],
    }
    assert ask.get("/api/v1/consumer-groups").json == [expected]
    assert ask.get("/api/v1/consumer-groups/readers").json == expected
    assert ask.get("/api/v1/consumer-groups/read:readers").json == expected
    assert ask.get("/api/v1/consumer-groups/other:readers").status == 404
    assert ask("DELETE", "/api/v1/consumer-groups/read:readers").status == 204
    assert ask.get("/api/v1/consumer-groups/readers").status == 404


def test_schemas_are_subjects(ask: HttpClient) -> None:
    made = ask.post("/api/v1/schemas", {"name": "order", "schema": '{"type":"object"}'})

    assert made.status == 201
    view = {"name": "order", "version": 1, "type": "json", "schema": '{"type":"object"}'}
    assert ask.get("/api/v1/schemas").json == [view]
    assert ask.get("/api/v1/schemas/order").json == view
    assert ask.post("/api/v1/schemas", {"name": "x", "schema": "{}", "type": "xml"}).status == 422
    assert ask("DELETE", "/api/v1/schemas/order").status == 204
    assert ask.get("/api/v1/schemas/order").status == 404


def test_dead_letters_are_shown_replayed_and_purged(ask: HttpClient) -> None:
    ask.post("/api/v1/topics", {"name": "orders"})
    letters = [{"value": value, "headers": LETTER} for value in ("a", "b")]
    ask.post("/v1/topics/orders.dlq/records", {"records": letters})

    listed = ask.get("/api/v1/dlq/orders?max_messages=1").json
    assert [(each["id"], each["topic"], each["data"]) for each in listed] == [
        ("0-0", "orders", "YQ==")
    ]
    assert ask.post("/api/v1/dlq/orders/replay/0-0").status == 200
    assert ask.post("/api/v1/dlq/orders/replay/nonsense").status == 404
    assert [each["id"] for each in ask.get("/api/v1/dlq/orders").json] == ["0-1"]
    assert ask("DELETE", "/api/v1/dlq/orders").status == 204
    assert ask.get("/api/v1/dlq/orders").json == []


def test_the_cluster_is_told_in_every_shape(ask: HttpClient) -> None:
    ask.post("/api/v1/topics", {"name": "placed", "options": {"partitions": 2}})

    assert ask.get("/api/v1/health").json == {"status": "healthy"}
    cluster = ask.get("/api/v1/cluster").json
    assert (cluster["node_count"], cluster["nodes"][0]["raft_state"]) == (1, "standalone")
    assert cluster["topic_count"] == len(ask.get("/api/v1/topics").json)
    assert ask.get("/api/v1/cluster/nodes").json[0]["state"] == "alive"
    assert keys(ask.get("/api/v1/cluster/members").json[0]) == keys(cluster["nodes"][0])
    placed = ask.get("/api/v1/cluster/metadata?topic=placed").json["topics"]
    assert [each["leader_id"] for each in placed[0]["partitions"]] == [cluster["leader_id"]] * 2
    assert ask.get("/api/v1/cluster/partitions?topic=placed").json["count"] == 2
    leaders = ask.get("/api/v1/cluster/leaders").json
    assert leaders["balanced"]
    assert leaders["total_leaders"] == leaders["distribution"][cluster["leader_id"]]
    assert not ask.post("/api/v1/cluster/rebalance").json["success"]
    moved = ask.post("/api/v1/cluster/partitions/placed/0", {"new_leader": "2"})
    assert (moved.status, keys(moved.json)) == (409, {"error"})
    stats = ask.get("/api/v1/stats").json
    assert keys(stats) == {"cluster", "nodes", "topics", "consumer_groups", "system"}
    assert stats["cluster"]["total_partitions"] == sum(
        each["partitions"] for each in stats["topics"]
    )
    assert b"# TYPE millstream_" in ask.get("/api/v1/metrics").text
    assert ask.get("/api/v1/swagger.json").json["openapi"] == "3.1.0"
    assert keys(ask.get("/api/v1/nonsense").json) == {"error"}


def test_users_roles_and_rights(secured: HttpClient) -> None:
    made = secured.post(
        "/api/v1/users", {"username": "ann", "password": "rye", "roles": ["consumer"]}
    )
    assert made.status == 201
    user = secured.get("/api/v1/users/ann").json
    assert (user["roles"], user["permissions"], user["enabled"]) == (["consumer"], ["read"], True)
    assert secured("PUT", "/api/v1/users/ann", {"roles": ["producer"]}).status == 200
    assert user["username"] in [each["username"] for each in secured.get("/api/v1/users").json]
    own = secured.as_user("ann", "rye")
    password = {"old_password": "rye", "new_password": "oats"}
    assert own.post("/api/v1/users/ann/password", password).status == 200
    assert own.get("/api/v1/topics").status == 401
    assert secured.as_user("ann", "oats").get("/api/v1/users").status == 403
    assert "admin" in [each["name"] for each in secured.get("/api/v1/roles").json]

    rights = {"public": True, "allowed_users": ["ann"], "allowed_roles": ["guest"]}
    assert secured("PUT", "/api/v1/acls/orders", rights).status == 200
    assert secured.get("/api/v1/acls").json == [{"topic": "orders", **rights}]
    assert secured("PUT", "/api/v1/acls/orders", {"allowed_users": ["bob"]}).status == 200
    assert secured.get("/api/v1/acls/orders").json == {
        "topic": "orders", "public": False, "allowed_users": ["bob"], "allowed_roles": [],
    }  # fmt: skip
    assert secured("DELETE", "/api/v1/acls/orders").status == 204
    assert secured.get("/api/v1/acls/orders").status == 404
    assert secured("DELETE", "/api/v1/users/ann").status == 204
    unknown = HttpClient(secured.port)
    assert (unknown.get("/api/v1/topics").status, unknown.get("/api/v1/health").status) == (
        401,
        200,
    )


def test_the_audit_trail_by_number_and_as_a_file(secured: HttpClient) -> None:
    for at in range(3):
        secured.post("/api/v1/topics", {"name": f"t{at}"})
    deadline = time.monotonic() + 30
    path = "/api/v1/audit/events?types=topic.create&resource=topic:t&limit=2"
    while (page := secured.get(path).json)["total_count"] < 2 or not page["has_more"]:
        assert time.monotonic() < deadline

    assert [each["resource"] for each in page["events"]] == ["topic:t2", "topic:t1"]
    chosen = "type=topic.create&resource=topic:t"
    second = secured.get(f"/api/v1/audit/events?{chosen}&start=1h&limit=2&offset=2").json
    assert [each["resource"] for each in second["events"]] == ["topic:t0"]
    exported = secured.get("/api/v1/audit/export?types=topic.create&resource=topic:t").json
    assert [each["user"] for each in exported] == ["admin"] * 3
    body = {"filter": {"event_types": ["topic.create"], "limit": 1}, "format": "csv"}
    table = secured.post("/api/v1/audit/export", body)
    rows = list(csv.DictReader(io.StringIO(table.text.decode())))
    assert [row["resource"] for row in rows] == ["topic:t2"]
    assert "audit.csv" in table.headers["content-disposition"]
    assert json.loads(rows[0]["details"])["count"] == 1


@pytest.mark.parametrize("path", ["/swagger/", "/api/v1/swagger/", "/swagger"])
def test_the_address_of_its_description_leads_to_the_console(ask: HttpClient, path: str) -> None:
    answer = ask.get(path)

    assert (answer.status, answer.headers["location"]) == (302, "/console/api")
