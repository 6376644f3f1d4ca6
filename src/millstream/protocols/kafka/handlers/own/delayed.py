"""Handlers of delayed records, for clients that know Millstream: list, look at, cancel.

Owns the translation. How many one answer has is the engine's to say.
"""

from millstream.errors import InvalidRequest, RequestError
from millstream.kafka_wire.apis.millstream import (
    CancelDelayedRequest,
    CancelDelayedResponse,
    DescribeDelayedRequest,
    DescribeDelayedResponse,
    ListDelayedRequest,
    ListDelayedResponse,
)
from millstream.kafka_wire.error_codes import code_for
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler

_Header = DescribeDelayedResponse.Header
_Delayed = ListDelayedResponse.Delayed


async def list_delayed(context: Context, request: ListDelayedRequest) -> ListDelayedResponse:
    try:
        if request.count_max < 1:
            raise InvalidRequest(f"{request.count_max} delayed records cannot be listed")
        page = await context.broker.delayed.list(
            context.session, request.topic, after=request.after, count=request.count_max
        )
    except RequestError as problem:
        return ListDelayedResponse(error_code=code_for(problem), error_message=str(problem))
    return ListDelayedResponse(
        delayed=[
            _Delayed(id=name, topic=target.topic, partition=target.partition, due_ms=due_ms)
            for name, target, due_ms in page.delayed
        ],
        next_after=page.next_after,
    )


async def describe_delayed(
    context: Context, request: DescribeDelayedRequest
) -> DescribeDelayedResponse:
    try:
        described, record = await context.broker.delayed.describe(context.session, request.id)
    except RequestError as problem:
        return DescribeDelayedResponse(error_code=code_for(problem), error_message=str(problem))
    return DescribeDelayedResponse(
        topic=described.target.topic,
        partition=described.target.partition,
        due_ms=described.due_ms,
        key=record.key,
        value=record.value,
        headers=[_Header(name=name, value=value) for name, value in record.headers],
    )


async def cancel_delayed(context: Context, request: CancelDelayedRequest) -> CancelDelayedResponse:
    try:
        gone = await context.broker.delayed.cancel(context.session, request.id)
    except RequestError as problem:
        return CancelDelayedResponse(error_code=code_for(problem), error_message=str(problem))
    return CancelDelayedResponse(
        topic=gone.target.topic, partition=gone.target.partition, due_ms=gone.due_ms
    )


HANDLERS: dict[int, Handler] = {
    10_008: list_delayed,
    10_009: describe_delayed,
    10_010: cancel_delayed,
}
