"""Handlers of SASL outside of a login, and of SCRAM credentials (KIP-554).

A listener with SASL answers SaslHandshake and SaslAuthenticate itself while a client logs in, see
`protocols.kafka.login`; what reaches these handlers comes at the wrong time.
"""

from collections import Counter
from typing import Protocol

from millstream.control.access import User
from millstream.control.commands import Credential, UserChange
from millstream.engine.sasl.scram import credential_of
from millstream.errors import RequestError
from millstream.kafka_wire.apis.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode, code_for, control_code_for
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler
from millstream.security.settings import ITERATIONS_MAX, ITERATIONS_MIN

# Numbers of KIP-554.
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS = {name: number for number, name in MECHANISMS.items()}
SALT_BYTES_MAX = 1_024
_SALTED_BYTES = {1: 32, 2: 64}

_Described = DescribeUserScramCredentialsResponse.Result
_Altered = AlterUserScramCredentialsResponse.Result
_Upsertion = AlterUserScramCredentialsRequest.Upsertion
_Deletion = AlterUserScramCredentialsRequest.Deletion
_Refusal = tuple[ErrorCode, str]


def sasl_handshake(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


def sasl_authenticate(
    context: Context, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    text = "SaslAuthenticate request received after successful authentication"
    if not context.session.mechanism:
        text = "this listener has no SASL"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=text)


async def describe_scram_credentials(
    context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    try:
        known = {user.name: user for user in context.broker.users.list(context.session)}
    except RequestError as problem:
        return DescribeUserScramCredentialsResponse(
            error_code=code_for(problem), error_message=str(problem), results=[]
        )
    holders = {name: user for name, user in known.items() if user.credentials}
    if not request.users:
        return DescribeUserScramCredentialsResponse(
            results=[_described(user) for user in holders.values()]
        )
    counts = Counter(user.name for user in request.users)
    results = []
    for name, count in counts.items():
        if count > 1:
            text = f"Cannot describe SCRAM credentials for the same user twice: {name}"
            results.append(_undescribed(name, ErrorCode.DUPLICATE_RESOURCE, text))
        elif name not in holders:
            text = f"Attempt to describe a user credential that does not exist: {name}"
            results.append(_undescribed(name, ErrorCode.RESOURCE_NOT_FOUND, text))
        else:
            results.append(_described(holders[name]))
    return DescribeUserScramCredentialsResponse(results=results)


async def alter_scram_credentials(
    context: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Each user's outcome is its own; all that can be done is one command."""
    parts: list[_Deletion | _Upsertion] = [*request.deletions, *request.upsertions]
    names = list(dict.fromkeys(part.name for part in parts))
    try:
        known = {user.name: user for user in context.broker.users.list(context.session)}
        counts = Counter(part.name for part in parts)
        refusals: dict[str, _Refusal] = {}
        changes: dict[str, UserChange] = {}
        for part in parts:
            refusal = _refusal_of(part, counts[part.name], known)
            if refusal is None:
                changes[part.name] = _change(part)
            else:
                refusals[part.name] = refusal
        refused = await context.broker.users.alter(context.session, list(changes.values()))
        altered = list(changes)
        for place, problem in refused.items():
            refusals[altered[place]] = (control_code_for(problem), str(problem))
    except RequestError as problem:
        refusals = dict.fromkeys(names, (control_code_for(problem), str(problem)))
    return AlterUserScramCredentialsResponse(
        results=[
            _Altered(user=name, error_code=refusals[name][0], error_message=refusals[name][1])
            if name in refusals
            else _Altered(user=name)
            for name in names
        ]
    )


def _refusal_of(
    part: _Deletion | _Upsertion, count: int, known: dict[str, User]
) -> _Refusal | None:
    if not part.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if count > 1:
        text = "A user credential cannot be altered twice in the same request"
        return ErrorCode.DUPLICATE_RESOURCE, text
    mechanism = MECHANISMS.get(part.mechanism)
    if mechanism is None:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if isinstance(part, _Deletion):
        user = known.get(part.name)
        if user is None or mechanism not in user.credentials:
            text = "Attempt to delete a user credential that does not exist"
            return ErrorCode.RESOURCE_NOT_FOUND, text
        return None
    problem = check_salted(part)
    return None if problem is None else (ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)


class Salted(Protocol):
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


def check_salted(part: Salted) -> str | None:
    """Say what is wrong with a password that a client has salted."""
    if part.iterations < ITERATIONS_MIN:
        return "Too few iterations"
    if part.iterations > ITERATIONS_MAX:
        return "Too many iterations"
    if not 1 <= len(part.salt) <= SALT_BYTES_MAX:
        return "The salt is empty or too long"
    if len(part.salted_password) != _SALTED_BYTES[part.mechanism]:
        return "The salted password has a wrong length"
    return None


def _change(part: _Deletion | _Upsertion) -> UserChange:
    mechanism = MECHANISMS[part.mechanism]
    credential: Credential | None = None
    if isinstance(part, _Upsertion):
        credential = credential_of(
            mechanism,
            bytes(part.salted_password),
            salt=bytes(part.salt),
            iterations=part.iterations,
        )
    return UserChange(
        name=part.name,
        existence="any" if credential else "existing",
        credentials={mechanism: credential},
    )


def _described(user: User) -> _Described:
    return _Described(
        user=user.name,
        credential_infos=[
            _Described.CredentialInfo(mechanism=_NUMBERS[name], iterations=credential.iterations)
            for name, credential in sorted(user.credentials.items())
        ],
    )


def _undescribed(name: str, code: ErrorCode, text: str) -> _Described:
    return _Described(user=name, error_code=code, error_message=text, credential_infos=[])


HANDLERS: dict[int, Handler] = {
    17: sasl_handshake,
    36: sasl_authenticate,
    50: describe_scram_credentials,
    51: alter_scram_credentials,
}
