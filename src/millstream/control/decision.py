"""Whether a client may do something: one decision, from users, roles, ACLs and owners.

Owns the order of the rules. Pure: the same question to the same state has the same answer on every
node, and the answer names the rule that gave it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from millstream.control.access import Access
from millstream.control.acls import (
    ANY_NAME,
    Acl,
    AclOperation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    host_matches,
)
from millstream.model import SYSTEM, Session
from millstream.names import INTERNAL_PREFIX, LENT_ID_PREFIX

# An ALLOW of these gives the key as well; a DENY takes only what it says.
IMPLIED_BY: Final = MappingProxyType(
    {
        AclOperation.DESCRIBE: frozenset(
            {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
        ),
        AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
    }
)

# The operations that a resource has, for `authorized_operations` (KIP-430).
OPERATIONS: Final = MappingProxyType(
    {
        ResourceType.TOPIC: (3, 4, 5, 6, 7, 8, 10, 11),
        ResourceType.GROUP: (3, 6, 8, 10, 11),
        ResourceType.CLUSTER: (5, 7, 8, 9, 10, 11, 12),
    }
)

_GUARDED: Final = frozenset({ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID})
# What `when_no_acl = "allow"` lets everybody do to the cluster: nothing that changes it.
_HARMLESS: Final = frozenset(
    {
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.CREATE,
        AclOperation.IDEMPOTENT_WRITE,
    }
)

_ADMIN: Final = "admin"
_READS: Final = frozenset({AclOperation.READ, AclOperation.DESCRIBE})
_WRITES: Final = frozenset({AclOperation.WRITE, AclOperation.DESCRIBE})
# The rights of built-in roles on every name; `admin` has all, and is the only one that reaches
# internal topics.
_BUILT_IN: Final = MappingProxyType(
    {
        ("producer", ResourceType.TOPIC): _WRITES,
        ("producer", ResourceType.TRANSACTIONAL_ID): _WRITES,
        ("producer", ResourceType.CLUSTER): frozenset({AclOperation.IDEMPOTENT_WRITE}),
        ("consumer", ResourceType.TOPIC): _READS,
        ("consumer", ResourceType.GROUP): _READS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the settings of a node say about rights."""

    super_users: frozenset[str] = frozenset()
    allows_without_acl: bool = False
    is_stale: bool = False  # No leader of the control log is known: rights may have been revoked.


class Resource(NamedTuple):
    resource_type: ResourceType
    name: str
    owner: str = ""  # Of a topic: the principal that its setting names.

    @property
    def is_internal(self) -> bool:
        return self.resource_type is ResourceType.TOPIC and self.name.startswith(INTERNAL_PREFIX)

    @property
    def is_lent(self) -> bool:
        """Whether the broker lends it to transactions; no client writes under it by itself."""
        is_id = self.resource_type is ResourceType.TRANSACTIONAL_ID
        return is_id and self.name.startswith(LENT_ID_PREFIX)


class Decision(NamedTuple):
    """An answer and the rule that gave it: an ACL, or the words of a rule that is none."""

    is_allowed: bool
    rule: Acl | str


NO_RULE: Final = "no ACL allows it"
_SYSTEM: Final = Decision(True, "the broker itself")
_BARRED: Final = Decision(False, "the user is disabled or deleted")
_NO_ACL_ALLOWED: Final = Decision(True, 'no ACL names it, and security.when_no_acl = "allow"')
_LENT: Final = Decision(False, f"transactional ids {LENT_ID_PREFIX}… are the broker's own")
_DENIED: Final = Decision(False, NO_RULE)
_STALE: Final = Decision(False, "no leader of the control log for security.stale_ms_max")


class Asker(NamedTuple):
    """A client as ACLs know it: its principals, the user first, and where it comes from."""

    principals: tuple[str, ...]
    roles: tuple[str, ...]
    address: str
    is_system: bool = False
    is_barred: bool = False


def asker_of(access: Access, session: Session) -> Asker:
    roles = tuple(role for role in access.roles_of(session) if access.has_role(role))
    return Asker(
        (str(session.principal), "User:*", *(f"Role:{role}" for role in roles)),
        roles,
        session.address,
        session.principal == SYSTEM,
        access.is_barred(session),
    )


def decide(
    access: Access, rules: Rules, asker: Asker, operation: AclOperation, resource: Resource
) -> Decision:
    """Judge one operation on one resource. DENY comes first, whatever pattern an ALLOW has."""
    if (early := _before_acls(rules, asker)) is not None:
        return early
    if resource.is_lent:
        return _LENT
    allowed = _by_role(asker, operation, resource)
    if resource.owner and resource.owner in asker.principals:
        allowed = Decision(True, f"{resource.owner} owns the topic")
    matching = access.acls.matching(asker.principals, resource.resource_type, resource.name)
    for acl in matching:
        if not host_matches(acl.host, asker.address):
            continue
        if acl.permission is Permission.DENY:
            if acl.operation in (operation, AclOperation.ALL):
                return Decision(False, acl)
        elif allowed is None and _allows(acl, operation, resource):
            allowed = Decision(True, acl)
    if allowed is not None:
        return allowed
    is_open = rules.allows_without_acl and _is_open(operation, resource)
    if is_open and not access.acls.has_any(resource.resource_type, resource.name):
        return _NO_ACL_ALLOWED
    return _DENIED


def decide_any(
    access: Access,
    rules: Rules,
    asker: Asker,
    operation: AclOperation,
    resource_type: ResourceType,
    owned: Iterable[str] = (),
) -> Decision:
    """Whether there could be a resource on which the operation is allowed: some ALLOW has a pattern
    that no DENY covers. `owned` are names of the asker's own resources."""
    if (early := _before_acls(rules, asker)) is not None:
        return early
    acls = list(_of_asker(access, asker, resource_type))
    denied = [
        acl.pattern
        for acl in acls
        if acl.permission is Permission.DENY and acl.operation in (operation, AclOperation.ALL)
    ]

    def is_left(pattern: Pattern) -> bool:
        return not any(swallowing.covers(pattern) for swallowing in denied)

    every = Pattern(resource_type, PatternType.LITERAL, ANY_NAME)
    by_role = _by_role(asker, operation, Resource(resource_type, ""))
    if by_role is not None and is_left(every):
        return by_role
    for acl in acls:
        if acl.permission is Permission.ALLOW and _gives(acl, operation) and is_left(acl.pattern):
            return Decision(True, acl)
    for name in owned:
        if is_left(Pattern(resource_type, PatternType.LITERAL, name)):
            return Decision(True, f"owns the topic {name}")
    if rules.allows_without_acl and resource_type in _GUARDED and is_left(every):
        return _NO_ACL_ALLOWED
    return _DENIED


def operations_of(access: Access, rules: Rules, asker: Asker, resource: Resource) -> int:
    """The bits of the operations that are allowed on a resource (KIP-430)."""
    bits = 0
    for number in OPERATIONS[resource.resource_type]:
        if decide(access, rules, asker, AclOperation(number), resource).is_allowed:
            bits |= 1 << number
    return bits


def _before_acls(rules: Rules, asker: Asker) -> Decision | None:
    if asker.is_system:
        return _SYSTEM
    if asker.is_barred:
        return _BARRED
    if rules.super_users:
        for principal in asker.principals:
            if principal in rules.super_users:
                return Decision(True, f"{principal} is one of security.super_users")
    return _STALE if rules.is_stale else None


def _by_role(asker: Asker, operation: AclOperation, resource: Resource) -> Decision | None:
    for role in asker.roles:
        if role == _ADMIN:
            return Decision(True, "the role admin")
        if resource.is_internal:
            continue
        if operation in _BUILT_IN.get((role, resource.resource_type), ()):
            return Decision(True, f"the role {role}")
    return None


def _gives(acl: Acl, operation: AclOperation) -> bool:
    return acl.operation in (operation, AclOperation.ALL) or (
        acl.operation in IMPLIED_BY.get(operation, ())
    )


def _allows(acl: Acl, operation: AclOperation, resource: Resource) -> bool:
    # Internal topics hold payloads of others: `*` and short prefixes do not mean them.
    if resource.is_internal and not acl.resource_name.startswith(INTERNAL_PREFIX):
        return False
    return _gives(acl, operation)


def _is_open(operation: AclOperation, resource: Resource) -> bool:
    if resource.resource_type in _GUARDED:
        return not resource.is_internal
    return resource.resource_type is ResourceType.CLUSTER and operation in _HARMLESS


def _of_asker(access: Access, asker: Asker, resource_type: ResourceType) -> Iterator[Acl]:
    for principal in asker.principals:
        for acl in access.acls.of_principal(principal):
            if acl.resource_type is resource_type and host_matches(acl.host, asker.address):
                yield acl
