"""Values of a consumer group (KIP-848): states, heartbeats and their answers.

Owns no rules: they are in `group`.
"""

from enum import Enum
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from millstream.model import LogId


class ConsumersState(Enum):
    EMPTY = "empty"  # No members; there may be offsets.
    ASSIGNING = "assigning"  # Shares are to be worked out anew.
    RECONCILING = "reconciling"  # A member has yet to revoke or to get partitions.
    STABLE = "stable"


class World(Protocol):
    """All topics. A change of any of them changes `version`."""

    @property
    def version(self) -> int: ...

    def find(self, name: str) -> tuple[UUID, int] | None:
        """The id of a topic and how many partitions it has."""

    def matching(self, pattern: str) -> tuple[str, ...]:
        """The names that a pattern of the member that asks matches, as far as it may know of them.

        In order; raises `InvalidPattern`.
        """


class ConsumerRules(Struct, frozen=True, kw_only=True):
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    members_max: int = 2_000


class Beat(Struct, frozen=True, kw_only=True):
    """A heartbeat. None: as before."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int | None = None
    names: tuple[str, ...] | None = None
    pattern: str | None = None  # Empty: without one.
    assignor: str | None = None
    owned: frozenset[LogId] | None = None

    @property
    def is_full(self) -> bool:
        """Whether every field is set, as by a member that may have missed an answer."""
        has_topics = self.names is not None or self.pattern is not None
        return has_topics and self.rebalance_timeout_ms is not None and self.owned is not None


class Beaten(Struct, frozen=True, kw_only=True):
    """Answer to a heartbeat. Without an assignment the last one holds."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    assignment: frozenset[LogId] | None = None
