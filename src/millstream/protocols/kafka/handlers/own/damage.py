"""Handlers for operators of storage: damaged records, and checkpoints for backups."""

from millstream.errors import InvalidRequest, RequestError
from millstream.kafka_wire.apis.millstream import (
    ListDamageRequest,
    ListDamageResponse,
    SkipDamageRequest,
    SkipDamageResponse,
)
from millstream.kafka_wire.apis.rights import (
    AlterCheckpointRequest,
    AlterCheckpointResponse,
    ReadCheckpointRequest,
    ReadCheckpointResponse,
)
from millstream.kafka_wire.error_codes import code_for
from millstream.model import TopicPartition
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler

MAKE, REMOVE = 0, 1  # Actions on a checkpoint.


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


async def alter_checkpoint(
    context: Context, request: AlterCheckpointRequest
) -> AlterCheckpointResponse:
    broker, session = context.broker, context.session
    try:
        if request.action == REMOVE:
            await broker.checkpoints.remove(session)
            return AlterCheckpointResponse()
        if request.action != MAKE:
            raise InvalidRequest(f"there is no action {request.action}")
        data_dir, made = await broker.checkpoints.make(session)
    except RequestError as problem:
        return AlterCheckpointResponse(error_code=code_for(problem), error_message=str(problem))
    return AlterCheckpointResponse(
        id=made.id,
        node_id=broker.config.node_id,
        cluster_id=broker.cluster_id,
        data_dir=data_dir,
        log_count=made.log_count,
        size_bytes=made.size_bytes,
    )


async def read_checkpoint(
    context: Context, request: ReadCheckpointRequest
) -> ReadCheckpointResponse:
    try:
        data = await context.broker.checkpoints.read(
            context.session, request.id, request.path, request.position
        )
    except RequestError as problem:
        return ReadCheckpointResponse(error_code=code_for(problem), error_message=str(problem))
    return ReadCheckpointResponse(data=data)


HANDLERS: dict[int, Handler] = {
    10_018: list_damage,
    10_019: skip_damage,
    10_032: alter_checkpoint,
    10_033: read_checkpoint,
}
