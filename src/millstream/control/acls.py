"""ACLs: their vocabulary in Kafka's numbers, the index that finds those of a resource, filters.

Owns the rules of a valid ACL. `decision` judges with them. Pure.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from millstream.errors import InvalidRequest
from millstream.errors.access import UnsupportedPrincipal

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

ANY_NAME: Final = "*"
ANY_HOST: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
NAME_LENGTH_MAX = 32_767  # Of a resource, as the wire bounds it.
PRINCIPAL_KINDS: Final = frozenset({"User", "Role"})
_HOSTS_CACHED_MAX = 65_536
_ANY = 1  # In filters: whatever it is.
_MATCH = 2  # In filters: every pattern that covers the name.


class ResourceType(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6  # Stored and listed; nothing here asks for it.
    USER = 7  # The same.


class PatternType(IntEnum):
    LITERAL = 3  # The name, or `*` for every name.
    PREFIXED = 4


class AclOperation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


class Acl(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One rule. Stored: the order of the fields is part of the format."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def __str__(self) -> str:
        kind = self.resource_type.name.lower()
        prefixed = " with prefix" if self.pattern_type is PatternType.PREFIXED else ""
        return (
            f"{self.permission.name} {self.principal} from {self.host} to "
            f"{self.operation.name} on {kind}{prefixed} {self.resource_name}"
        )

    @property
    def pattern(self) -> "Pattern":
        return Pattern(self.resource_type, self.pattern_type, self.resource_name)


class Pattern(NamedTuple):
    resource_type: ResourceType
    pattern_type: PatternType
    name: str

    def covers(self, other: "Pattern") -> bool:
        """Whether every name that `other` matches is matched by this one as well."""
        if self.pattern_type is PatternType.PREFIXED:
            return other.name != ANY_NAME and other.name.startswith(self.name)
        return self.name == ANY_NAME or self[1:] == other[1:]


class AclFilter(NamedTuple):
    """Which ACLs are meant, in Kafka's numbers; None or 1 is any."""

    resource_type: int = _ANY
    resource_name: str | None = None
    pattern_type: int = _ANY
    principal: str | None = None
    host: str | None = None
    operation: int = _ANY
    permission: int = _ANY

    def check(self) -> None:
        """Raise `InvalidRequest` for a number that no filter has."""
        _check_number("resource type", self.resource_type, ResourceType)
        _check_number("operation", self.operation, AclOperation)
        _check_number("permission", self.permission, Permission)
        if self.pattern_type != _MATCH:
            _check_number("pattern type", self.pattern_type, PatternType)

    @property
    def is_exact(self) -> bool:
        """Whether the filter means the ACLs of one literal name only."""
        return self.resource_name is not None and self.pattern_type == PatternType.LITERAL

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in {_ANY, acl.resource_type}
            and self.operation in {_ANY, acl.operation}
            and self.permission in {_ANY, acl.permission}
            and self.principal in {None, acl.principal}
            and self.host in {None, acl.host}
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        name = self.resource_name
        if self.pattern_type == _MATCH:
            if name is None or acl.resource_name == name:
                return True
            if acl.pattern_type is PatternType.PREFIXED:
                return name.startswith(acl.resource_name)
            return acl.resource_name == ANY_NAME
        return self.pattern_type in {_ANY, acl.pattern_type} and name in {None, acl.resource_name}


def _check_number(name: str, number: int, kind: type[IntEnum]) -> None:
    if number != _ANY and number not in set(kind):
        raise InvalidRequest(f"{name} {number} is none that an ACL can have")


def make_acl(
    *,
    resource_type: int,
    resource_name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> Acl:
    """Build an ACL from the numbers of the wire; raise a `RequestError` for one that cannot be."""
    try:
        acl = Acl(
            resource_type=ResourceType(resource_type),
            resource_name=resource_name,
            pattern_type=PatternType(pattern_type),
            principal=principal,
            host=host,
            operation=AclOperation(operation),
            permission=Permission(permission),
        )
    except ValueError as problem:
        raise InvalidRequest(f"an ACL cannot be made of this: {problem}") from None
    check_acl(acl)
    return acl


def check_acl(acl: Acl) -> None:
    """Raise a `RequestError` for an ACL that says nothing or cannot be asked for."""
    if not 1 <= len(acl.resource_name) <= NAME_LENGTH_MAX:
        raise InvalidRequest("an ACL names its resource; '*' with a literal pattern is every one")
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise InvalidRequest(
            f"the only cluster is {CLUSTER_NAME!r}, not {acl.resource_name[:100]!r}"
        )
    kind, colon, name = acl.principal.partition(":")
    if not (kind and colon and name):
        raise InvalidRequest(f"{acl.principal[:100]!r} is not TYPE:NAME, such as User:ann")
    if kind not in PRINCIPAL_KINDS:
        raise UnsupportedPrincipal(acl.principal)
    if acl.host != ANY_HOST and _network(acl.host) is None:
        raise InvalidRequest(f"host {acl.host[:100]!r} is not '*', an address or a CIDR range")


@lru_cache(_HOSTS_CACHED_MAX)
def _network(host: str) -> "IPv4Network | IPv6Network | None":
    from ipaddress import IPv4Network, IPv6Network, ip_network  # Only where hosts are compared.

    try:
        network = ip_network(host, strict=False)
    except ValueError:
        return None
    if isinstance(network, IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - 96))
    return network


@lru_cache(_HOSTS_CACHED_MAX)
def _address(text: str) -> "IPv4Address | IPv6Address | None":
    from ipaddress import ip_address

    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def host_matches(host: str, address: str) -> bool:
    """Whether an address is that of an ACL's host, or in its range."""
    if host in (ANY_HOST, address):
        return True
    network, place = _network(host), _address(address)
    return network is not None and place is not None and place in network


class _OfPrincipal:
    """The ACLs of one principal by pattern, and how long the prefixes are."""

    __slots__ = ("by_pattern", "prefix_lengths")

    def __init__(self) -> None:
        self.by_pattern: dict[Pattern, dict[Acl, None]] = {}
        self.prefix_lengths: dict[ResourceType, dict[int, int]] = {}  # With how many patterns.


class Acls:
    """All ACLs. A lookup touches only those of the principal whose patterns match the name."""

    def __init__(self) -> None:
        self._all: dict[Acl, None] = {}
        self._by_principal: dict[str, _OfPrincipal] = {}
        self._everybody = _OfPrincipal()  # For whether a resource has any ACL at all.

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._all)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._all

    def add(self, acl: Acl) -> None:
        if acl in self._all:
            return
        self._all[acl] = None
        _add(self._by_principal.setdefault(acl.principal, _OfPrincipal()), acl)
        _add(self._everybody, acl)

    def remove(self, acl: Acl) -> None:
        if acl not in self._all:
            return
        del self._all[acl]
        own = self._by_principal[acl.principal]
        _remove(own, acl)
        if not own.by_pattern:
            del self._by_principal[acl.principal]
        _remove(self._everybody, acl)

    def select(self, acl_filter: AclFilter) -> list[Acl]:
        return [acl for acl in self._all if acl_filter.matches(acl)]

    def of_principal(self, principal: str) -> Iterator[Acl]:
        own = self._by_principal.get(principal)
        if own is not None:
            for acls in own.by_pattern.values():
                yield from acls

    def matching(
        self, principals: Iterable[str], resource_type: ResourceType, name: str
    ) -> Iterator[Acl]:
        """The ACLs of these principals whose pattern matches the name."""
        for principal in principals:
            own = self._by_principal.get(principal)
            if own is not None:
                yield from _matching(own, resource_type, name)

    def has_any(self, resource_type: ResourceType, name: str) -> bool:
        """Whether some ACL, of whichever principal, matches the name."""
        return next(_matching(self._everybody, resource_type, name), None) is not None


def _add(own: _OfPrincipal, acl: Acl) -> None:
    pattern = acl.pattern
    known = own.by_pattern.get(pattern)
    if known is not None:
        known[acl] = None
        return
    own.by_pattern[pattern] = {acl: None}
    if acl.pattern_type is PatternType.PREFIXED:
        lengths = own.prefix_lengths.setdefault(acl.resource_type, {})
        length = len(acl.resource_name)
        lengths[length] = lengths.get(length, 0) + 1


def _remove(own: _OfPrincipal, acl: Acl) -> None:
    pattern = acl.pattern
    known = own.by_pattern[pattern]
    del known[acl]
    if known:
        return
    del own.by_pattern[pattern]
    if acl.pattern_type is PatternType.PREFIXED:
        lengths = own.prefix_lengths[acl.resource_type]
        length = len(acl.resource_name)
        lengths[length] -= 1
        if not lengths[length]:
            del lengths[length]


def _matching(own: _OfPrincipal, resource_type: ResourceType, name: str) -> Iterator[Acl]:
    # Plain tuples find the patterns, and cost a third of a NamedTuple.
    by_pattern: dict[tuple[object, ...], dict[Acl, None]] = own.by_pattern  # type: ignore[assignment]
    literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
    yield from by_pattern.get((resource_type, literal, name), ())
    if name != ANY_NAME:
        yield from by_pattern.get((resource_type, literal, ANY_NAME), ())
    for length in own.prefix_lengths.get(resource_type, ()):
        if length <= len(name):
            yield from by_pattern.get((resource_type, prefixed, name[:length]), ())
