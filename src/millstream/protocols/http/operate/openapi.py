"""The OpenAPI 3.1 document of `/v1`, made from the table of routes when it is asked for."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from millstream import __version__
from millstream.protocols.http.calls import Call
from millstream.protocols.http.router import (
    EVENTS_TYPE,
    JSON_TYPE,
    NDJSON_TYPE,
    Api,
    Needs,
    Params,
    RawReply,
    Route,
    Router,
)
from millstream.protocols.http.routes import APIS

PROBLEM_TYPE: Final = "application/problem+json"
_PROBLEM_REF: Final = "#/components/schemas/Problem"
_NAME = re.compile(r"{([^}]*)}")
_PROBLEM: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "error", "message", "retriable"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "error": {"type": "string"},
        "message": {"type": "string"},
        "retriable": {"type": "boolean"},
        "retry_after_ms": {"type": "integer"},
        "fields": {"type": "array", "items": {"type": "string"}},
    },
}
_REFUSALS: Final[Mapping[int, str]] = {
    400: "The request is not what the route takes",
    401: "A login is needed",
    403: "The session may not do this",
    404: "There is no such thing",
    409: "It exists already, or its state does not allow this",
    412: "If-Match asks for another revision",
    413: "Too large",
    415: "A body of another type",
    421: "Another host was meant",
    422: "Valid JSON that cannot be done",
    429: "Too many at the same time",
    503: "Not now; Retry-After says when",
    504: "The answer did not come in time",
    507: "The disk is full",
}


# Any: the members of a JSON document.
def document(router: Router) -> dict[str, Any]:
    """The document of all routes of `/v1` that are not hidden."""
    routes = [route for api, route in router.routes if _is_ours(api, route) and not route.hidden]
    kinds = [kind for route in routes for kind in (route.body, route.reply) if _has_schema(kind)]
    schemas, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    schema_of = {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in sorted(routes, key=lambda route: (route.path, route.method)):
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Millstream",
            "version": __version__,
            "description": "Admin REST of a Millstream broker.",
        },
        "paths": paths,
        "components": {
            "schemas": {**dict(sorted(components.items())), "Problem": _PROBLEM},
            "responses": {
                str(code): {
                    "description": text,
                    "content": {PROBLEM_TYPE: {"schema": {"$ref": _PROBLEM_REF}}},
                }
                for code, text in _REFUSALS.items()
            },
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def openapi(call: Call, params: Params) -> RawReply:
    body = msgspec.json.encode(document(Router(APIS)))
    return RawReply(body, JSON_TYPE)


def api_page(call: Call, params: Params) -> RawReply:
    """FlyMQ has its description here; the console has this page for all routes."""
    headers = {"Location": "/console/api"}
    return RawReply(b"", "text/html", status=HTTPStatus.FOUND, headers=headers)


def _is_ours(api: Api, route: Route) -> bool:
    return api.name == "v1" and route.path.startswith("/v1/") and "/metadata/" not in route.path


def _has_schema(kind: Any) -> bool:
    return kind is not None and kind is not bytes


def _operation(route: Route, schema_of: Mapping[int, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _identity(route),
        "summary": route.summary,
        "tags": [route.path.split("/")[2].partition(":")[0]],
        "parameters": _parameters(route),
        "responses": _responses(route, schema_of),
        "security": [] if route.needs is Needs.NOTHING else [{}, {"basic": []}, {"bearer": []}],
    }
    if route.rights:
        operation["x-rights"] = [str(right) for right in route.rights]
    if _has_schema(route.body):
        content: dict[str, Any] = {"schema": schema_of[id(route.body)]}
        if route.example is not None:
            content["example"] = route.example
        operation["requestBody"] = {"required": True, "content": {JSON_TYPE: content}}
        if route.stream_handler is not None:
            lines = {"schema": {"type": "string"}}
            operation["requestBody"]["content"][NDJSON_TYPE] = lines
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    in_path = set(_NAME.findall(route.path))
    schema = msgspec.json.schema(route.params)
    definition = next(iter(schema.get("$defs", {}).values()), schema)
    required = set(definition.get("required", ()))
    parameters = [
        {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in in_path or name in required,
            "schema": kind,
        }
        for name, kind in definition.get("properties", {}).items()
    ]
    if route.takes_revision:
        tag = {"name": "If-Match", "in": "header", "required": False, "schema": {"type": "string"}}
        parameters.append(tag)
    return parameters


def _responses(route: Route, schema_of: Mapping[int, Any]) -> dict[str, Any]:
    status = route.status
    if route.reply is None and status is HTTPStatus.OK:
        status = HTTPStatus.NO_CONTENT
    good: dict[str, Any] = {"description": status.phrase}
    if route.reply is bytes:
        binary = {"type": "string", "format": "binary"}
        good["content"] = {route.sends: {"schema": binary}}
    elif _has_schema(route.reply):
        kind = route.sends.partition(";")[0]
        is_text = kind in {EVENTS_TYPE, NDJSON_TYPE}
        schema = {"type": "string"} if is_text else schema_of[id(route.reply)]
        good["content"] = {kind: {"schema": schema}}
    refusals = {str(code): {"$ref": f"#/components/responses/{code}"} for code in _REFUSALS}
    return {str(status.value): good, **refusals}


def _identity(route: Route) -> str:
    words = re.sub(r"[^a-z]+", "_", route.path.removeprefix("/v1/").lower()).strip("_")
    return f"{route.method.lower()}_{words}"


_DOCUMENTS = ("/v1/openapi.json", "/openapi.json", "/swagger.json", "/api/v1/swagger.json")

ROUTES = (
    *(
        Route(
            method="GET",
            path=path,
            handler=openapi,
            summary="This API as an OpenAPI 3.1 document",
            is_raw=True,
            hidden=True,
        )
        for path in _DOCUMENTS
    ),
    *(
        Route(
            method="GET",
            path=path,
            handler=api_page,
            summary="Leads to the console's page of all routes",
            needs=Needs.NOTHING,
            is_raw=True,
            hidden=True,
        )
        for path in ("/swagger", "/api/v1/swagger")
    ),
)
