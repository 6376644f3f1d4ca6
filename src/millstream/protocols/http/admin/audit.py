"""The audit trail: a page of events newest first, new events as they are written, all as a file."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal

import msgspec

from millstream.engine.audit.trail import END, AuditQuery, FoundEvent, all_pages
from millstream.names import AUDIT_TOPIC
from millstream.protocols.http.calls import LIMIT_DEFAULT, Call, Limit, Page
from millstream.protocols.http.paging import cursor_of, place_of
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.records.places import parse_place
from millstream.protocols.http.records.tables import csv_lines
from millstream.protocols.http.router import EVENTS_TYPE, NDJSON_TYPE, Params, Right, Route
from millstream.protocols.http.streams import COMMENT_EVERY_S, Event
from millstream.security.audit_events import Facts

LOOK_EVERY_S = 0.5  # Of a tail: a trail is read by people.
TAIL_EVENTS = 100
_COLUMNS = (
    *("id", "time", "event", "result", "principal", "address", "resource", "operation"),
    *("rule", "count", "node", "details"),
)


class AuditFilter(Params, frozen=True, kw_only=True):
    """Which events; what is empty is any."""

    start: str = msgspec.field(default="", name="from")
    until: str = ""
    event: str = ""  # One or several, separated by commas.
    principal: str = ""
    resource: str = ""
    result: str = ""
    text: str = ""


class AuditListing(AuditFilter, frozen=True, kw_only=True):
    limit: Limit = LIMIT_DEFAULT
    after: str = ""


class AuditExport(AuditFilter, frozen=True, kw_only=True):
    format: Literal["ndjson", "csv"] = "ndjson"


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    time: str
    event: str
    result: str
    principal: str
    roles: list[str]
    mechanism: str
    listener: str
    protocol: str
    address: str
    client_id: str
    action: str
    operation: str
    resource: str
    rule: str
    count: int
    node: int
    details: Mapping[str, Any]  # Any: JSON.
    partition: int
    offset: int


async def list_events(call: Call, params: AuditListing) -> Page[AuditEvent]:
    place = place_of(params.after, str)
    answer = await call.services.audit.query(
        call.session,
        query_of(call, params),
        events_max=call.limit(params.limit),
        cursor="" if place is None else place[0],
    )
    following = cursor_of(answer.cursor) if answer.cursor else None
    return Page(items=_views(answer.events), next=following)


async def tail(call: Call, params: AuditFilter) -> AsyncIterator[Sequence[Event]]:
    """Events as they are written; with `from` or a cursor, those since then first."""
    query = query_of(call, params)
    place = place_of(call.cursor, str)
    cursor = place[0] if place is not None else "" if params.start else END
    loop = asyncio.get_running_loop()
    commented_at = loop.time()
    while True:
        page = await call.services.audit.follow(
            call.session, query, events_max=TAIL_EVENTS, cursor=cursor
        )
        is_first, cursor = cursor == END, page.cursor
        events = [Event("event", view) for view in _views(page.events)]
        if events:
            events[-1] = events[-1]._replace(cursor=cursor_of(cursor))
        if events or is_first or loop.time() - commented_at >= COMMENT_EVERY_S:
            commented_at = loop.time()
            yield events
        if not events:
            await asyncio.sleep(LOOK_EVERY_S)


async def export(call: Call, params: AuditExport) -> AsyncIterator[bytes]:
    """All events that the query means, newest first; a slow client slows it down."""
    if params.format == "csv":
        yield csv_lines([_COLUMNS])
    async for page in all_pages(call.services.audit, call.session, query_of(call, params)):
        views = _views(page.events)
        if params.format == "csv":
            yield csv_lines([_cells(view) for view in views])
        else:
            yield b"".join(msgspec.json.encode(view) + b"\n" for view in views)


def query_of(call: Call, params: AuditFilter) -> AuditQuery:
    now_ms = call.services.clock.now_ms()
    return AuditQuery(
        _time(params.start, "from", now_ms),
        _time(params.until, "until", now_ms),
        tuple(word.strip() for word in params.event.split(",") if word.strip()),
        params.principal,
        params.resource,
        params.result,
        params.text,
    )


def _time(text: str, name: str, now_ms: int) -> int:
    if not text or text in {"earliest", "latest"}:
        return 0
    place = parse_place(text, now_ms, name)
    if place.timestamp_ms is None:
        raise HttpProblem(
            HTTPStatus.BAD_REQUEST,
            "invalid_request",
            f"{name} = {text[:60]!r}: expected a time or an age such as 15m, not an offset",
            fields=(name,),
        )
    return place.timestamp_ms


def _views(events: Sequence[FoundEvent]) -> list[AuditEvent]:
    return [
        AuditEvent(
            id=each.event.id,
            time=each.event.time,
            partition=each.partition,
            offset=each.offset,
            **_facts(each.event.data),
        )
        for each in events
        if each.event is not None
    ]


# Any: the fields of the event, under the same names.
def _facts(data: Facts) -> dict[str, Any]:
    return {**msgspec.structs.asdict(data), "roles": list(data.roles)}


def _cells(view: AuditEvent) -> list[str]:
    values = [getattr(view, name) for name in _COLUMNS]
    return [
        each if isinstance(each, str) else msgspec.json.encode(each).decode() for each in values
    ]


_READ = (Right("READ", f"topic:{AUDIT_TOPIC}"),)

ROUTES = (
    Route(
        method="GET",
        path="/v1/audit",
        handler=list_events,
        summary="Events of the audit trail, newest first",
        params=AuditListing,
        reply=Page[AuditEvent],
        rights=_READ,
    ),
    Route(
        method="GET",
        path="/v1/audit/tail",
        handler=tail,
        summary="Events of the audit trail as they are written, as server-sent events",
        params=AuditFilter,
        reply=AuditEvent,
        sends=EVENTS_TYPE,
        is_stream=True,
        rights=_READ,
    ),
    Route(
        method="GET",
        path="/v1/audit/export",
        handler=export,
        summary="All events of a query, as NDJSON or CSV",
        params=AuditExport,
        reply=AuditEvent,
        sends=NDJSON_TYPE,
        is_stream=True,
        rights=_READ,
    ),
)
