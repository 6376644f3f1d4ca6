"""Handlers of users and logins.

Logins, and what the broker does not have for FlyMQ clients yet, which is refused in one sentence: a
reply would claim that something was stored or checked.
"""

from collections.abc import Collection

from millstream.errors import InvalidRequest
from millstream.errors.access import LoginFailed
from millstream.protocols.flymq.context import Context
from millstream.protocols.flymq.gateway import Handler
from millstream.protocols.flymq.wire import bodies, user_bodies
from millstream.protocols.flymq.wire.frames import Opcode

_ADMIN = "admin"
FAILURES_MAX = 3  # Failed logins of one connection, before it is closed.
FAILED = "invalid username or password"


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


def _refusing(subject: str) -> Handler:
    async def refuse(context: Context, request: object) -> bodies.Message:
        raise InvalidRequest(f"{subject} not enabled")

    return refuse


_NO_USERS = _refusing("authentication is")

HANDLERS: dict[Opcode, Handler] = {
    Opcode.AUTH: authenticate,
    Opcode.WHOAMI: who_am_i,
    Opcode.USER_CREATE: _NO_USERS,
    Opcode.USER_DELETE: _NO_USERS,
    Opcode.USER_UPDATE: _NO_USERS,
    Opcode.USER_LIST: _NO_USERS,
    Opcode.USER_GET: _NO_USERS,
    Opcode.ACL_SET: _NO_USERS,
    Opcode.ACL_GET: _NO_USERS,
    Opcode.ACL_DELETE: _NO_USERS,
    Opcode.ACL_LIST: _NO_USERS,
    Opcode.PASSWORD_CHANGE: _NO_USERS,
    Opcode.ROLE_LIST: _NO_USERS,
}
