"""Users: list, create, describe, change, delete, and their passwords."""

from http import HTTPStatus

import msgspec

from millstream.control.access import User
from millstream.control.commands import UserChange
from millstream.protocols.http.calls import Call, Listing, Page, iso_time
from millstream.protocols.http.paging import name_filter, page
from millstream.protocols.http.router import Params, Right, Route


class UserParams(Params, frozen=True, kw_only=True):
    user: str


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    roles: list[str]
    is_enabled: bool
    mechanisms: list[str]  # With which the user can log in by password.
    created_at: str
    created_at_ms: int
    updated_at: str
    updated_at_ms: int


class NewUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    password: str | None = None  # Without one, the user holds roles for certificates and tokens.
    roles: list[str] = []
    is_enabled: bool = True

    def __repr__(self) -> str:
        return f"NewUser({self.name!r})"  # A password is in no log.


class UserPatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    roles: list[str] | None = None
    is_enabled: bool | None = None


class NewPassword(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    password: str
    disconnect: bool = False  # Whether the user's connections end.

    def __repr__(self) -> str:
        return "NewPassword()"


def list_users(call: Call, params: Listing) -> Page[UserView]:
    fits = name_filter(params.name)
    users = [user for user in call.services.users.list(call.session) if fits(user.name)]
    chosen, following = page(users, lambda user: user.name, params.after, call.limit(params.limit))
    return Page(items=[_view(user) for user in chosen], next=following)


async def create_user(call: Call, params: Params, body: NewUser) -> UserView:
    users = call.services.users
    credentials = {}
    if body.password is not None:
        credentials = await users.credentials(call.session, body.password)
    change = UserChange(
        name=body.name,
        existence="new",
        roles=tuple(body.roles),
        is_enabled=body.is_enabled,
        credentials=credentials,
    )
    await _alter(call, change)
    return _view(users.describe(call.session, body.name))


def describe_user(call: Call, params: UserParams) -> UserView:
    return _view(call.services.users.describe(call.session, params.user))


async def change_user(call: Call, params: UserParams, body: UserPatch) -> UserView:
    change = UserChange(
        name=params.user,
        existence="existing",
        roles=None if body.roles is None else tuple(body.roles),
        is_enabled=body.is_enabled,
    )
    await _alter(call, change)
    return _view(call.services.users.describe(call.session, params.user))


async def delete_user(call: Call, params: UserParams) -> None:
    await _alter(call, UserChange(name=params.user, existence="existing", is_deleted=True))


async def set_password(call: Call, params: UserParams, body: NewPassword) -> None:
    users = call.services.users
    credentials = await users.credentials(call.session, body.password)
    await _alter(call, UserChange(name=params.user, existence="existing", credentials=credentials))
    if body.disconnect:
        users.disconnect(call.session, params.user)


async def _alter(call: Call, change: UserChange) -> None:
    for refusal in (await call.services.users.alter(call.session, [change])).values():
        raise refusal


def _view(user: User) -> UserView:
    return UserView(
        name=user.name,
        roles=list(user.roles),
        is_enabled=user.is_enabled,
        mechanisms=sorted(user.credentials),
        created_at=iso_time(user.created_ms),
        created_at_ms=user.created_ms,
        updated_at=iso_time(user.updated_ms),
        updated_at_ms=user.updated_ms,
    )


_DESCRIBE = (Right("DESCRIBE", "cluster:kafka-cluster"),)
_ALTER = (Right("ALTER", "cluster:kafka-cluster"),)

ROUTES = (
    Route(
        method="GET",
        path="/v1/users",
        handler=list_users,
        summary="List users",
        params=Listing,
        reply=Page[UserView],
        rights=_DESCRIBE,
    ),
    Route(
        method="POST",
        path="/v1/users",
        handler=create_user,
        summary="Create a user",
        body=NewUser,
        reply=UserView,
        status=HTTPStatus.CREATED,
        location="/v1/users/{name}",
        rights=_ALTER,
        example={"name": "ann", "password": "a long one", "roles": ["consumer"]},
    ),
    Route(
        method="GET",
        path="/v1/users/{user}",
        handler=describe_user,
        summary="Describe a user; one's own needs no right",
        params=UserParams,
        reply=UserView,
        rights=_DESCRIBE,
    ),
    Route(
        method="PATCH",
        path="/v1/users/{user}",
        handler=change_user,
        summary="Change a user's roles, or enable and disable it",
        params=UserParams,
        body=UserPatch,
        reply=UserView,
        rights=_ALTER,
        example={"roles": ["producer", "consumer"]},
    ),
    Route(
        method="DELETE",
        path="/v1/users/{user}",
        handler=delete_user,
        summary="Delete a user; its connections end",
        params=UserParams,
        rights=_ALTER,
    ),
    Route(
        method="POST",
        path="/v1/users/{user}/password",
        handler=set_password,
        summary="Set a user's password",
        params=UserParams,
        body=NewPassword,
        rights=_ALTER,
        example={"password": "another long one", "disconnect": True},
    ),
)
