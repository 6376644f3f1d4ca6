"""Every route asks for the rights that the table of routes says, before anything else."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import quote

import pytest

from millstream.internal_topics.delayed import ID_SEPARATOR
from millstream.model import Session
from millstream.protocols.access_rules import OPERATIONS, Rule
from millstream.protocols.http.admin.resets import PlanRequest, ResetTo
from millstream.protocols.http.paging import cursor_of
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
    "/api/v1/swagger.json",
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
    "/v1/whoami",
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
    "node": "1",
    "cluster": "{cluster}",
}
DELAYED_ID = f"{{topic}}{ID_SEPARATOR}1"
TOKEN = cursor_of(PlanRequest(to=ResetTo(earliest=True), topics=["orders"]), "digest")
BODIES: dict[str, object] = {
    "SchemaBody": {"schema": '"string"'},
    "ModeBody": {"mode": "READWRITE"},
    "ResetRequest": {"token": TOKEN},
    "dict": {"compatibility": "BACKWARD"},
}
# By route: names that stand for something else than in other routes.
OWN_VALUES = {
    "/v1/delayed/{id}": {"id": quote(DELAYED_ID, safe="{}")},
    "/api/v1/dlq/{topic}/replay/{id}": {"id": "0-0"},
}
# More than is declared: DESCRIBE of the cluster shows all groups, as in Kafka; `whoami` answers
# what a client may do, and needs none of it.
ALSO_ASKED = dict.fromkeys(
    (
        "GET /v1/groups",
        "GET /api/v1/consumer-groups",
        "GET /v3/clusters/{cluster}/consumer-groups",
        "GET /v1/whoami",
    ),
    ("De C",),
)
QUERIES = {
    "GET /v1/delayed": "?topic={topic}",
    "GET /v1/delayed/histogram": "?topic={topic}",
    "DELETE /v1/reassignments": "?topic={topic}&partition=0",
    "DELETE /v1/groups/{group}/offsets": "?topic={topic}",
    "DELETE /v1/dead-letters/{topic}": "?expected_count=0",
    "/subjects/{subject}/metadata": "?key=owner&value=ann",
}
STREAM_S = 30.0  # Virtual: all rights of a stream are asked for by then.
ROUTES = {f"{route.method} {route.path}": (api, route) for api, route in Router(APIS).routes}
LOGGED_IN = [name for name, (_, route) in ROUTES.items() if route.needs is Needs.LOGIN]


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
    sample = BODIES.get(name, {}) if route.example is None or name in BODIES else route.example
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
            known = PATH_VALUES | OWN_VALUES.get(route.path, {})
            return known.get(match[1], topic).format(topic=topic, cluster=node.cluster_id)

        path = re.sub(r"\{(\w+)\}", value, route.path) + query.format(topic=topic)
        body = body_of(api, route, topic)
        head = (
            f"{route.method} {path} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n\r\n"
        )
        client = NewClient(Address("localhost", 9094), "10.0.0.7", Pace(), PushChannel(), session)
        gateway = http_gateway_factory(node)(client)
        replies: list[bytes] = []
        for item in gateway.receive(head.encode() + body):
            outcome = gateway.begin(item)
            reply: object = outcome
            if outcome is not None and not isinstance(outcome, list):
                try:
                    async with asyncio.timeout(STREAM_S):
                        reply = await outcome
                except TimeoutError:
                    assert route.is_stream  # It waits for a client that takes nothing.
                    reply = [b"HTTP/1.1 200 OK\r\n\r\n{}"]
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
    declared = {*rule.needs, *rule.also, *ALSO_ASKED.get(name, ())}

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
