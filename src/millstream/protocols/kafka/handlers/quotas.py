"""Handlers of client quotas: DescribeClientQuotas, AlterClientQuotas.

Owns what the requests mean: how entities are spelled, and which of them a filter matches. On the
wire the default entity is a null name.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum

from millstream.control.quotas import DEFAULT, Entity
from millstream.errors import InvalidRequest, RequestError
from millstream.kafka_wire.apis.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaEntity,
)
from millstream.kafka_wire.error_codes import code_for, control_code_for
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler

# Kafka's words for the parts of an entity, and ours.
_FIELDS = {"user": "user", "client-id": "client_id", "ip": "ip"}

_Described = DescribeClientQuotasResponse.Entry
_Altered = AlterClientQuotasResponse.Entry


class Match(IntEnum):
    """How a filter matches one part of an entity."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


# -- describe ----------------------------------------------------------------------------------


def describe_client_quotas(
    context: Context, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        components = _filter(request.components)
        quotas = context.broker.client_quotas.describe(context.session)
    except RequestError as problem:
        return DescribeClientQuotasResponse(
            error_code=code_for(problem), error_message=str(problem), entries=None
        )
    return DescribeClientQuotasResponse(
        entries=[
            _Described(
                entity=_spelled(entity),
                values=[_Described.Value(key=key, value=rate) for key, rate in limits.items()],
            )
            for entity, limits in quotas.items()
            if _matches(entity, components, is_strict=request.strict)
        ]
    )


def _filter(components: Sequence[DescribeClientQuotasRequest.Component]) -> dict[str, str | None]:
    """By our fields, the name that must be there; None: any."""
    by_type: dict[str, str | None] = {}
    for component in components:
        field = _field(component.entity_type)
        if field in by_type:
            raise InvalidRequest(f"{component.entity_type} is filtered twice")
        if component.match_type not in list(Match):
            raise InvalidRequest(f"there is no match type {component.match_type}")
        if (component.match_type == Match.EXACT) != (component.match is not None):
            raise InvalidRequest("a name belongs to an exact match, and only there")
        by_type[field] = DEFAULT if component.match_type == Match.DEFAULT else component.match
    return by_type


def _matches(entity: Entity, components: Mapping[str, str | None], *, is_strict: bool) -> bool:
    parts = {field: name for field, name in entity._asdict().items() if name is not None}
    if is_strict and parts.keys() != components.keys():
        return False
    return all(
        field in parts and (name is None or parts[field] == name)
        for field, name in components.items()
    )


# -- alter -------------------------------------------------------------------------------------


async def alter_client_quotas(
    context: Context, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    copies = Counter(_identity(entry.entity) for entry in request.entries)
    answers = []
    for entry in request.entries:
        answer = _Altered(entity=entry.entity)
        answers.append(answer)
        try:
            if copies[_identity(entry.entity)] > 1:
                raise InvalidRequest("an entity is altered once in a request")
            await _alter(context, entry, validate_only=request.validate_only)
        except RequestError as problem:
            answer.error_code, answer.error_message = control_code_for(problem), str(problem)
    return AlterClientQuotasResponse(entries=answers)


async def _alter(
    context: Context, entry: AlterClientQuotasRequest.Entry, *, validate_only: bool
) -> None:
    quotas, entity = context.broker.client_quotas, _read(entry.entity)
    changes = {
        operation.key: None if operation.remove else operation.value for operation in entry.ops
    }
    if len(changes) != len(entry.ops):
        raise InvalidRequest("a quota is altered once for an entity")
    if validate_only:
        quotas.check_alter(context.session, entity, changes)
    else:
        await quotas.alter(context.session, entity, changes)


def _identity(parts: Sequence[QuotaEntity]) -> frozenset[tuple[str, str | None]]:
    return frozenset((part.entity_type, part.entity_name) for part in parts)


# -- entities ----------------------------------------------------------------------------------


def _field(entity_type: str) -> str:
    field = _FIELDS.get(entity_type)
    if field is None:
        raise InvalidRequest(
            f"{entity_type[:100]!r} has no quotas here; {' and '.join(_FIELDS)} have"
        )
    return field


def _read(parts: Sequence[QuotaEntity]) -> Entity:
    names: dict[str, str] = {}
    for part in parts:
        field = _field(part.entity_type)
        if field in names:
            raise InvalidRequest(f"an entity has one {part.entity_type}")
        if part.entity_name == DEFAULT:
            raise InvalidRequest(f"{DEFAULT} is spelled as a null name")
        names[field] = DEFAULT if part.entity_name is None else part.entity_name
    return Entity(names.get("user"), names.get("client_id"), names.get("ip"))


def _spelled(entity: Entity) -> list[QuotaEntity]:
    names = entity._asdict()
    return [
        QuotaEntity(entity_type=kind, entity_name=None if names[field] == DEFAULT else names[field])
        for kind, field in _FIELDS.items()
        if names[field] is not None
    ]


HANDLERS: dict[int, Handler] = {48: describe_client_quotas, 49: alter_client_quotas}
