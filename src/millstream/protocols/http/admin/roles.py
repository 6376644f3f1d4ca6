"""Roles: names that users hold and ACLs are given to."""

from http import HTTPStatus

import msgspec

from millstream.engine.access.acls import RoleView as EngineRole
from millstream.errors.access import UnknownRole
from millstream.protocols.http.calls import Call, Listing, Page
from millstream.protocols.http.paging import name_filter, page
from millstream.protocols.http.router import Params, Right, Route


class RoleParams(Params, frozen=True, kw_only=True):
    role: str


class RoleView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    is_built_in: bool
    users: list[str]


class NewRole(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    description: str = ""


class RolePatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    description: str


def list_roles(call: Call, params: Listing) -> Page[RoleView]:
    fits = name_filter(params.name)
    roles = sorted(
        (view for view in call.services.access_rules.roles(call.session) if fits(view.role.name)),
        key=_name,
    )
    chosen, following = page(roles, _name, params.after, call.limit(params.limit))
    return Page(items=[_view(view) for view in chosen], next=following)


async def create_role(call: Call, params: Params, body: NewRole) -> RoleView:
    await call.services.access_rules.put_role(
        call.session, body.name, description=body.description, must_be_new=True
    )
    return describe_role(call, RoleParams(role=body.name))


def describe_role(call: Call, params: RoleParams) -> RoleView:
    for view in call.services.access_rules.roles(call.session):
        if view.role.name == params.role:
            return _view(view)
    raise UnknownRole(params.role)


async def change_role(call: Call, params: RoleParams, body: RolePatch) -> RoleView:
    describe_role(call, params)
    await call.services.access_rules.put_role(
        call.session, params.role, description=body.description
    )
    return describe_role(call, params)


async def delete_role(call: Call, params: RoleParams) -> None:
    await call.services.access_rules.delete_role(call.session, params.role)


def _name(view: EngineRole) -> str:
    return view.role.name


def _view(view: EngineRole) -> RoleView:
    return RoleView(
        name=view.role.name,
        description=view.role.description,
        is_built_in=view.is_built_in,
        users=list(view.users),
    )


_DESCRIBE = (Right("DESCRIBE", "cluster:kafka-cluster"),)
_ALTER = (Right("ALTER", "cluster:kafka-cluster"),)

ROUTES = (
    Route(
        method="GET",
        path="/v1/roles",
        handler=list_roles,
        summary="List roles with their users",
        params=Listing,
        reply=Page[RoleView],
        rights=_DESCRIBE,
    ),
    Route(
        method="POST",
        path="/v1/roles",
        handler=create_role,
        summary="Create a role",
        body=NewRole,
        reply=RoleView,
        status=HTTPStatus.CREATED,
        location="/v1/roles/{name}",
        rights=_ALTER,
        example={"name": "bakers", "description": "read orders"},
    ),
    Route(
        method="GET",
        path="/v1/roles/{role}",
        handler=describe_role,
        summary="Describe a role",
        params=RoleParams,
        reply=RoleView,
        rights=_DESCRIBE,
    ),
    Route(
        method="PATCH",
        path="/v1/roles/{role}",
        handler=change_role,
        summary="Describe a role anew",
        params=RoleParams,
        body=RolePatch,
        reply=RoleView,
        rights=_ALTER,
        example={"description": "read orders and payments"},
    ),
    Route(
        method="DELETE",
        path="/v1/roles/{role}",
        handler=delete_role,
        summary="Delete a role with its ACLs",
        params=RoleParams,
        rights=_ALTER,
    ),
)
