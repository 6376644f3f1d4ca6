"""Every route answers as the OpenAPI document declares, whatever is sent to it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from millstream.protocols.http.operate.openapi import document
from millstream.protocols.http.router import EVENTS_TYPE, Router
from millstream.protocols.http.routes import APIS
from tests.support.http import HttpClient, http_node, secured_http_node
from tests.support.tiers import IS_WHOLE

schemathesis = pytest.importorskip("schemathesis")

EXAMPLES = 10 if IS_WHOLE else 1  # For each route.
STEP = 1 if IS_WHOLE else 4  # In `make test` every fourth route, for its time.
SEED = 20_261_117
# Names that exist, so that requests come further than to a 404.
KNOWN: dict[str, object] = {
    "topic": "orders",
    "group": "readers",
    "user": "ann",
    "view": "some",
    "partition": 0,
    "offset": 0,
}


def operations() -> Iterator[Any]:
    """All but the streams without an end, which tests of their own read."""
    made: dict[str, Any] = json.loads(json.dumps(document(Router(APIS))))
    for methods in made["paths"].values():
        for operation in methods.values():
            for each in operation["parameters"]:
                if each["name"] in KNOWN:
                    each["schema"] = {"anyOf": [{"const": KNOWN[each["name"]]}, each["schema"]]}
    for result in schemathesis.openapi.from_dict(made).get_all_operations():
        operation = result.ok()
        if EVENTS_TYPE not in operation.definition.raw["responses"].get("200", {}).get(
            "content", {}
        ):
            yield operation


def problems(operation: Any, ask: HttpClient, examples: int) -> list[str]:
    """Answers that are not declared, or not of the declared shape."""
    declared = operation.definition.raw["responses"]
    collected: list[str] = []

    @seeded(SEED)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        address = f"http://{ask.host}:{ask.port}"
        answer = case.call(base_url=address, headers=ask.headers, timeout=30)
        name = f"{case.method} {case.formatted_path} {case.query} {case.body!r}"[:500]
        if str(answer.status_code) not in declared or answer.status_code >= 500:
            collected.append(f"{name}: {answer.status_code} {answer.text[:200]}")
            return
        try:
            operation.validate_response(answer)
        except Exception as problem:  # The library raises groups of its own kinds.
            collected.append(f"{name}: {problem}"[:1000])

    send()
    return collected


def prepare(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "orders"})
    ask.post("/v1/topics/orders/records", {"records": [{"key": "k", "value": {"json": [1]}}]})
    ask.post("/v1/views", {"name": "some", "topic": "orders", "filter": 'key == "k"'})


def test_every_answer_is_declared() -> None:
    with http_node() as node:
        prepare(node.ask)
        wrong = [
            problem
            for operation in list(operations())[::STEP]
            for problem in problems(operation, node.ask, EXAMPLES)
        ]

    assert wrong == []


@pytest.mark.slow
def test_every_answer_is_declared_for_users_with_and_without_rights(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with secured_http_node(tmp_path_factory.mktemp("secrets")) as node:
        prepare(node.ask)
        node.ask.post("/v1/users", {"name": "ann", "password": "rye", "roles": ["consumer"]})
        wrong = [
            problem
            for ask in (node.ask, node.ask.as_user("ann", "rye"), HttpClient(node.ask.port))
            for operation in operations()
            if "/v1/users" not in operation.path  # The users that ask stay as they are.
            for problem in problems(operation, ask, 2)
        ]

    assert wrong == []
