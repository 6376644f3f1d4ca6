"""Values that the client returns; they cannot change.

Owns the shapes of records, topics, groups and transactions as users see them. Offsets named `end`
are exclusive: the offset that the next record will get. Times are milliseconds since 1970.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypedDict

from millstream.client.errors import Refused

if TYPE_CHECKING:
    # Defaults of type variables are Python 3.13's; checkers know them by this name before.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

# Where a reader begins: an end of the log, a moment, or an offset in every partition.
StartPoint = Literal["earliest", "latest"] | datetime | int
Headers = Mapping[str, bytes | str | None] | list[tuple[str, bytes | str | None]]


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMetadata:
    """The place of a record. The offset is -1 without acks, and while the record is delayed."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def timestamp(self) -> datetime:
        return moment(self.timestamp_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Generic[K, V]):
    """A record that was read. Headers keep their order and may repeat.

    `Message` alone has any key and value; `Message[str, Order]` says what the serdes give.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K
    value: V
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def timestamp(self) -> datetime:
        return moment(self.timestamp_ms)

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def header(self, name: str) -> bytes | None:
        """The last header of that name, which is the one that counts, or None."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    cluster_id: str
    controller_id: int | None
    nodes: tuple[BrokerNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A line of the list of topics."""

    name: str
    partition_count: int
    replication_factor: int
    is_internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    partition: int
    leader_id: int | None
    replica_ids: tuple[int, ...]
    in_sync_ids: tuple[int, ...]
    begin_offset: int
    end_offset: int

    @property
    def offset_count(self) -> int:
        """Offsets in use: the number of records, but for those compacted away and markers."""
        return self.end_offset - self.begin_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """`origin` is where the value comes from: topic, broker, default, ..."""

    name: str
    value: str | None
    origin: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A topic that shows those records of `topic` which the filter `where` takes."""

    name: str
    topic: str
    where: str
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[Partition, ...]
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A line of the list of groups. `kind` is classic or consumer."""

    group_id: str
    state: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    state: str
    kind: str
    assignor: str
    coordinator_id: int | None
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a group is behind in one partition. Not committed yet: counted from the beginning."""

    topic: str
    partition: int
    committed_offset: int | None
    begin_offset: int
    end_offset: int
    member_id: str | None

    @property
    def records(self) -> int:
        at = self.begin_offset if self.committed_offset is None else self.committed_offset
        return max(0, self.end_offset - max(at, self.begin_offset))


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterFigures:
    """What reads through a filter took of the log, by all readers since the broker's start."""

    read_bytes: int
    skipped_bytes: int  # That an index of keys and headers spared them; an estimate.


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageProblem:
    """A partition whose storage refuses: for the moment, or until its node is started again."""

    topic: str
    partition: int
    is_disk_full: bool
    is_transient: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """One log as its node sees it. Readers see what is from `low_watermark` to `high_watermark`,
    those of committed records only what is before `last_stable_offset`.
    """

    partition: int
    leader_id: int | None
    leader_epoch: int
    low_watermark: int
    high_watermark: int  # All before it is on enough nodes, and stays.
    last_stable_offset: int  # Before the first record of an open transaction.
    end_offset: int
    segment_count: int
    size_bytes: int
    index_entries: int
    index_stretch_bytes_max: int  # The most that a search has to walk behind an entry.
    index_gaps: int  # Segments whose index is not on disk.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How far a group is behind, where it has committed something."""

    group_id: str
    partition: int
    committed_offset: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHealth:
    topic: str
    partitions: tuple[PartitionHealth, ...]
    lags: tuple[GroupLag, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that was given up. Key, value and headers are the bytes as they are."""

    topic: str  # The one with the dead letters; `partition` and `offset` are in there.
    partition: int
    offset: int
    timestamp_ms: int  # When it was given up.
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    origin_topic: str
    origin_partition: int
    origin_offset: int
    group: str  # The subscription or group that gave it up; empty if it has no name.
    attempts: int
    reason: str
    error: str

    @property
    def timestamp(self) -> datetime:
        return moment(self.timestamp_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterStatistics:
    """The waiting letters of a dead-letter topic, by reason and group."""

    topic: str
    waiting: int
    by_reason: Mapping[str, int]
    by_group: Mapping[str, int]
    oldest_ms: int | None
    newest_ms: int | None
    is_complete: bool  # False: there are more than the broker counts.


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """The result of a redrive; after a dry run, its plan."""

    sent: int
    skipped: int  # Not wanted, or their topic is gone.


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed:
    """A record that waits for its time. `id` is what it is cancelled by."""

    id: str
    topic: str
    partition: int
    due_ms: int

    @property
    def due(self) -> datetime:
        return moment(self.due_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedRecord(Delayed):
    """The same with what will be delivered, as the bytes that it is."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class DelayedPage:
    """Some that wait, and where the next ones begin."""

    records: tuple[Delayed, ...]
    next_after: str | None  # None: there are no more.


def moment(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def milliseconds(when: datetime) -> int:
    """A time without a zone is local time, as everywhere in Python."""
    try:
        return round(when.timestamp() * 1000)
    except (ValueError, OverflowError):  # In the first year or the last, by the zone.
        raise Refused(f"{when} is no time that can be counted from 1970") from None


@dataclass(frozen=True, slots=True)
class User:
    """A user of the cluster; `mechanisms` are those of its password."""

    name: str
    roles: tuple[str, ...]
    is_enabled: bool
    mechanisms: tuple[str, ...]
    created_ms: int
    updated_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEntry:
    """A rule: `principal` is allowed or denied an operation on a resource, from a host."""

    principal: str
    permission: str = "allow"
    operation: str
    resource: str
    name: str
    pattern: str = "literal"
    host: str = "*"


@dataclass(frozen=True, slots=True)
class AclExplanation:
    """Whether something is allowed, and the rule that decides it."""

    is_allowed: bool
    rule: str


class AuditFilter(TypedDict, total=False):
    """Which events of the audit trail are meant; what is left out means all."""

    start: datetime
    end: datetime
    events: Sequence[str]
    principal: str
    resource: str
    result: str
    search: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """An event of the audit trail."""

    id: str
    time: datetime
    event: str
    result: str  # `success`, `failure` or `denied`.
    principal: str
    roles: tuple[str, ...]
    mechanism: str
    listener: str
    protocol: str
    address: str
    client_id: str
    action: str
    operation: str
    resource: str
    rule: str  # That decided about a right.
    count: int  # Of equal events that are one.
    node: int
    details: Mapping[str, Any]
    json: str  # As it is stored: a CloudEvent.


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerdict:
    """What a verification of the audit trail has found; no problems: the chain is whole."""

    event_count: int
    heads: Mapping[int, str]  # By node: the end of its chain.
    problems: tuple[str, ...]


DEFAULT_ENTITY = "<default>"  # All users, client ids or addresses without a quota of their own.


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What a user, a client id, both together, or an address may use a second."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None
    limits: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Role:
    """A role and its users; its rights are ACLs of `Role:NAME`."""

    name: str
    description: str
    is_built_in: bool
    users: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the broker takes a client for, and by which proof; no `mechanism`: by none."""

    principal: str
    roles: tuple[str, ...]
    mechanism: str
    listener: str
    is_tls: bool
    address: str
