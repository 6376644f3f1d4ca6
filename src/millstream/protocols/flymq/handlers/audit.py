"""Handlers of the audit trail: queries and exports, in FlyMQ's shape.

FlyMQ counts matching events and pages by number; the trail is read backwards only as far as the
page needs, so `total` counts what was looked at, and `has_more` says that there is more.
"""

from collections.abc import AsyncIterator

import msgspec

from millstream.engine.audit.trail import AuditQuery, all_pages
from millstream.errors import InvalidRequest
from millstream.names import AUDIT_TOPIC
from millstream.protocols.flymq.context import Context
from millstream.protocols.flymq.gateway import Handler
from millstream.protocols.flymq.wire import user_bodies
from millstream.protocols.flymq.wire.frames import Opcode
from millstream.security.audit_events import Event

LIMIT = 100  # Where a query names none.
EXPORT_BYTES_MAX = 16 * 2**20  # Of one answer; a client reads the older ones with an earlier end.
_COLUMNS = (
    *("ID", "Timestamp", "Type", "User", "ClientIP", "Resource", "Action", "Result", "NodeID"),
    "Details",
)


async def query(context: Context, request: user_bodies.AuditQuery) -> user_bodies.AuditEvents:
    skipped, limit = max(0, request.offset), request.limit if request.limit > 0 else LIMIT
    events: list[user_bodies.AuditEvent] = []
    total, has_more = 0, False
    async for event in _events(context, request):
        if total >= skipped + limit:
            has_more = True
            break
        total += 1
        if total > skipped:
            events.append(_event(event))
    return user_bodies.AuditEvents(tuple(events), total, has_more)


async def export(context: Context, request: user_bodies.ExportAudit) -> user_bodies.AuditExport:
    """All matching events unless a limit is given, as a JSON array or CSV."""
    form = request.format or "json"
    # Rights come before everything else that may be wrong.
    await context.services.audit.query(context.session, AuditQuery(), events_max=1)
    if form not in {"json", "csv"}:
        raise InvalidRequest(f"the format {form[:20]!r} is neither json nor csv")
    skipped, limit = max(0, request.query.offset), max(0, request.query.limit)
    parts: list[bytes] = []
    size = at = 0
    async for event in _events(context, request.query):
        at += 1
        if at <= skipped:
            continue
        if limit and at > skipped + limit:
            break
        part = _json(event) if form == "json" else _csv(event)
        size += len(part) + 1
        if size > EXPORT_BYTES_MAX:
            raise InvalidRequest(
                f"the export is larger than {EXPORT_BYTES_MAX} bytes; choose an earlier end, a "
                f"limit, or read the topic {AUDIT_TOPIC}"
            )
        parts.append(part)
    if form == "json":
        return user_bodies.AuditExport(form, b"[" + b",".join(parts) + b"]")
    return user_bodies.AuditExport(form, ",".join(_COLUMNS).encode() + b"\r\n" + b"".join(parts))


async def _events(context: Context, request: user_bodies.AuditQuery) -> AsyncIterator[Event]:
    query = AuditQuery(
        request.start_s * 1000,
        request.end_s * 1000,
        request.kinds,
        request.user,
        request.resource,
        request.result,
        request.search,
    )
    async for page in all_pages(context.services.audit, context.session, query):
        for each in page.events:
            if each.event is not None:
                yield each.event


def _event(event: Event) -> user_bodies.AuditEvent:
    data = event.data
    return user_bodies.AuditEvent(
        event.id,
        event.at_ms,
        data.event,
        data.principal.partition(":")[2],
        data.address,
        data.resource,
        data.action or data.operation,
        data.result,
        str(data.node),
        tuple(
            user_bodies.AuditDetail(key, value if isinstance(value, str) else _text(value))
            for key, value in {"count": data.count, **data.details}.items()
        ),
    )


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _json(event: Event) -> bytes:
    shown = _event(event)
    return msgspec.json.encode(
        {
            "id": shown.id,
            "timestamp": event.time,
            "type": shown.kind,
            "user": shown.user,
            "client_ip": shown.address,
            "resource": shown.resource,
            "action": shown.action,
            "result": shown.result,
            "details": dict(shown.details),
            "node_id": shown.node_id,
        }
    )


def _csv(event: Event) -> bytes:
    shown = _event(event)
    details = "; ".join(f"{key}={value}" for key, value in shown.details)
    cells = (shown.id, event.time, shown.kind, shown.user, shown.address, shown.resource)
    return _line((*cells, shown.action, shown.result, shown.node_id, details))


def _line(cells: tuple[str, ...]) -> bytes:
    """A line of CSV (RFC 4180)."""
    quoted = (f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in cells[1:])
    return ",".join([cells[0], *quoted]).encode() + b"\r\n"


HANDLERS: dict[Opcode, Handler] = {Opcode.AUDIT_QUERY: query, Opcode.AUDIT_EXPORT: export}
