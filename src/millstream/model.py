"""The vocabulary that every layer shares: names, positions, acknowledgements, sessions.

Owns words, not behaviour: values without I/O and without knowledge of any layer.

Invariant: `end_offset` is exclusive and `last_offset` inclusive, everywhere.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, NewType, TypeAlias
from uuid import UUID

from millstream.errors import InvalidTopicName

NodeId = NewType("NodeId", int)
# One replica of a log as consensus knows it; see `replica_id`.
ReplicaId = NewType("ReplicaId", int)
Epoch = NewType("Epoch", int)
TopicName = NewType("TopicName", str)

# Offsets are counted with all day long; a NewType would be wrapped and unwrapped at every step.
Offset: TypeAlias = int

# What may hold bytes on the way from a socket to a file. Never copied only to change its type.
Buffer: TypeAlias = bytes | bytearray | memoryview

NO_EPOCH = Epoch(0)
NODE_BITS = 20


def replica_id(node: NodeId, incarnation: Offset = 0) -> ReplicaId:
    """Return the id of the replica that the control command at offset `incarnation` placed on
    `node`; 0 for one placed by a cluster without incarnations.

    A replica that lost its data, or was moved away and back, is another one: it must not vote on
    promises that it has forgotten.
    """
    assert 0 <= node < 1 << NODE_BITS
    assert incarnation >= 0
    return ReplicaId(incarnation << NODE_BITS | node)


def node_of(replica: ReplicaId) -> NodeId:
    return NodeId(replica & (1 << NODE_BITS) - 1)


def incarnation_of(replica: ReplicaId) -> Offset:
    return replica >> NODE_BITS


_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


def topic_name(text: str) -> TopicName:
    """Admit `text` as a topic name, by Kafka's rules; raise `InvalidTopicName` otherwise."""
    if _TOPIC_NAME.fullmatch(text) is None or text in {".", ".."}:
        raise InvalidTopicName(text)
    return TopicName(text)


class TopicPartition(NamedTuple):
    """A partition as users name it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LogId(NamedTuple):
    """A partition as storage names it: by the topic's id, so no name ever becomes a path.

    A topic that is deleted and created again is another log.
    """

    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id.hex}-{self.partition}"

    @staticmethod
    def parse(text: str) -> "LogId":
        """Read what `str` wrote; raise `ValueError` for anything else."""
        topic_id, _, partition = text.rpartition("-")
        parsed = LogId(UUID(hex=topic_id), int(partition))
        if str(parsed) != text:
            raise ValueError(f"not a log id: {text!r}")
        return parsed


class Producer(NamedTuple):
    """A producer: an id that the cluster allocated, and how often its holder has changed."""

    producer_id: int
    epoch: int


NO_PRODUCER = Producer(-1, -1)

CONTROL_LOG = LogId(UUID(int=0), 0)


class LevelRange(NamedTuple):
    """The levels of the feature `cluster.version` that a version of Millstream knows."""

    lowest: int
    highest: int  # Inclusive.

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.lowest <= level <= self.highest

    def __str__(self) -> str:
        if self.lowest == self.highest:
            return f"level {self.lowest}"
        return f"levels {self.lowest} to {self.highest}"


# Of nodes that do not say which levels they know.
FIRST_LEVELS = LevelRange(1, 1)
# Level 2: the level itself is written down (`FinalizeLevel`), and an older node does not start.
CLUSTER_LEVELS = LevelRange(1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerIdentity:
    """How a node proves to its peers that it belongs to their cluster."""

    node_id: NodeId
    cluster_id: str
    directory_id: UUID  # Of its data: a wiped node comes back as another one.
    generation: int  # Of the cluster; an older one is refused after an unsafe recovery.
    key: bytes = field(repr=False)  # The cluster key, which all nodes share.


class Position(NamedTuple):
    """A place in a log: the epoch of the last boundary before it, and the offset it ends at.

    The offset alone does not name a place, because opening an epoch takes no offset. Ordered as
    elections need it: epoch first, then length.
    """

    epoch: Epoch
    end_offset: Offset


ORIGIN = Position(NO_EPOCH, 0)  # Before the first boundary: every log contains it.


class Boundary(NamedTuple):
    """Epoch `epoch` was opened when the log ended at `start_offset`, and these vote in it."""

    epoch: Epoch
    start_offset: Offset
    voters: frozenset[ReplicaId]


class AtRest(NamedTuple):
    """What the next start needs of a log, if it does not open it before it is used."""

    epoch: Epoch  # The last that was opened: a later one in the journal says that it was used.
    settings: int  # A digest of the settings, from which `due_ms` follows.
    due_ms: int | None  # When retention may have to act; None: never.
    segment_count: int
    size_bytes: int
    index_entries: int
    index_bytes_per_entry_max: int


class CleanEnd(NamedTuple):
    """Where a log ended when its node was last stopped in good order: all of it was synced."""

    end_offset: Offset
    base_offset: Offset  # Of its last segment, and the bytes in there; 0 if there is none.
    segment_bytes: int
    at_rest: AtRest | None = None  # None: the log is opened at the start.
    # The node was killed since that stop, and the log was not opened: a power cut may have left
    # bytes behind the end that were never acknowledged.
    may_have_tail: bool = False


class LastStop(NamedTuple):
    """How the node before this one left the data directory."""

    was_clean: bool = False
    ends: Mapping[str, CleanEnd] = MappingProxyType({})  # Of logs, by their directories' names.


class HardState(NamedTuple):
    """The durable state of a voter: the epoch it is in, and its vote in that epoch."""

    epoch: Epoch
    voted_for: ReplicaId | None


NEVER_VOTED = HardState(NO_EPOCH, None)


class Acks(Enum):
    """When an append is answered."""

    __hash__ = object.__hash__  # Enum's own is a Python call, and every append looks one up.

    NONE = 0  # Never.
    LEADER = 1  # Written on the leader.
    ALL = -1  # On stable storage on a majority of the replicas.


class Isolation(Enum):
    """How far a reader sees."""

    READ_UNCOMMITTED = 0  # To the high watermark.
    READ_COMMITTED = 1  # To the last stable offset.


CLIENT_ID_LENGTH_MAX = 256  # Longer ones are cut; quotas name client ids up to this length.


class Principal(NamedTuple):
    """A client as ACLs and the audit trail name it: `User:ann`, `Role:ops`, `Node:2`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @staticmethod
    def parse(text: str) -> "Principal":
        """Read what `str` wrote; raise `ValueError` for text without a kind or a name."""
        kind, _, name = text.partition(":")
        if not (kind and name):
            raise ValueError(f"{text[:100]!r} is not KIND:NAME, such as User:ann")
        return Principal(kind, name)


def user_principal(name: str) -> Principal:
    return Principal("User", name)


def node_principal(node: int) -> Principal:
    """A node, as the audit trail names it for acts of its own."""
    return Principal("Node", str(node))


ANONYMOUS = user_principal("ANONYMOUS")  # A client without a login, in Kafka's spelling.
# The broker's own acts and code in its process. No login leads here.
SYSTEM = Principal("System", "millstream")

PRINCIPAL_NAME_LENGTH_MAX = 256
NEVER_EXPIRES = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The client of a call: who it is, how that was proved, and the protocol it speaks."""

    principal: Principal = ANONYMOUS
    roles: tuple[str, ...] = ()
    mechanism: str = ""  # Such as `SCRAM-SHA-512`, `PLAIN`, `OAUTHBEARER`, `TLS`; empty: no login.
    listener: str = ""
    is_tls: bool = False
    expires_at: float = NEVER_EXPIRES  # By the loop's clock.
    client_id: str = ""
    address: str = ""
    protocol: str = "embedded"
    is_relayed: bool = False  # Another node passed the request on: it is served here or refused.


SYSTEM_SESSION = Session(principal=SYSTEM, protocol="internal")


_NONE: Mapping[int, Any] = MappingProxyType({})  # Of whatever values the field has.


class Appended(NamedTuple):
    """Where a batch went. For a duplicate: where the first copy of it had gone."""

    base_offset: Offset
    end_offset: Offset
    log_append_time_ms: int  # -1 unless the topic stamps batches with the broker's time.
    log_start_offset: Offset
    # By index in the batch: records that were there already, and where; -1 if that is not known in
    # this partition. If all are, the base offset is the first one's.
    duplicates: Mapping[int, Offset] = _NONE
    # By index in the batch: records that are delivered later, and their ids. If all are, the base
    # offset is -1.
    delayed: Mapping[int, str] = _NONE
