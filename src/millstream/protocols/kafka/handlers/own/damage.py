"""Handlers of damaged records, for clients that know Millstream: list them, give some up."""

from millstream.errors import RequestError
from millstream.kafka_wire.apis.millstream import (
    ListDamageRequest,
    ListDamageResponse,
    SkipDamageRequest,
    SkipDamageResponse,
)
from millstream.kafka_wire.error_codes import code_for
from millstream.model import TopicPartition
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler


async def list_damage(context: Context, _request: ListDamageRequest) -> ListDamageResponse:
    try:
        damaged = await context.broker.repairs.list(context.session)
    except RequestError as problem:
        return ListDamageResponse(error_code=code_for(problem), error_message=str(problem))
    return ListDamageResponse(
        damaged=[
            ListDamageResponse.Damaged(
                topic=at.topic,
                partition=at.partition,
                base_offset=bad.base_offset,
                end_offset=bad.end_offset,
                file=bad.path,
                position=bad.position,
                size=bad.size,
                reason=bad.reason,
            )
            for at, bad in damaged.damaged
        ],
        skipped=[
            ListDamageResponse.Skipped(
                topic=at.topic,
                partition=at.partition,
                base_offset=gone.base_offset,
                end_offset=gone.end_offset,
                file=gone.file,
                position=gone.position,
                size=gone.size,
                reason=gone.reason,
                time_ms=gone.time_ms,
                kept_in=gone.kept_in,
            )
            for at, gone in damaged.skipped
        ],
        closed=[
            ListDamageResponse.Closed(topic=at.topic, partition=at.partition, problem=why)
            for at, why in damaged.closed
        ],
        scrub_bytes_per_second=damaged.scrub_bytes_per_second,
        scrub_started_ms=damaged.scrub.pass_started_ms,
        scrub_last_full_pass_ms=damaged.scrub.last_full_pass_ms,
        scrub_bytes=damaged.scrub.pass_bytes,
    )


async def skip_damage(context: Context, request: SkipDamageRequest) -> SkipDamageResponse:
    target = TopicPartition(request.topic, request.partition)
    try:
        gone = await context.broker.repairs.skip(context.session, target, request.offset)
    except RequestError as problem:
        return SkipDamageResponse(error_code=code_for(problem), error_message=str(problem))
    return SkipDamageResponse(
        base_offset=gone.base_offset,
        end_offset=gone.end_offset,
        file=gone.file,
        position=gone.position,
        size=gone.size,
        reason=gone.reason,
        time_ms=gone.time_ms,
        kept_in=gone.kept_in,
    )


HANDLERS: dict[int, Handler] = {10_018: list_damage, 10_019: skip_damage}
