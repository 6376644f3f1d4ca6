"""Handlers of batch groups, an API that only Millstream has, for clients that know it.

Translates between the requests and the engine's batch groups. ApiVersions leaves these keys out
for other clients, so the keys cannot collide with theirs.
"""

from millstream.errors import InvalidRequest, RequestError
from millstream.internal_topics.batch_groups import Ending
from millstream.kafka_wire.apis.millstream import (
    BeginBatchRequest,
    BeginBatchResponse,
    EndBatchRequest,
    EndBatchResponse,
    RenewBatchRequest,
    RenewBatchResponse,
)
from millstream.kafka_wire.error_codes import code_for
from millstream.model import Producer
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler


async def begin_batch(context: Context, request: BeginBatchRequest) -> BeginBatchResponse:
    try:
        opened = await context.broker.batch_groups.begin(context.session, request.group)
    except RequestError as problem:
        return BeginBatchResponse(error_code=code_for(problem), error_message=str(problem))
    return BeginBatchResponse(
        term=opened.term, series=opened.series, last_committed_batch=opened.last_committed_batch
    )


async def end_batch(context: Context, request: EndBatchRequest) -> EndBatchResponse:
    members = {
        member.transactional_id: Producer(member.producer_id, member.producer_epoch)
        for member in request.members
    }
    try:
        if len(members) != len(request.members):
            raise InvalidRequest("a transaction is named twice in a batch")
        ending = Ending(request.term, request.series, request.batch_id, members)
        await context.broker.batch_groups.end(
            context.session, request.group, ending, commits=request.committed
        )
    except RequestError as problem:
        return EndBatchResponse(error_code=code_for(problem), error_message=str(problem))
    return EndBatchResponse()


async def renew_batch(context: Context, request: RenewBatchRequest) -> RenewBatchResponse:
    producer = Producer(request.producer_id, request.producer_epoch)
    name = request.transactional_id
    members = {} if name is None else {name: producer}
    try:
        await context.broker.batch_groups.renew(
            context.session, request.group, request.term, members
        )
    except RequestError as problem:
        return RenewBatchResponse(error_code=code_for(problem), error_message=str(problem))
    return RenewBatchResponse()


HANDLERS: dict[int, Handler] = {10_000: begin_batch, 10_001: end_batch, 10_022: renew_batch}
