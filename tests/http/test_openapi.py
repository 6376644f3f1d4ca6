"""The OpenAPI document: made from the table, complete, and never narrower than its golden copy."""

import inspect
import json
from typing import Any

import pytest

from millstream.protocols.http.operate.openapi import document
from millstream.protocols.http.router import Router
from millstream.protocols.http.routes import APIS
from tests.support.http import HttpClient
from tests.support.source_tree import ROOT

GOLDEN = ROOT / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def current() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(document(Router(APIS))))
    return made


def test_it_is_served(ask: HttpClient) -> None:
    served = ask.get("/v1/openapi.json")

    assert served.status == 200
    assert served.json["openapi"] == "3.1.0"
    assert ask.get("/openapi.json").text == served.text


def test_the_golden_copy_is_the_document(current: dict[str, Any]) -> None:
    if not GOLDEN.exists() or json.loads(GOLDEN.read_text(encoding="utf-8")) != current:
        golden = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
        assert narrowed(golden, current) == []
        pytest.fail(
            "the API has grown: write the golden copy anew with "
            "python -m millstream.cli.reference docs"
        )


def narrowed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What a client of `before` would miss."""
    problems = []
    for path, operations in before.get("paths", {}).items():
        for method, operation in operations.items():
            now = after["paths"].get(path, {}).get(method)
            if now is None:
                problems.append(f"{method} {path} is gone")
                continue
            names = {each["name"] for each in now["parameters"]}
            problems += [
                f"{method} {path}: parameter {each['name']} is gone"
                for each in operation["parameters"]
                if each["name"] not in names
            ]
            known = {each["name"] for each in operation["parameters"]}
            problems += [
                f"{method} {path}: parameter {each['name']} is required now"
                for each in now["parameters"]
                if each["required"] and each["name"] not in known
            ]
    schemas = after.get("components", {}).get("schemas", {})
    for name, schema in before.get("components", {}).get("schemas", {}).items():
        now = schemas.get(name, {})
        gone = set(schema.get("properties", {})) - set(now.get("properties", {}))
        problems += [f"{name}.{field} is gone" for field in sorted(gone)]
    return problems


def test_a_removed_route_and_field_are_noticed() -> None:
    before = {
        "paths": {"/v1/a": {"get": {"parameters": []}}},
        "components": {"schemas": {"A": {"properties": {"b": {}}}}},
    }

    assert narrowed(before, {"paths": {}}) == ["get /v1/a is gone", "A.b is gone"]


def test_handlers_are_annotated_as_the_table_says() -> None:
    wrong = []
    for api, route in Router(APIS).routes:
        if api.name != "v1":
            continue
        names = list(inspect.signature(route.handler).parameters)
        count = 2 if route.body is None else 3
        if len(names) < count or names[0] != "call":
            wrong.append(f"{route.method} {route.path}: {names}")

    assert wrong == []


def test_every_name_of_a_path_is_a_parameter(current: dict[str, Any]) -> None:
    missing = [
        (path, method)
        for path, operations in current["paths"].items()
        for method, operation in operations.items()
        if path.count("{") != sum(each["in"] == "path" for each in operation["parameters"])
    ]

    assert missing == []


def test_every_operation_has_a_name_of_its_own(current: dict[str, Any]) -> None:
    names = [
        operation["operationId"]
        for operations in current["paths"].values()
        for operation in operations.values()
    ]

    assert len(names) == len(set(names))
