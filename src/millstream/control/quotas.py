"""Client quotas: how much a second clients may send, read, change and connect, as a fold.

Owns the kinds of limits, the entities that have them, and which of several limits counts. Pure:
every node counts the use of a quota for itself, in `engine.quotas.accounts`.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from millstream.control.commands import AlterQuotas
from millstream.errors import InvalidRequest
from millstream.model import CLIENT_ID_LENGTH_MAX

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"  # Partitions made and deleted.
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"  # Of an address (KIP-612).
BYTE_RATES: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE})
KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE)
ADDRESS_KEYS = (CONNECTION_CREATION_RATE,)
RATE_MIN, RATE_MAX = 1, 2**63 - 1

DEFAULT: Final = "<default>"  # For all clients that have no quota by their own name.
NAME_LENGTH_MAX = CLIENT_ID_LENGTH_MAX  # Of a client id or a user.


class Entity(NamedTuple):
    """The holder of a quota: a user, a client id, both together, or an address; None: any."""

    user: str | None
    client_id: str | None
    ip: str | None = None


class Quota(NamedTuple):
    """So much a second for a client, together with all others of the same holder."""

    holder: Entity
    rate: float


Changes = Mapping[str, float | None]  # None: no limit any more.


class Quotas:
    """All quotas. `limits` is changed in place, so that a reference to it stays current."""

    def __init__(self) -> None:
        self.limits: dict[Entity, dict[str, float]] = {}

    def apply(self, command: AlterQuotas) -> Entity:
        """Change the limits of an entity. `check` runs before the proposal: a committed command is
        applied alike in every version."""
        entity = Entity(command.user, command.client_id, command.ip)
        merged = {**self.limits.get(entity, {}), **command.changes}
        limits = {key: rate for key, rate in merged.items() if rate is not None}
        if limits:
            self.limits[entity] = limits
        else:
            self.limits.pop(entity, None)
        return entity

    def find(self, key: str, user: str, client_id: str) -> Quota | None:
        """The quota that counts for a client: that of the most special entity that has one."""
        for level in (
            Entity(user, client_id),
            Entity(user, DEFAULT),
            Entity(user, None),
            Entity(DEFAULT, client_id),
            Entity(DEFAULT, DEFAULT),
            Entity(DEFAULT, None),
            Entity(None, client_id),
            Entity(None, DEFAULT),
        ):
            limits = self.limits.get(level)
            if limits is not None and key in limits:
                # A user's quota is shared by all its clients; a default one is not shared.
                holder = Entity(
                    None if level.user is None else user,
                    None if level.client_id is None else client_id,
                )
                rate = max(RATE_MIN, limits[key]) if key in BYTE_RATES else limits[key]
                return Quota(holder, rate)
        return None

    def find_address(self, address: str) -> Quota | None:
        """How many connections a second an address may open."""
        for level in (Entity(None, None, address), Entity(None, None, DEFAULT)):
            limits = self.limits.get(level)
            if limits is not None and CONNECTION_CREATION_RATE in limits:
                rate = limits[CONNECTION_CREATION_RATE]
                return Quota(Entity(None, None, address), rate)
        return None


def check(entity: Entity, changes: Changes) -> None:
    """Raise `InvalidRequest` for an entity, key or rate that is not supported."""
    names = [name for name in entity if name is not None]
    if not names:
        raise InvalidRequest("a quota is for a user, a client id or both, or for an ip")
    if entity.ip is not None:
        _check_address(entity)
    for name in names:
        if not 1 <= len(name) <= NAME_LENGTH_MAX:
            raise InvalidRequest(f"a name of {len(name)} characters, not 1 to {NAME_LENGTH_MAX}")
    known = KEYS if entity.ip is None else ADDRESS_KEYS
    for key, rate in changes.items():
        if key not in known:
            raise InvalidRequest(f"{key[:100]!r} is not limited here; {' and '.join(known)} are")
        if rate is not None:
            _check_rate(key, rate)


def _check_rate(key: str, rate: float) -> None:
    if key in BYTE_RATES:
        if not (RATE_MIN <= rate <= RATE_MAX and rate == int(rate)):
            raise InvalidRequest(f"{key} = {rate}, it must be a whole number of bytes, 1 or more")
    elif key == CONNECTION_CREATION_RATE:
        if not (0 <= rate <= 2**31 - 1 and rate == int(rate)):
            raise InvalidRequest(f"{key} = {rate}, it must be a whole number, 0 or more")
    elif not 0 < rate <= RATE_MAX:
        raise InvalidRequest(f"{key} = {rate}, it must be a number above 0")


def _check_address(entity: Entity) -> None:
    if entity.user is not None or entity.client_id is not None:
        raise InvalidRequest("a quota for an ip is for nothing else")
    if entity.ip == DEFAULT:
        return
    try:
        ip_address(entity.ip or "")
    except ValueError:
        raise InvalidRequest(f"{(entity.ip or '')[:100]!r} is no ip address") from None
