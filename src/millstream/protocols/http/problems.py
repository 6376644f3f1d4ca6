"""Errors as HTTP answers: the status of each error of the engine, and the bodies that carry it.

`ERRORS` has a row for every `RequestError`; a test holds it complete. Each API has a shape of its
own for error bodies: RFC 9457 for ours, and those of FlyMQ and Confluent for theirs.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from millstream import errors
from millstream.base_error import MillstreamError
from millstream.errors import access, cluster, delayed, deliveries, groups, schemas, views

RETRY_AFTER_MS: Final = 1_000
PROBLEM_TYPE: Final = "application/problem+json"

_400, _401, _403 = HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN
_404, _409 = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
_413, _422 = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY
_429, _503 = HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE

# Subclasses have their parent's row unless they have their own.
ERRORS: Final[Mapping[type[MillstreamError], HTTPStatus]] = MappingProxyType(
    {
        errors.InvalidRequest: _422,
        errors.InvalidTopicName: _422,
        errors.UnknownTopic: _404,
        errors.TopicExists: _409,
        errors.TopicNameCollides: _409,
        errors.InternalTopic: _403,
        errors.InvalidPartitions: _422,
        errors.InvalidReplication: _422,
        errors.InvalidPlacement: _422,
        errors.InvalidSetting: _422,
        errors.InvalidBatch: _422,
        errors.InvalidRecords: _422,
        errors.DelayTooLong: _422,
        errors.CorruptBatch: _422,
        errors.BatchTooLarge: _413,
        errors.UnpackedTooLarge: _413,
        errors.UnsupportedCompression: _422,
        errors.InvalidTimestamp: _422,
        errors.OutOfOrderSequence: _409,
        errors.StaleProducerEpoch: _409,
        errors.StaleCoordinatorEpoch: _409,
        errors.InvalidTransactionState: _409,
        errors.ProducerFenced: _409,
        errors.UnknownProducer: _404,
        errors.TransactionInProgress: _503,
        errors.InvalidTransactionTimeout: _422,
        errors.TransactionNotFound: _404,
        errors.NotAttempted: _409,
        errors.OffsetOutOfRange: _422,
        errors.NotLeader: _503,
        errors.StaleLeaderEpoch: _503,
        errors.UnknownLeaderEpoch: _503,
        errors.ChangeRefused: _409,
        errors.NotEnoughReplicas: _503,
        errors.NotEnoughReplicasAfterAppend: _503,
        errors.TimedOut: HTTPStatus.GATEWAY_TIMEOUT,
        errors.PeerUnreachable: _503,
        errors.CallRefused: _503,
        errors.LeaderNotReady: _503,
        errors.Overloaded: _503,
        errors.StorageUnavailable: _503,
        errors.DamagedRecords: _503,
        errors.Denied: _403,
        errors.PolicyViolation: _422,
        errors.QuotaExceeded: _429,
        errors.NotCoordinator: _503,
        errors.CoordinatorLoading: _503,
        errors.CoordinatorUnavailable: _503,
        errors.NoSpace: HTTPStatus.INSUFFICIENT_STORAGE,
        errors.StorageError: _503,
        access.UnknownUser: _404,
        access.UserExists: _409,
        access.DuplicateUser: _422,
        access.UnknownRole: _404,
        access.LoginFailed: _401,
        access.LoginRequired: _401,
        access.UnacceptableCredential: _422,
        access.UnsupportedPrincipal: _422,
        access.TooManyAcls: _409,
        access.AuthorizationOff: _409,
        cluster.UnknownNode: _404,
        cluster.NodeRefused: _409,
        cluster.LevelRefused: _409,
        cluster.NoMove: _409,
        cluster.InvalidInvitation: _403,
        cluster.UnknownInvitation: _404,
        cluster.UnknownOutcome: HTTPStatus.GATEWAY_TIMEOUT,
        groups.InvalidGroupId: _422,
        groups.GroupNotFound: _404,
        groups.GroupNotEmpty: _409,
        groups.GroupSubscribed: _409,
        groups.GroupFull: _409,
        groups.UnknownMember: _404,
        groups.MemberIdRequired: _409,
        groups.FencedInstance: _409,
        groups.StaleGeneration: _409,
        groups.StaleMemberEpoch: _409,
        groups.FencedMember: _409,
        groups.UnreleasedInstance: _409,
        groups.UnsupportedAssignor: _422,
        groups.InvalidPattern: _422,
        groups.RebalanceInProgress: _503,
        groups.InconsistentProtocol: _409,
        groups.UnstableOffset: _503,
        groups.InvalidSessionTimeout: _422,
        groups.OffsetMetadataTooLarge: _413,
        views.InvalidFilter: _422,
        views.ReadOnlyView: _409,
        views.HasViews: _409,
        deliveries.InvalidSubject: _422,
        deliveries.InvalidSubscription: _422,
        deliveries.SubscriptionExists: _409,
        deliveries.UnknownSubscription: _404,
        deliveries.UnknownDeadLetter: _404,
        delayed.UnknownDelayedRecord: _404,
        schemas.SchemaRefused: _422,
    }
)


class Problem(NamedTuple):
    """An error as it is answered."""

    status: HTTPStatus
    error: str  # In snake_case: `unknown_topic`.
    message: str
    retriable: bool = False
    retry_after_ms: int = 0  # 0: not said.
    fields: tuple[str, ...] = ()  # Places in the request: `$.partitions`.
    code: int = 0  # Of APIs that number their errors; 0: the status.
    headers: Mapping[str, str] = MappingProxyType({})


class HttpProblem(errors.RequestError):
    """Refused by HTTP itself, before or beside the engine."""

    def __init__(
        self,
        status: HTTPStatus,
        error: str,
        message: str,
        *,
        retry_after_ms: int = 0,
        fields: tuple[str, ...] = (),
        code: int = 0,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        is_retriable = retry_after_ms > 0
        self.problem = Problem(
            status, error, message, is_retriable, retry_after_ms, fields, code, headers
        )


def problem_of(error: MillstreamError) -> Problem:
    """The answer to an error of the engine."""
    if isinstance(error, HttpProblem):
        return error.problem
    status = next(
        (ERRORS[kind] for kind in type(error).__mro__ if kind in ERRORS),
        HTTPStatus.INTERNAL_SERVER_ERROR,
    )
    if isinstance(error, schemas.SchemaRefused):
        status = HTTPStatus(error.code.status)
    is_retriable = bool(getattr(error, "retriable", getattr(error, "is_transient", False)))
    waits = status in {_503, _429} and is_retriable
    return Problem(
        status,
        _snake_case(type(error).__name__),
        str(error),
        is_retriable,
        RETRY_AFTER_MS if waits else 0,
        fields=tuple(getattr(error, "fields", ())),
        code=int(getattr(error, "error_code", 0)),
    )


def problem_details(problem: Problem, request_id: str) -> tuple[str, bytes]:
    """RFC 9457, with members that programs read."""
    # Any: members of several types.
    members: dict[str, Any] = {
        "type": f"/errors/{problem.error}",
        "title": problem.status.phrase,
        "status": problem.status.value,
        "detail": problem.message,
        "instance": request_id,
        "error": problem.error,
        "message": problem.message,
        "retriable": problem.retriable,
    }
    if problem.retry_after_ms:
        members["retry_after_ms"] = problem.retry_after_ms
    if problem.fields:
        members["fields"] = problem.fields
    return PROBLEM_TYPE, msgspec.json.encode(members)


def numbered_error(problem: Problem, request_id: str) -> tuple[str, bytes]:
    """Confluent's: `{"error_code", "message"}`; the registry's media type is `Accept`'s affair."""
    code = problem.code or problem.status.value
    return "application/json", msgspec.json.encode({"error_code": code, "message": problem.message})


# By the names of errors; any other one has its status as its number.
_REGISTRY_CODES: Final = MappingProxyType(
    {
        "storage_unavailable": 50001,
        "no_space": 50001,
        "damaged_records": 50001,
        "timed_out": 50002,
        "overloaded": 50002,
        "not_leader": 50004,
        "leader_not_ready": 50004,
        "not_coordinator": 50004,
        "coordinator_loading": 50004,
        "coordinator_unavailable": 50004,
    }
)


def registry_error(problem: Problem, request_id: str) -> tuple[str, bytes]:
    """Confluent's registry: the same body, with its media type and its own numbers."""
    code = problem.code or _REGISTRY_CODES.get(problem.error, problem.status.value)
    body = msgspec.json.encode({"error_code": code, "message": problem.message})
    return "application/vnd.schemaregistry.v1+json", body


def flymq_error(problem: Problem, request_id: str) -> tuple[str, bytes]:
    """FlyMQ's: `{"error"}`."""
    return "application/json", msgspec.json.encode({"error": problem.message})


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
