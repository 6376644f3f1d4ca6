"""Handlers of what the broker does not have yet: users and their rights, schemas, an audit trail.

A login succeeds for every name, because there are no users; everything else is refused in one
sentence, since a reply would claim that something was stored or checked.
"""

from millstream.errors import InvalidRequest
from millstream.protocols.flymq.context import Context
from millstream.protocols.flymq.gateway import Handler
from millstream.protocols.flymq.wire import bodies, user_bodies
from millstream.protocols.flymq.wire.frames import Opcode

_ADMIN = "admin"


async def authenticate(
    context: Context, request: user_bodies.Authenticate
) -> user_bodies.Authenticated:
    return user_bodies.Authenticated(True, request.user, (_ADMIN,), "")


async def who_am_i(context: Context, request: bodies.Nothing) -> user_bodies.Identity:
    """Always anonymous, also after a login: a name would claim that it was proven."""
    return user_bodies.Identity(False, "", (), ())


def _refusing(subject: str) -> Handler:
    async def refuse(context: Context, request: object) -> bodies.Message:
        raise InvalidRequest(f"{subject} not enabled")

    return refuse


_NO_SCHEMAS = _refusing("schemas are")
_NO_USERS = _refusing("authentication is")
_NO_AUDIT = _refusing("the audit trail is")

HANDLERS: dict[Opcode, Handler] = {
    Opcode.AUTH: authenticate,
    Opcode.WHOAMI: who_am_i,
    Opcode.REGISTER_SCHEMA: _NO_SCHEMAS,
    Opcode.GET_SCHEMA: _NO_SCHEMAS,
    Opcode.LIST_SCHEMAS: _NO_SCHEMAS,
    Opcode.VALIDATE: _NO_SCHEMAS,
    Opcode.PRODUCE_WITH_SCHEMA: _NO_SCHEMAS,
    Opcode.DELETE_SCHEMA: _NO_SCHEMAS,
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
    Opcode.AUDIT_QUERY: _NO_AUDIT,
    Opcode.AUDIT_EXPORT: _NO_AUDIT,
}
