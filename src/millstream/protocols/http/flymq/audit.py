"""The audit trail as FlyMQ's tools ask for it.

FlyMQ counts what matches and pages by number; the trail is read backwards only as far as the page
needs, so `total_count` counts what was looked at, and `has_more` says that there is more.
"""

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec

from millstream.engine.audit.trail import AuditQuery, all_pages
from millstream.names import AUDIT_TOPIC
from millstream.protocols.http.calls import Call
from millstream.protocols.http.flymq.shapes import route
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.records.places import parse_place
from millstream.protocols.http.records.tables import csv_lines
from millstream.protocols.http.router import CSV_TYPE, JSON_TYPE, Params, RawReply, Right
from millstream.security.audit_events import Event

EXPORT_BYTES_MAX = 16 * 2**20  # Of one answer; `/v1/audit/export` has no such bound.
Count = Annotated[int, msgspec.Meta(ge=0)]


class EventsQuery(Params, frozen=True, kw_only=True):
    """FlyMQ's code and its documents spell some of these differently: both are taken."""

    start_time: str = ""
    start: str = ""
    end_time: str = ""
    end: str = ""
    types: str = ""
    type: str = ""
    user: str = ""
    resource: str = ""
    result: str = ""
    search: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    offset: Count = 0


class ExportQuery(EventsQuery, frozen=True, kw_only=True):
    format: Literal["json", "csv"] = "json"


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    start_time: str = ""
    end_time: str = ""
    event_types: list[str] = []
    user: str = ""
    resource: str = ""
    result: str = ""
    search: str = ""
    limit: Count = 0  # Zero: all.
    offset: Count = 0


class Export(msgspec.Struct, frozen=True, kw_only=True):
    filter: Filter = Filter()
    format: Literal["json", "csv"] = "json"


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    timestamp: str
    type: str
    user: str
    client_ip: str
    resource: str
    action: str
    result: str
    details: Mapping[str, Any]  # Any: JSON.
    node_id: str


class Events(msgspec.Struct, frozen=True, kw_only=True):
    events: list[AuditEvent]
    total_count: int
    has_more: bool


async def list_events(call: Call, params: EventsQuery) -> Events:
    events: list[AuditEvent] = []
    total, has_more = 0, False
    async for event in _events(call, _filter(params)):
        if total >= params.offset + params.limit:
            has_more = True
            break
        total += 1
        if total > params.offset:
            events.append(_view(event))
    return Events(events=events, total_count=total, has_more=has_more)


async def export(call: Call, params: ExportQuery) -> RawReply:
    is_limited = any(name == "limit" for name, _ in call.query)
    return await _exported(call, _filter(params, is_limited=is_limited), params.format)


async def export_posted(call: Call, params: Params, body: Export) -> RawReply:
    return await _exported(call, body.filter, body.format)


async def _exported(call: Call, chosen: Filter, form: str) -> RawReply:
    parts: list[bytes] = []
    size = at = 0
    async for event in _events(call, chosen):
        at += 1
        if at <= chosen.offset:
            continue
        if chosen.limit and at > chosen.offset + chosen.limit:
            break
        view = _view(event)
        part = msgspec.json.encode(view) if form == "json" else csv_lines([_cells(view)])
        size += len(part) + 1
        if size > EXPORT_BYTES_MAX:
            raise HttpProblem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "export_too_large",
                f"the export is larger than {EXPORT_BYTES_MAX} bytes: choose an earlier end or a "
                "limit, or take /v1/audit/export",
            )
        parts.append(part)
    name = f"attachment; filename=audit.{form}"
    if form == "json":
        body = b"[" + b",".join(parts) + b"]"
        return RawReply(body, JSON_TYPE, headers={"Content-Disposition": name})
    head = csv_lines([AuditEvent.__struct_fields__])
    return RawReply(head + b"".join(parts), CSV_TYPE, headers={"Content-Disposition": name})


async def _events(call: Call, chosen: Filter) -> AsyncIterator[Event]:
    now_ms = call.services.clock.now_ms()
    query = AuditQuery(
        _time(chosen.start_time, now_ms, "start_time"),
        _time(chosen.end_time, now_ms, "end_time"),
        tuple(chosen.event_types),
        chosen.user,
        chosen.resource,
        chosen.result,
        chosen.search,
    )
    async for page in all_pages(call.services.audit, call.session, query):
        for each in page.events:
            if each.event is not None:
                yield each.event


def _filter(params: EventsQuery, *, is_limited: bool = True) -> Filter:
    types = params.types or params.type
    return Filter(
        start_time=params.start_time or params.start,
        end_time=params.end_time or params.end,
        event_types=[word.strip() for word in types.split(",") if word.strip()],
        user=params.user,
        resource=params.resource,
        result=params.result,
        search=params.search,
        limit=params.limit if is_limited else 0,
        offset=params.offset,
    )


def _time(text: str, now_ms: int, name: str) -> int:
    return 0 if not text else parse_place(text, now_ms, name).timestamp_ms or 0


def _view(event: Event) -> AuditEvent:
    data = event.data
    return AuditEvent(
        id=event.id,
        timestamp=event.time,
        type=data.event,
        user=data.principal.partition(":")[2],
        client_ip=data.address,
        resource=data.resource,
        action=data.action or data.operation,
        result=data.result,
        details={"count": data.count, **data.details},
        node_id=str(data.node),
    )


def _cells(view: AuditEvent) -> list[str]:
    values = msgspec.structs.astuple(view)
    return [
        value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in values
    ]


_READ = (Right("READ", f"topic:{AUDIT_TOPIC}"),)

ROUTES = (
    route(
        "GET",
        "/audit/events",
        list_events,
        "Events, newest first",
        params=EventsQuery,
        reply=Events,
        rights=_READ,
    ),
    route(
        "GET",
        "/audit/export",
        export,
        "Events as a file",
        params=ExportQuery,
        rights=_READ,
        is_raw=True,
    ),
    route(
        "POST",
        "/audit/export",
        export_posted,
        "Events as a file",
        body=Export,
        rights=_READ,
        is_raw=True,
        example={"format": "csv"},
    ),
)
