"""Handlers of encryption at rest, for clients that know Millstream."""

from millstream.engine.encryption import RotatedKeys
from millstream.errors import InvalidRequest, RequestError
from millstream.kafka_wire.apis.rights import (
    AlterEncryptionRequest,
    AlterEncryptionResponse,
    DescribeEncryptionRequest,
    DescribeEncryptionResponse,
)
from millstream.kafka_wire.error_codes import code_for
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler

REWRITE, REQUIRE, LIFT = 3, 4, 5
ROTATED: dict[int, RotatedKeys] = {0: "data", 1: "root", 2: "master"}


async def describe_encryption(
    context: Context, _request: DescribeEncryptionRequest
) -> DescribeEncryptionResponse:
    try:
        state = await context.broker.encryption.describe(context.session)
    except RequestError as problem:
        return DescribeEncryptionResponse(error_code=code_for(problem), error_message=str(problem))
    return DescribeEncryptionResponse(
        mode=state.mode,
        key_name=state.key_name,
        check=state.check,
        is_root_due=state.is_root_due,
        clear_bytes=state.clear_bytes,
        rewriting_count=state.rewriting_count,
        keys=[
            DescribeEncryptionResponse.Key(
                id=key.id, topic=key.topic, made_ms=key.made_ms, size_bytes=key.size_bytes
            )
            for key in state.keys
        ],
        is_required=state.is_required,
    )


async def alter_encryption(
    context: Context, request: AlterEncryptionRequest
) -> AlterEncryptionResponse:
    encryption, session = context.broker.encryption, context.session
    try:
        if request.action == REWRITE:
            return AlterEncryptionResponse(count=await encryption.rewrite(session))
        if request.action in (REQUIRE, LIFT):
            await encryption.require(session, is_required=request.action == REQUIRE)
            return AlterEncryptionResponse()
        keys = ROTATED.get(request.action)
        if keys is None:
            raise InvalidRequest(f"there is no action {request.action}")
        return AlterEncryptionResponse(count=await encryption.rotate(session, keys))
    except RequestError as problem:
        return AlterEncryptionResponse(error_code=code_for(problem), error_message=str(problem))


HANDLERS: dict[int, Handler] = {10_030: describe_encryption, 10_031: alter_encryption}
