"""Handlers of users, for clients that know Millstream: describe, alter, who am I."""

import asyncio
from typing import Literal

from millstream.control.access import SCRAM_MECHANISMS, User
from millstream.control.commands import UserChange
from millstream.engine.sasl.scram import credential_of
from millstream.errors import InvalidRequest, RequestError
from millstream.errors.access import UnacceptableCredential
from millstream.kafka_wire.apis.users import (
    EXISTING,
    KEEP,
    NEW,
    AlterUsersRequest,
    AlterUsersResponse,
    DescribeUsersRequest,
    DescribeUsersResponse,
    WhoAmIRequest,
    WhoAmIResponse,
)
from millstream.kafka_wire.error_codes import code_for, control_code_for
from millstream.model import NEVER_EXPIRES
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler
from millstream.protocols.kafka.handlers.security import MECHANISMS, check_salted

_Described = DescribeUsersResponse.User
_Change = AlterUsersRequest.Change
_EXISTENCE: dict[int, Literal["new", "existing"]] = {NEW: "new", EXISTING: "existing"}
_Result = AlterUsersResponse.Result


async def describe_users(context: Context, request: DescribeUsersRequest) -> DescribeUsersResponse:
    users, session = context.broker.users, context.session
    if request.names is None:
        try:
            return DescribeUsersResponse(users=[_described(user) for user in users.list(session)])
        except RequestError as problem:
            return DescribeUsersResponse(error_code=code_for(problem), error_message=str(problem))
    described = []
    for name in dict.fromkeys(request.names):
        try:
            described.append(_described(users.describe(session, name)))
        except RequestError as problem:
            described.append(
                _Described(name=name, error_code=code_for(problem), error_message=str(problem))
            )
    return DescribeUsersResponse(users=described)


async def alter_users(context: Context, request: AlterUsersRequest) -> AlterUsersResponse:
    results = []
    for change in request.changes:
        try:
            await _alter(context, change)
            results.append(_Result(name=change.name))
        except RequestError as problem:
            code, text = control_code_for(problem), str(problem)
            results.append(_Result(name=change.name, error_code=code, error_message=text))
    return AlterUsersResponse(results=results)


def who_am_i(context: Context, request: WhoAmIRequest) -> WhoAmIResponse:
    session = context.session
    left_ms = -1
    if session.expires_at != NEVER_EXPIRES:
        left_ms = max(0, int((session.expires_at - asyncio.get_running_loop().time()) * 1000))
    return WhoAmIResponse(
        principal=str(session.principal),
        roles=list(context.broker.users.access.roles_of(session)),
        mechanism=session.mechanism,
        listener=session.listener,
        is_tls=session.is_tls,
        address=session.address,
        session_lifetime_ms=left_ms,
    )


async def _alter(context: Context, change: _Change) -> None:
    users, session = context.broker.users, context.session
    if change.old_password is not None:
        await users.change_own_password(session, change.old_password, _user_change(change))
        return
    refusals = await users.alter(session, [_user_change(change)])
    for refusal in refusals.values():
        raise refusal
    if change.disconnects:
        users.disconnect(session, change.name)


def _user_change(change: _Change) -> UserChange:
    credentials = {}
    if change.removes_credentials:
        credentials = dict.fromkeys(SCRAM_MECHANISMS, None)
    made = {}
    for credential in change.credentials:
        if credential.mechanism not in MECHANISMS:
            raise InvalidRequest(f"there is no SCRAM mechanism {credential.mechanism}")
        refusal = check_salted(credential)
        if refusal is not None:
            raise UnacceptableCredential(refusal)
        mechanism = MECHANISMS[credential.mechanism]
        made[mechanism] = credential_of(
            mechanism,
            bytes(credential.salted_password),
            salt=bytes(credential.salt),
            iterations=credential.iterations,
        )
    return UserChange(
        name=change.name,
        existence=_EXISTENCE.get(change.existence, "any"),
        is_deleted=change.is_deleted,
        roles=None if change.roles is None else tuple(change.roles),
        is_enabled=None if change.enabled == KEEP else bool(change.enabled),
        credentials={**credentials, **made},
    )


def _described(user: User) -> _Described:
    return _Described(
        name=user.name,
        roles=list(user.roles),
        is_enabled=user.is_enabled,
        mechanisms=sorted(user.credentials),
        created_ms=user.created_ms,
        updated_ms=user.updated_ms,
    )


HANDLERS: dict[int, Handler] = {
    10_011: describe_users,
    10_012: alter_users,
    10_017: who_am_i,
}
