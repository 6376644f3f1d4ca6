"""Handler of queries of the audit trail, for clients that know Millstream."""

from millstream.engine.audit.trail import AuditQuery
from millstream.errors import RequestError
from millstream.kafka_wire.apis.rights import QueryAuditRequest, QueryAuditResponse
from millstream.kafka_wire.error_codes import control_code_for
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler


async def query_audit(context: Context, request: QueryAuditRequest) -> QueryAuditResponse:
    query = AuditQuery(
        request.start_ms,
        request.end_ms,
        tuple(request.events),
        request.principal,
        request.resource,
        request.result,
        request.search,
    )
    audit = context.broker.audit
    ask = audit.follow if request.is_forward else audit.query
    try:
        page = await ask(
            context.session, query, events_max=max(0, request.limit), cursor=request.cursor
        )
    except RequestError as problem:
        return QueryAuditResponse(error_code=control_code_for(problem), error_message=str(problem))
    return QueryAuditResponse(
        events=[
            QueryAuditResponse.StoredEvent(
                partition=each.partition, offset=each.offset, value=each.value
            )
            for each in page.events
        ],
        cursor=page.cursor,
        starts=page.starts,
    )


HANDLERS: dict[int, Handler] = {10_015: query_audit}
