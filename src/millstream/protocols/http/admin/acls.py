"""ACLs: list, create, delete, and why a principal may or may not do something."""

from enum import IntEnum
from http import HTTPStatus
from typing import Literal

import msgspec

from millstream.control.acls import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from millstream.engine.access.acls import Question
from millstream.errors import InvalidRequest
from millstream.model import Principal
from millstream.protocols.http.calls import LIMIT_DEFAULT, Call, Limit, Page
from millstream.protocols.http.paging import page_by
from millstream.protocols.http.router import Params, Right, Route

Kind = Literal["topic", "group", "cluster", "transactional_id", "delegation_token", "user"]
Pattern = Literal["literal", "prefixed"]
Answer = Literal["allow", "deny"]
ANY = 1  # In Kafka's filters.
OperationName = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
]


class AclQuery(Params, frozen=True, kw_only=True):
    """Which ACLs; what is empty is any."""

    resource_type: Kind | None = None
    resource_name: str | None = None
    pattern: Pattern | None = None
    principal: str | None = None
    host: str | None = None
    operation: OperationName | None = None
    permission: Answer | None = None


class AclListing(AclQuery, frozen=True, kw_only=True):
    limit: Limit = LIMIT_DEFAULT
    after: str = ""


class AclView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    resource_type: Kind
    resource_name: str
    pattern: Pattern = "literal"
    principal: str
    host: str = "*"
    operation: OperationName
    permission: Answer = "allow"


class NewAcls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    acls: list[AclView]
    dry_run: bool = False


class Acls(msgspec.Struct, frozen=True, kw_only=True):
    items: list[AclView]


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    principal: str
    operation: OperationName
    resource_type: Kind
    resource_name: str
    host: str = "127.0.0.1"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    is_allowed: bool
    rule: str  # In words: the ACL, the role or the ownership that decides.


def list_acls(call: Call, params: AclListing) -> Page[AclView]:
    acls = sorted(call.services.access_rules.acls(call.session, _filter(params)), key=_order)
    limit = call.limit(params.limit)
    chosen, following = page_by(acls, _order, _ORDERED_BY, params.after, limit)
    return Page(items=[_view(acl) for acl in chosen], next=following)


async def create_acls(call: Call, params: Params, body: NewAcls) -> Acls:
    acls = [_acl(view) for view in body.acls]
    rules = call.services.access_rules
    if not acls:
        raise InvalidRequest("acls is empty")
    if body.dry_run:
        rules.acls(call.session, AclFilter())
    else:
        for refusal in (await rules.create(call.session, acls)).values():
            raise refusal
    return Acls(items=[_view(acl) for acl in acls])


async def delete_acls(call: Call, params: AclQuery) -> Acls:
    (removed,) = await call.services.access_rules.delete(call.session, [_filter(params)])
    return Acls(items=[_view(acl) for acl in removed])


def check_acl(call: Call, params: Params, body: Asked) -> Verdict:
    try:
        principal = Principal.parse(body.principal)
    except ValueError as problem:
        raise InvalidRequest(f"principal = {body.principal!r}: {problem}") from None
    question = Question(
        principal=principal,
        address=body.host,
        operation=AclOperation[body.operation.upper()],
        resource_type=ResourceType[body.resource_type.upper()],
        name=body.resource_name,
    )
    decision = call.services.access_rules.explain(call.session, question)
    return Verdict(is_allowed=decision.is_allowed, rule=str(decision.rule))


def _order(acl: Acl) -> tuple[str, int, str, int, int, int, str]:
    return (
        acl.principal,
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.operation,
        acl.permission,
        acl.host,
    )


_ORDERED_BY = (str, int, str, int, int, int, str)


def _filter(query: AclQuery) -> AclFilter:
    return AclFilter(
        resource_type=_number(query.resource_type, ResourceType),
        resource_name=query.resource_name,
        pattern_type=_number(query.pattern, PatternType),
        principal=query.principal,
        host=query.host,
        operation=_number(query.operation, AclOperation),
        permission=_number(query.permission, Permission),
    )


def _number(name: str | None, kind: type[IntEnum]) -> int:
    return ANY if name is None else kind[name.upper()]


def _acl(view: AclView) -> Acl:
    return Acl(
        resource_type=ResourceType[view.resource_type.upper()],
        resource_name=view.resource_name,
        pattern_type=PatternType[view.pattern.upper()],
        principal=view.principal,
        host=view.host,
        operation=AclOperation[view.operation.upper()],
        permission=Permission[view.permission.upper()],
    )


def _view(acl: Acl) -> AclView:
    return msgspec.convert(
        {
            "resource_type": acl.resource_type.name.lower(),
            "resource_name": acl.resource_name,
            "pattern": acl.pattern_type.name.lower(),
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation.name.lower(),
            "permission": acl.permission.name.lower(),
        },
        AclView,
    )


_DESCRIBE = (Right("DESCRIBE", "cluster:kafka-cluster"),)
_ALTER = (Right("ALTER", "cluster:kafka-cluster"),)

ROUTES = (
    Route(
        method="GET",
        path="/v1/acls",
        handler=list_acls,
        summary="List ACLs",
        params=AclListing,
        reply=Page[AclView],
        rights=_DESCRIBE,
    ),
    Route(
        method="POST",
        path="/v1/acls",
        handler=create_acls,
        summary="Create ACLs; creating one twice is no mistake",
        body=NewAcls,
        reply=Acls,
        status=HTTPStatus.CREATED,
        rights=_ALTER,
        example={
            "acls": [
                {
                    "resource_type": "topic",
                    "resource_name": "orders",
                    "principal": "User:ann",
                    "operation": "read",
                }
            ]
        },
    ),
    Route(
        method="DELETE",
        path="/v1/acls",
        handler=delete_acls,
        summary="Delete the ACLs that the query means, and return them",
        params=AclQuery,
        reply=Acls,
        rights=_ALTER,
    ),
    Route(
        method="POST",
        path="/v1/acls:check",
        handler=check_acl,
        summary="Whether a principal may do something, and by which rule; one's own needs no right",
        body=Asked,
        reply=Verdict,
        rights=_DESCRIBE,
        example={
            "principal": "User:ann",
            "operation": "read",
            "resource_type": "topic",
            "resource_name": "orders",
        },
    ),
)
