"""Users, roles and rights to topics as FlyMQ's tools ask for them.

FlyMQ's rights are lists of users and roles for each topic. Here they are ACLs: READ and WRITE of
the topic for each of them, and for `User:*` where the topic is public.
"""

from http import HTTPStatus

import msgspec

from millstream.control.acls import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from millstream.protocols.http.admin import roles as admin_roles
from millstream.protocols.http.admin import users as admin
from millstream.protocols.http.admin.topics import TopicParams
from millstream.protocols.http.calls import Call, Listing
from millstream.protocols.http.flymq.shapes import CLUSTER, Done, route
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.router import Params, Right

EVERYBODY = "User:*"
_GRANTED = (AclOperation.READ, AclOperation.WRITE)


class User(msgspec.Struct, frozen=True, kw_only=True):
    username: str
    roles: list[str]
    permissions: list[str]
    enabled: bool
    created_at: str
    updated_at: str


class NewUser(msgspec.Struct, frozen=True, kw_only=True):
    username: str
    password: str
    roles: list[str] = []

    def __repr__(self) -> str:
        return f"NewUser({self.username!r})"  # A password is in no log.


class UserChange(msgspec.Struct, frozen=True, kw_only=True):
    roles: list[str] | None = None
    enabled: bool | None = None


class Password(msgspec.Struct, frozen=True, kw_only=True):
    new_password: str
    old_password: str = ""

    def __repr__(self) -> str:
        return "Password()"


class Role(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    permissions: list[str]
    description: str


class TopicRights(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    public: bool
    allowed_users: list[str]
    allowed_roles: list[str]


class NewRights(msgspec.Struct, frozen=True, kw_only=True):
    public: bool = False
    allowed_users: list[str] = []
    allowed_roles: list[str] = []


def permissions_of(roles: list[str]) -> list[str]:
    """FlyMQ's permissions, computed from the roles that are built in."""
    if "admin" in roles:
        return ["read", "write", "admin"]
    pairs = (("consumer", "read"), ("producer", "write"))
    return [permission for role, permission in pairs if role in roles]


def list_users(call: Call, params: Params) -> list[User]:
    page = admin.list_users(call, Listing(limit=call.services.config.http.page_max))
    return [_user(view) for view in page.items]


async def create_user(call: Call, params: Params, body: NewUser) -> None:
    new = admin.NewUser(name=body.username, password=body.password, roles=body.roles)
    await admin.create_user(call, params, new)


def describe_user(call: Call, params: admin.UserParams) -> User:
    return _user(admin.describe_user(call, params))


async def change_user(call: Call, params: admin.UserParams, body: UserChange) -> Done:
    await admin.change_user(
        call, params, admin.UserPatch(roles=body.roles, is_enabled=body.enabled)
    )
    return Done()


async def delete_user(call: Call, params: admin.UserParams) -> None:
    await admin.delete_user(call, params)


async def set_password(call: Call, params: admin.UserParams, body: Password) -> Done:
    """Of a user's own with the old one, as of another with the right to."""
    if params.user == call.session.principal.name and body.old_password:
        await call.services.users.change_own_password(
            call.session, body.old_password, body.new_password
        )
    else:
        await admin.set_password(call, params, admin.NewPassword(password=body.new_password))
    return Done()


def _user(view: admin.UserView) -> User:
    return User(
        username=view.name,
        roles=view.roles,
        permissions=permissions_of(view.roles),
        enabled=view.is_enabled,
        created_at=view.created_at,
        updated_at=view.updated_at,
    )


def list_roles(call: Call, params: Params) -> list[Role]:
    page = admin_roles.list_roles(call, Listing(limit=call.services.config.http.page_max))
    return [
        Role(name=view.name, permissions=permissions_of([view.name]), description=view.description)
        for view in page.items
    ]


# -- rights to topics ------------------------------------------------------------------------------


def list_rights(call: Call, params: Params) -> list[TopicRights]:
    by_topic: dict[str, list[Acl]] = {}
    for acl in call.services.access_rules.acls(call.session, _filter(None)):
        if _is_granted(acl):
            by_topic.setdefault(acl.resource_name, []).append(acl)
    return [_rights(topic, acls) for topic, acls in sorted(by_topic.items())]


def describe_rights(call: Call, params: TopicParams) -> TopicRights:
    acls = call.services.access_rules.acls(call.session, _filter(params.topic))
    granted = [acl for acl in acls if _is_granted(acl)]
    if not granted:
        raise HttpProblem(
            HTTPStatus.NOT_FOUND, "unknown_acl", f"no ACL found for topic: {params.topic}"
        )
    return _rights(params.topic, granted)


async def set_rights(call: Call, params: TopicParams, body: NewRights) -> Done:
    """What is new is created first: no user loses a right for a moment."""
    rules = call.services.access_rules
    holders = [EVERYBODY] if body.public else []
    holders += [f"User:{name}" for name in body.allowed_users]
    holders += [f"Role:{name}" for name in body.allowed_roles]
    after = [_acl(params.topic, holder, each) for holder in holders for each in _GRANTED]
    before = [acl for acl in rules.acls(call.session, _filter(params.topic)) if _is_granted(acl)]
    if after:
        for refusal in (await rules.create(call.session, after)).values():
            raise refusal
    gone = [_exactly(acl) for acl in before if acl not in after]
    if gone:
        await rules.delete(call.session, gone)
    return Done()


async def delete_rights(call: Call, params: TopicParams) -> None:
    rules = call.services.access_rules
    acls = rules.acls(call.session, _filter(params.topic))
    await rules.delete(call.session, [_exactly(acl) for acl in acls if _is_granted(acl)])


def _filter(topic: str | None) -> AclFilter:
    return AclFilter(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        pattern_type=PatternType.LITERAL,
        permission=Permission.ALLOW,
    )


def _is_granted(acl: Acl) -> bool:
    return acl.operation in _GRANTED and acl.host == "*"


def _acl(topic: str, holder: str, operation: AclOperation) -> Acl:
    return Acl(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        pattern_type=PatternType.LITERAL,
        principal=holder,
        host="*",
        operation=operation,
        permission=Permission.ALLOW,
    )


def _exactly(acl: Acl) -> AclFilter:
    return AclFilter(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    )


def _rights(topic: str, acls: list[Acl]) -> TopicRights:
    names: dict[str, list[str]] = {"User": [], "Role": []}
    for holder in sorted({acl.principal for acl in acls} - {EVERYBODY}):
        kind, _, name = holder.partition(":")
        names.setdefault(kind, []).append(name)
    return TopicRights(
        topic=topic,
        public=any(acl.principal == EVERYBODY for acl in acls),
        allowed_users=names["User"],
        allowed_roles=names["Role"],
    )


_DESCRIBE, _ALTER = (Right("DESCRIBE", CLUSTER),), (Right("ALTER", CLUSTER),)
_CHANGE = (*_ALTER, *_DESCRIBE)

ROUTES = (
    route("GET", "/users", list_users, "List users", reply=list[User], rights=_DESCRIBE),
    route(
        "POST",
        "/users",
        create_user,
        "Create a user",
        body=NewUser,
        status=HTTPStatus.CREATED,
        rights=_CHANGE,
        example={"username": "bob", "password": "a secret", "roles": ["consumer"]},
    ),
    route(
        "GET",
        "/users/{user}",
        describe_user,
        "Describe a user",
        params=admin.UserParams,
        reply=User,
        rights=_DESCRIBE,
    ),
    route(
        "PUT",
        "/users/{user}",
        change_user,
        "Change a user",
        params=admin.UserParams,
        body=UserChange,
        reply=Done,
        rights=_CHANGE,
        example={"enabled": False},
    ),
    route(
        "DELETE",
        "/users/{user}",
        delete_user,
        "Delete a user",
        params=admin.UserParams,
        rights=_ALTER,
    ),
    route(
        "POST",
        "/users/{user}/password",
        set_password,
        "Set a password",
        params=admin.UserParams,
        body=Password,
        reply=Done,
        rights=_ALTER,
        example={"old_password": "a secret", "new_password": "another"},
    ),
    route("GET", "/roles", list_roles, "List roles", reply=list[Role], rights=_DESCRIBE),
    route(
        "GET", "/acls", list_rights, "Rights by topic", reply=list[TopicRights], rights=_DESCRIBE
    ),
    route(
        "GET",
        "/acls/{topic}",
        describe_rights,
        "Rights to a topic",
        params=TopicParams,
        reply=TopicRights,
        rights=_DESCRIBE,
    ),
    route(
        "PUT",
        "/acls/{topic}",
        set_rights,
        "Set the rights to a topic",
        params=TopicParams,
        body=NewRights,
        reply=Done,
        rights=_CHANGE,
        example={"public": False, "allowed_users": ["ann"]},
    ),
    route(
        "DELETE",
        "/acls/{topic}",
        delete_rights,
        "Take the rights to a topic away",
        params=TopicParams,
        rights=_CHANGE,
    ),
)
