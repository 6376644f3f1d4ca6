"""The table of routes: what each takes, returns and needs, and which one a path means.

An `Api` is a prefix with its own error bodies and content types. Its index names a module for each
noun, the first part behind the prefix; the module has the routes of that noun in `ROUTES` and is
imported by the first request for it. A path is matched as it was sent and decoded afterwards:
`%2F` and `%3A` belong to a name and are never taken for a separator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cached_property
from http import HTTPStatus
from importlib import import_module
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from millstream.protocols.http.problems import HttpProblem, Problem
from millstream.protocols.http.wire.requests import decoded

JSON_TYPE: Final = "application/json"
NDJSON_TYPE: Final = "application/x-ndjson"
EVENTS_TYPE: Final = "text/event-stream"
CSV_TYPE: Final = "text/csv; charset=utf-8"
MATCHES_KEPT: Final = 1_000  # Paths whose route is known; clients ask for the same few.
KEPT_PATH_LENGTH_MAX: Final = 200
BYTES_TYPE: Final = "application/octet-stream"


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values of a path and its query. Fields that the template names stand in the path."""


class Needs(Enum):
    """Who may call a route."""

    LOGIN = "login"  # Every route that is not public.
    NOTHING = "nothing"  # Public: health, the login itself, files of the console.


class Right(NamedTuple):
    """A right in Kafka's words, such as `DESCRIBE` on `topic:{topic}`."""

    operation: str
    resource: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource}"


# Any: the types of parameters, bodies and replies differ from route to route; the table names
# them, and a test compares the table with the handlers' annotations.
Handler = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Route:
    """One operation. The handler is called as `handler(call, params)` or, where the route has a
    body, `handler(call, params, body)`. It returns the reply, an awaitable of it, a generator of
    steps that returns it, or an asynchronous iterator of a stream's items.
    """

    method: str
    path: str  # A template: `/v1/topics/{topic}:grow`.
    handler: Handler
    summary: str
    params: type[Params] = Params
    body: Any = None  # A type that msgspec decodes; None: the request has no body.
    reply: Any = None  # A type that msgspec encodes; None: 204 without a body.
    rights: tuple[Right, ...] = ()
    needs: Needs = Needs.LOGIN
    status: HTTPStatus = HTTPStatus.OK
    location: str = ""  # Of what was made, as a template over the reply's fields.
    sends: str = JSON_TYPE  # The type of the reply, or of a stream.
    is_stream: bool = False  # The reply has no known length.
    # Takes NDJSON bodies piece by piece, as `stream_handler(call, params)`; yields lines.
    stream_handler: Handler | None = None
    takes_records: bool = False  # The body may be as large as `http.records_body_bytes_max`.
    takes_revision: bool = False  # `If-Match` is compared with the revision.
    # The reply is a `Page` of what this node has of its own, in the order of this field of its
    # items; in a cluster those of all nodes are put together.
    gathered_by: str = ""
    is_raw: bool = False  # The handler returns a `RawReply`.
    example: Any = None  # Of the body, for the documents.
    hidden: bool = False  # Not in the OpenAPI document.

    @property
    def changes(self) -> bool:
        return self.method not in {"GET", "HEAD", "OPTIONS"}


# Any: fields of `Route`, whose constructor checks them.
def routes_below(prefix: str, **defaults: Any) -> Callable[..., Route]:
    """Declares routes of another broker's API, in its shapes: below a prefix, and not in ours."""

    def route(method: str, path: str, handler: Handler, summary: str, **fields: Any) -> Route:
        own: dict[str, Any] = {**defaults, **fields, "hidden": True}
        return Route(method=method, path=prefix + path, handler=handler, summary=summary, **own)

    return route


class RawReply(NamedTuple):
    """A body that is not JSON, or has headers of its own."""

    body: bytes
    kind: str
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = {}


# Renders a problem: the type of the body and its bytes. The text is the id of the request.
Shape = Callable[[Problem, str], tuple[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """A prefix of paths with its nouns, content types and error bodies."""

    name: str
    prefix: tuple[str, ...]
    # Names of modules by noun; the empty noun is the prefix itself. Of several modules the first
    # that has the path answers, and those behind it need not be imported.
    nouns: Mapping[str, str | tuple[str, ...]]
    shape: Shape
    takes: tuple[str, ...] = (JSON_TYPE,)
    sends: tuple[str, ...] = (JSON_TYPE,)  # Types that `Accept` may choose from, best first.
    is_strict: bool = True  # Unknown fields and query keys are refused, not ignored.
    also_under: str = ""  # A part before the prefix, under which the same paths are served.

    def modules(self, noun: str) -> tuple[str, ...]:
        names = self.nouns.get(noun, ())
        return (names,) if isinstance(names, str) else names

    def own_parts(self, raw: Sequence[str]) -> Sequence[str] | None:
        """The path as the routes of this API spell it; None if it is not one of its paths."""
        if self.also_under and raw[:1] == (self.also_under,):
            raw = raw[1:]
        return raw if tuple(raw[: len(self.prefix)]) == self.prefix else None


class Match(NamedTuple):
    api: Api
    route: Route
    values: dict[str, str]  # Of the template's names, decoded.


class _Pattern:
    """A template, cut into parts: a literal, or a name with what stands before and behind it."""

    __slots__ = ("parts", "route")

    def __init__(self, route: Route) -> None:
        self.route = route
        self.parts: list[tuple[str, str, str]] = []  # Before, name, behind.
        for part in route.path.split("/")[1:] if route.path != "/" else ():
            before, brace, behind = part.partition("{")
            name, _, behind = behind.partition("}")
            self.parts.append((before, name if brace else "", behind))

    @property
    def rank(self) -> tuple[int, ...]:
        """Literals first, then names with a verb, then plain names."""
        return tuple(0 if not name else 1 if behind else 2 for _, name, behind in self.parts)

    def match(self, raw: Sequence[str]) -> dict[str, str] | None:
        values: dict[str, str] = {}
        for (before, name, behind), part in zip(self.parts, raw, strict=True):
            if not name:
                if part != before:
                    return None
                continue
            if not (part.startswith(before) and part.endswith(behind)):
                return None
            text = part[len(before) : len(part) - len(behind)]
            if not text:
                return None
            values[name] = decoded(text)
        return values


class NounTable:
    """The routes of one module."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._by_length: dict[int, list[_Pattern]] = {}
        for pattern in sorted(map(_Pattern, routes), key=lambda pattern: pattern.rank):
            self._by_length.setdefault(len(pattern.parts), []).append(pattern)

    def find(self, method: str, raw: Sequence[str]) -> tuple[Route, dict[str, str]] | set[str]:
        """The route and its values, or the methods that the path has."""
        methods: set[str] = set()
        for pattern in self._by_length.get(len(raw), ()):
            values = pattern.match(raw)
            if values is None:
                continue
            if pattern.route.method == method:
                return pattern.route, values
            methods.add(pattern.route.method)
        return methods


class Router:
    """All prefixes. A noun's module is imported when the first path leads to it."""

    def __init__(self, apis: Sequence[Api]) -> None:
        # The longest prefix first: `/api/v1` before the root.
        self.apis = tuple(sorted(apis, key=lambda api: -len(api.prefix)))
        self._tables: dict[str, NounTable] = {}
        self._matches: dict[tuple[str, tuple[str, ...]], Match] = {}  # Of short paths.

    def api_of(self, raw: Sequence[str]) -> Api:
        """The API of a path; ours for one that no API has."""
        for api in self.apis:
            own = api.own_parts(raw)
            if own is not None and (api.prefix or self._noun(api, own) in api.nouns):
                return api
        return next(api for api in self.apis if api.name == "v1")

    def find(self, method: str, raw: tuple[str, ...]) -> Match:
        """The route of a path, as it was sent; raise `HttpProblem` 404 or 405."""
        key = (method, raw)
        match = self._matches.get(key)
        if match is None:
            match = self._find(method, raw)
            if len("".join(raw)) <= KEPT_PATH_LENGTH_MAX:
                if len(self._matches) >= MATCHES_KEPT:
                    self._matches.clear()
                self._matches[key] = match
        return match

    def _find(self, method: str, raw: Sequence[str]) -> Match:
        methods: set[str] = set()
        for api in self.apis:
            own = api.own_parts(raw)
            if own is None:
                continue
            for module in api.modules(self._noun(api, own)):
                looked_up = self._table(module).find("GET" if method == "HEAD" else method, own)
                if isinstance(looked_up, tuple):
                    return Match(api, *looked_up)
                methods |= looked_up
        if not methods:
            raise self._unknown(raw)
        if "GET" in methods:
            methods.add("HEAD")
        allowed = ", ".join(sorted(methods))
        raise HttpProblem(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "method_not_allowed",
            f"{method} is not allowed on /{'/'.join(raw)}; allowed: {allowed}",
            headers={"Allow": allowed},
        )

    @cached_property
    def routes(self) -> tuple[tuple[Api, Route], ...]:
        """The whole table. Imports every module."""
        return tuple(
            (api, route)
            for api in self.apis
            for module in dict.fromkeys(chain.from_iterable(map(api.modules, api.nouns)))
            for route in self._table(module).routes
            if self._belongs(api, route)
        )

    # -- parts -------------------------------------------------------------------------------------

    def _belongs(self, api: Api, route: Route) -> bool:
        raw = tuple(route.path.split("/")[1:]) if route.path != "/" else ()
        return raw[: len(api.prefix)] == api.prefix and self._noun(api, raw) in api.nouns

    @staticmethod
    def _noun(api: Api, raw: Sequence[str]) -> str:
        if len(raw) <= len(api.prefix):
            return ""
        return raw[len(api.prefix)].partition(":")[0]

    def _table(self, module: str) -> NounTable:
        table = self._tables.get(module)
        if table is None:
            table = self._tables[module] = NounTable(import_module(module).ROUTES)
        return table

    def _unknown(self, raw: Sequence[str]) -> HttpProblem:
        path = "/" + "/".join(raw)
        nouns = [
            "/" + "/".join([*api.prefix, noun]) for api in self.apis for noun in api.nouns if noun
        ]
        if len(raw) > 1:
            nouns += [route.path for table in self._tables.values() for route in table.routes]
        nearest = get_close_matches(path[:200], nouns, n=1, cutoff=0.5)
        hint = f"; the nearest is {nearest[0]}" if nearest else "; /v1/openapi.json lists all paths"
        return HttpProblem(HTTPStatus.NOT_FOUND, "unknown_path", f"there is no {path[:200]}{hint}")
