"""Every route asks for the rights that the table of routes says, before anything else."""

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import pytest

from millstream.model import Session
from millstream.protocols.access_rules import OPERATIONS, Rule
from millstream.protocols.http.router import Api, Needs, Route, Router
from millstream.protocols.http.routes import APIS
from millstream.server.gateway_factories import http_gateway_factory
from millstream.server.net.connection import Address, NewClient, Pace
from millstream.server.net.push_channel import PushChannel
from millstream.server.node import Node
from tests.support.access_sweep import Send, answered, is_left, recorded
from tests.support.virtual_loop import run

ABBREVIATIONS = {operation.name: letters for letters, operation in OPERATIONS.items()}
KINDS = {"topic": "T", "group": "G", "cluster": "C", "transactional_id": "X"}
# Say nothing that a client who is logged in does not know.
HARMLESS = {
    "/openapi.json",
    "/swagger.json",
    "/v1/jobs",  # A principal sees its own jobs only.
    "/v1/jobs/{id}",
    "/v1/jobs/{id}/events",
    "/v1/openapi.json",
    "/",
    "/v1/metadata/id",
    "/v1/metadata/version",
    "/v1/session",
}
PATH_VALUES = {
    "group": "readers",
    "transactional_id": "billing",
    "user": "bob",
    "role": "ops",
    "subject": "{topic}-value",
    "version": "1",
    "id": "1",
    "context": ".shop",
    "guid": "b8b6d8fe-442e-4d43-b204-e52db2221a58",
    "partition": "0",
    "offset": "0",
}
BODIES: dict[str, object] = {
    "SchemaBody": {"schema": '"string"'},
    "ModeBody": {"mode": "READWRITE"},
    "dict": {"compatibility": "BACKWARD"},
}
QUERIES = {
    "DELETE /v1/dead-letters/{topic}": "?expected_count=0",
    "/subjects/{subject}/metadata": "?key=owner&value=ann",
}
ROUTES = {f"{route.method} {route.path}": (api, route) for api, route in Router(APIS).routes}
# Newer than these samples: each needs a sample that comes as far as its rights, or another row.
UNSWEPT = {
    "DELETE /v1/delayed/{id}",
    "DELETE /v1/groups/{group}/offsets",
    "GET /v1/cluster",
    "GET /v1/cluster/partitions",
    "GET /v1/delayed",
    "GET /v1/delayed/{id}",
    "GET /v1/events",
    "GET /v1/groups",
    "GET /v1/nodes/{node}",
    "GET /v1/topics/{topic}/records/export",
    "GET /v1/topics/{topic}/records/tail",
    "GET /v1/whoami",
    "POST /v1/groups/{group}:plan",
    "POST /v1/groups/{group}:reset",
    "POST /v1/nodes/{node}:decommission",
    "POST /v1/nodes/{node}:drain",
    "POST /v1/nodes/{node}:undrain",
}
LOGGED_IN = [
    name
    for name, (_, route) in ROUTES.items()
    if route.needs is Needs.LOGIN and name not in UNSWEPT
]


def rule_of(route: Route) -> Rule:
    """The rights of a route as abbreviations; those on every name filter a list."""
    rights = {
        f"{ABBREVIATIONS[right.operation]} {KINDS[right.resource.partition(':')[0]]}": right
        for right in route.rights
    }
    filtered = tuple(word for word, right in rights.items() if right.resource.endswith(":*"))
    needed = tuple(word for word in rights if word not in filtered)
    return Rule(needed, filtered)


def body_of(api: Api, route: Route, topic: str) -> bytes:
    if route.body is None:
        return b""
    name = getattr(route.body, "__name__", "")
    sample = route.example if route.example is not None else BODIES.get(name, {})
    text = json.dumps(sample)
    # Rights of its own a client may always ask about.
    text = text.replace("User:ann", "User:bob")
    return re.sub(r"\borders\b", topic, text).encode()


def send_of(name: str) -> Send:
    api, route = ROUTES[name]

    async def send(node: Node, session: Session, topic: str) -> str:
        query = QUERIES.get(f"{route.method} {route.path}", "") or QUERIES.get(
            route.path.removeprefix("/contexts/{context}"), ""
        )

        def value(match: re.Match[str]) -> str:
            return PATH_VALUES.get(match[1], topic).format(topic=topic)

        path, body = re.sub(r"\{(\w+)\}", value, route.path) + query, body_of(api, route, topic)
        head = (
            f"{route.method} {path} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n\r\n"
        )
        client = NewClient(Address("localhost", 9094), "10.0.0.7", Pace(), PushChannel(), session)
        gateway = http_gateway_factory(node)(client)
        replies: list[bytes] = []
        for item in gateway.receive(head.encode() + body):
            outcome = gateway.begin(item)
            reply = outcome if outcome is None or isinstance(outcome, list) else await outcome
            replies += [bytes(part) for part in cast("list[bytes]", reply or [])]
        gateway.close()
        return "\n".join(told_in(b"".join(replies)))

    return send


def told_in(reply: bytes) -> Iterator[str]:
    """Status and body, without what differs from request to request."""
    head, _, body = reply.partition(b"\r\n\r\n")
    yield head.split(b" ")[1].decode()
    try:
        parsed: Any = json.loads(body)
    except ValueError:
        yield repr(body)
        return
    if isinstance(parsed, dict):
        parsed.pop("request_id", None)
        parsed.pop("instance", None)
    yield json.dumps(parsed, sort_keys=True)


def test_every_route_says_what_it_needs() -> None:
    without = {ROUTES[name][1].path for name in LOGGED_IN if not ROUTES[name][1].rights}

    assert without <= HARMLESS


@pytest.mark.parametrize("name", LOGGED_IN)
def test_a_route_asks_for_what_its_table_says(name: str) -> None:
    """What the samples do not name does not exist: then only the first rights are asked for."""
    rule, asked = rule_of(ROUTES[name][1]), run(recorded(send_of(name)))
    declared = {*rule.needs, *rule.also}

    assert all(right in declared or is_left(right, declared) for right in asked), asked
    assert asked or not rule.needs


@pytest.mark.parametrize("name", [n for n in LOGGED_IN if rule_of(ROUTES[n][1]).needs])
def test_without_rights_a_route_is_forbidden_changes_nothing_and_hides_names(name: str) -> None:
    async def story() -> None:
        there, is_unchanged = await answered(send_of(name), set())
        missing, _ = await answered(send_of(name), set(), "hidden")

        assert there.startswith("403"), there
        assert is_unchanged
        assert there.replace("orders", "hidden") == missing

    run(story())
