"""Handlers of users and logins: who a client is, and what administrators do about users.

All opcodes but the login and `WHOAMI` are refused in one sentence on a node without rights.
"""

from collections.abc import Collection

from millstream.control.access import BUILT_IN_ROLES
from millstream.control.access import User as KnownUser
from millstream.control.commands import UserChange
from millstream.errors import InvalidRequest
from millstream.errors.access import LoginFailed
from millstream.protocols.flymq.context import Context
from millstream.protocols.flymq.gateway import Handler
from millstream.protocols.flymq.wire import bodies, user_bodies
from millstream.protocols.flymq.wire.frames import Opcode
from millstream.security.settings import authorizes

_ADMIN = "admin"
FAILURES_MAX = 3  # Failed logins of one connection, before it is closed.
FAILED = "invalid username or password"
DESCRIPTIONS = {
    "admin": "Everything on everything",
    "producer": "Writes to all topics",
    "consumer": "Reads all topics, in all groups",
    "guest": "Nothing",
}


async def authenticate(
    context: Context, request: user_bodies.Authenticate
) -> user_bodies.Authenticated:
    """Without a login to pass every name is taken, as FlyMQ does where authentication is off."""
    login = context.login
    if login is None:
        return user_bodies.Authenticated(True, request.user, (_ADMIN,), "")
    try:
        session = await login.by_password(request.user, request.password)
    except LoginFailed as problem:
        login.failures += 1
        if login.failures >= FAILURES_MAX:
            login.hang_up()
        text = FAILED if problem.reason != "clear password" else str(problem)
        return user_bodies.Authenticated(False, "", (), text)
    roles = context.services.users.access.roles_of(session)
    return user_bodies.Authenticated(True, request.user, roles, "")


async def who_am_i(context: Context, request: bodies.Nothing) -> user_bodies.Identity:
    """Anonymous unless it was proved who the client is."""
    session = context.session
    if not session.mechanism:
        return user_bodies.Identity(False, "", (), ())
    roles = context.services.users.access.roles_of(session)
    return user_bodies.Identity(True, session.principal.name, roles, permissions_of(roles))


def permissions_of(roles: Collection[str]) -> tuple[str, ...]:
    """FlyMQ's permissions, computed from the roles that are built in."""
    if "admin" in roles:
        return ("read", "write", "admin")
    reading = ("read",) if "consumer" in roles else ()
    return (*reading, "write") if "producer" in roles else reading


async def create_user(context: Context, request: user_bodies.UserRequest) -> user_bodies.User:
    """A new user is enabled, as in FlyMQ, whose clients say nothing about it here."""
    check_on(context)
    made = await context.services.users.credentials(context.session, request.password)
    change = UserChange(
        name=request.user, existence="new", roles=request.roles, is_enabled=True, credentials=made
    )
    await _alter(context, change)
    return user_bodies.User(request.user, request.roles, (), True, 0, 0)


async def delete_user(context: Context, request: user_bodies.UserOnly) -> bodies.Message:
    check_on(context)
    if _is_own(context, request.user):
        raise InvalidRequest("cannot delete your own account")
    await _alter(context, UserChange(name=request.user, existence="existing", is_deleted=True))
    return bodies.Message(True, request.user)


async def update_user(context: Context, request: user_bodies.UserRequest) -> bodies.Message:
    """Roles are replaced, also by none; a password only if there is one."""
    check_on(context)
    users = context.services.users
    made = await users.credentials(context.session, request.password) if request.password else {}
    change = UserChange(
        name=request.user,
        existence="existing",
        roles=request.roles,
        is_enabled=request.is_enabled,
        credentials=made,
    )
    await _alter(context, change)
    return bodies.Message(True, request.user)


async def list_users(context: Context, request: bodies.Nothing) -> user_bodies.Users:
    check_on(context)
    return user_bodies.Users(tuple(map(_record, context.services.users.list(context.session))))


async def get_user(context: Context, request: user_bodies.UserOnly) -> user_bodies.User:
    check_on(context)
    return _record(context.services.users.describe(context.session, request.user))


async def change_password(context: Context, request: user_bodies.UserRequest) -> bodies.Message:
    """A user's own with the old one; that of others is an administrator's to change."""
    check_on(context)
    users, session = context.services.users, context.session
    if _is_own(context, request.user) and request.old_password:
        await users.change_own_password(session, request.old_password, request.password)
    else:
        await users.set_password(session, request.user, request.password)
    return bodies.Message(True, request.user)


async def list_roles(context: Context, request: bodies.Nothing) -> user_bodies.Roles:
    check_on(context)
    stored = context.services.users.access.roles
    descriptions = DESCRIPTIONS | {name: stored[name].description for name in sorted(stored)}
    assert descriptions.keys() >= set(BUILT_IN_ROLES)
    return user_bodies.Roles(
        tuple(
            user_bodies.Role(name, permissions_of([name]), text)
            for name, text in descriptions.items()
        )
    )


def check_on(context: Context) -> None:
    """Raise `InvalidRequest` on a node that asks for no rights."""
    config = context.services.config
    if not authorizes(config.security, config.tls, config.listener):
        raise InvalidRequest("authentication is not enabled")


def _is_own(context: Context, name: str) -> bool:
    session = context.session
    return bool(session.mechanism) and session.principal.name == name


async def _alter(context: Context, change: UserChange) -> None:
    refusals = await context.services.users.alter(context.session, [change])
    for refusal in refusals.values():
        raise refusal


def _record(user: KnownUser) -> user_bodies.User:
    permissions = permissions_of(user.roles)
    times_s = user.created_ms // 1000, user.updated_ms // 1000
    return user_bodies.User(user.name, user.roles, permissions, user.is_enabled, *times_s)


HANDLERS: dict[Opcode, Handler] = {
    Opcode.AUTH: authenticate,
    Opcode.WHOAMI: who_am_i,
    Opcode.USER_CREATE: create_user,
    Opcode.USER_DELETE: delete_user,
    Opcode.USER_UPDATE: update_user,
    Opcode.USER_LIST: list_users,
    Opcode.USER_GET: get_user,
    Opcode.PASSWORD_CHANGE: change_password,
    Opcode.ROLE_LIST: list_roles,
}
