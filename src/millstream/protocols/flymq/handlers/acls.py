"""Handlers of FlyMQ's topic ACLs, which are a view of the broker's ACLs.

A topic is public if every user may read and write it; a user or role is listed if it may do both.
Only rules that allow, from any host and for the topic's literal name, are shown and replaced.
"""

from collections.abc import Iterable
from typing import NamedTuple

from millstream.control.acls import Acl, AclFilter, PatternType, ResourceType
from millstream.engine.access.acls import SHARED, AccessRules, is_shared
from millstream.errors import InvalidRequest
from millstream.protocols.flymq.context import Context
from millstream.protocols.flymq.gateway import Handler
from millstream.protocols.flymq.handlers.users import check_on
from millstream.protocols.flymq.wire import bodies, user_bodies
from millstream.protocols.flymq.wire.frames import Opcode

_USER, _ROLE = "User:", "Role:"
_EVERY_USER = "User:*"
NOT_PUBLIC = "cannot make topic public because anonymous access is disabled in server configuration"


class _TopicAcl(NamedTuple):
    exists: bool
    is_public: bool
    users: tuple[str, ...]
    roles: tuple[str, ...]


def _view(acls: Iterable[Acl]) -> _TopicAcl:
    """The ACLs of one topic as FlyMQ shows them."""
    operations: dict[str, set[int]] = {}
    for acl in filter(is_shared, acls):
        operations.setdefault(acl.principal, set()).add(acl.operation)
    both = [principal for principal, allowed in operations.items() if allowed >= SHARED]
    return _TopicAcl(
        bool(operations),
        _EVERY_USER in both,
        _names(both, _USER),
        _names(both, _ROLE),
    )


def _names(principals: Iterable[str], kind: str) -> tuple[str, ...]:
    names = [name.removeprefix(kind) for name in principals if name.startswith(kind)]
    return tuple(sorted(name for name in names if name != "*"))


async def set_acl(context: Context, request: user_bodies.SetAcl) -> user_bodies.AclChanged:
    rules = _rules(context)
    if request.is_public and not context.services.lets_anonymous_in():
        raise InvalidRequest(NOT_PUBLIC)
    principals = [
        *([_EVERY_USER] if request.is_public else []),
        *(f"{_USER}{name}" for name in request.users),
        *(f"{_ROLE}{name}" for name in request.roles),
    ]
    await rules.share(context.session, request.topic, principals)
    return user_bodies.AclChanged(True, request.topic)


async def delete_acl(context: Context, request: bodies.TopicOnly) -> user_bodies.AclChanged:
    """The reply says whether there was any."""
    was_there = await _rules(context).share(context.session, request.topic, [])
    return user_bodies.AclChanged(was_there, request.topic)


async def get_acl(context: Context, request: bodies.TopicOnly) -> user_bodies.Acl:
    exists, is_public, users, roles = _view(
        _rules(context).of_topic(context.session, request.topic)
    )
    is_default = _is_public_by_default(context)
    return user_bodies.Acl(request.topic, exists, is_public, is_default, users, roles)


async def list_acls(context: Context, request: bodies.Nothing) -> user_bodies.Acls:
    every = AclFilter(ResourceType.TOPIC, pattern_type=PatternType.LITERAL)
    by_topic: dict[str, list[Acl]] = {}
    for acl in filter(is_shared, _rules(context).acls(context.session, every)):
        by_topic.setdefault(acl.resource_name, []).append(acl)
    listed = (user_bodies.ListedAcl(topic, *_view(by_topic[topic])) for topic in sorted(by_topic))
    return user_bodies.Acls(tuple(listed), _is_public_by_default(context))


def _rules(context: Context) -> AccessRules:
    check_on(context)
    return context.services.access_rules


def _is_public_by_default(context: Context) -> bool:
    return context.services.config.security.when_no_acl == "allow"


HANDLERS: dict[Opcode, Handler] = {
    Opcode.ACL_SET: set_acl,
    Opcode.ACL_GET: get_acl,
    Opcode.ACL_DELETE: delete_acl,
    Opcode.ACL_LIST: list_acls,
}
