"""Reads a request's values and body into the types that its route declares.

Refusals say where the mistake is: `$.partitions` of a body, the name of a query key.
"""

from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec

from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.router import (
    EVENTS_TYPE,
    JSON_TYPE,
    NDJSON_TYPE,
    Api,
    Params,
    Route,
)
from millstream.protocols.http.wire.requests import Request

NUMBERS = "numbers"


# Any: what the route declares; the handler has the type.
def read_params(
    request: Request, api: Api, route: Route, values: dict[str, str]
) -> tuple[Any, bool]:
    """The parameters of a route, and whether numbers are to be sent as strings."""
    names = _field_names(route.params)
    collected: dict[str, str] = {}
    for key, value in request.query:
        if key in names:
            if key in values or (key in collected and api.is_strict):
                raise _invalid(f"{key} stands twice in the request", key)
            collected[key] = value
        elif key == NUMBERS and api.is_strict:
            if value not in {"string", "number"}:
                raise _invalid(f"numbers = {value[:40]!r}: expected string or number", key)
            collected[NUMBERS] = value
        elif api.is_strict:
            known = ", ".join(sorted(names - values.keys())) or "none"
            raise _invalid(f"there is no query key {key[:100]!r} here; there are: {known}", key)
    wants_text = collected.pop(NUMBERS, "") == "string"
    try:
        return msgspec.convert(collected | values, route.params, strict=False), wants_text
    except msgspec.ValidationError as problem:
        text, place = _place(problem)
        raise _invalid(f"{place}: {text}" if place else text, place) from None


# Any: as above.
def read_body(request: Request, api: Api, route: Route) -> Any:
    """The body of a request; raise 415, or 400 with the place of the mistake."""
    kind = content_type(request)
    if kind is None and not request.body:
        kind = api.takes[0]
    if kind not in api.takes:
        raise HttpProblem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            f"Content-Type is {kind or 'missing'}; taken are {', '.join(api.takes)}",
            headers={"Accept-Post": ", ".join(api.takes)},
        )
    if route.body is bytes:
        return request.body
    try:
        return _decoder(route.body).decode(request.body or b"{}")
    except msgspec.ValidationError as problem:
        text, place = _place(problem, in_body=True)
        raise _invalid(f"{place}: {text}", place) from None
    except msgspec.DecodeError as problem:
        raise _invalid(f"the body is not JSON: {problem}", "$") from None
    except RecursionError:
        raise _invalid("the body is nested too deeply", "$") from None


def content_type(request: Request) -> str | None:
    kind = request.headers.get("content-type")
    return None if kind is None else kind.partition(";")[0].strip().lower()


def accepted_type(request: Request, api: Api, route: Route) -> str:
    """The type of the reply that `Accept` allows, best first; raise 406 if there is none."""
    offered = api.sends if route.sends == JSON_TYPE else (route.sends,)
    accept = request.headers.get("accept", "")
    if not accept or accept.strip() == "*/*":
        return offered[0]
    ranges = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    for kind in offered:
        bare = kind.partition(";")[0]
        if bare in ranges:
            return kind
    if "*/*" in ranges:
        return offered[0]
    for kind in offered:
        if f"{kind.partition('/')[0]}/*" in ranges:
            return kind
    if route.is_raw or (not api.is_strict and len(api.sends) == 1):
        return offered[0]
    raise HttpProblem(
        HTTPStatus.NOT_ACCEPTABLE,
        "not_acceptable",
        f"Accept is {accept[:100]}; sent are {', '.join(offered)}",
    )


def is_line_stream(request_type: str | None) -> bool:
    return request_type in {NDJSON_TYPE, "application/ndjson", EVENTS_TYPE}


@cache
def _field_names(params: type[Params]) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(params))


@cache
def _decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(kind)


def _place(problem: msgspec.ValidationError, *, in_body: bool = False) -> tuple[str, str]:
    text, _, path = str(problem).partition(" - at `")
    path = path.rstrip("`")
    text = text[:1].lower() + text[1:]
    if in_body:
        return text, path or "$"
    return text, path.removeprefix("$").removeprefix(".")


def _invalid(message: str, place: str) -> HttpProblem:
    return HttpProblem(
        HTTPStatus.BAD_REQUEST, "invalid_request", message, fields=(place,) if place else ()
    )
