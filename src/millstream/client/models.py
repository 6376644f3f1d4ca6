"""What a client gets back: values that cannot change.

Owns the shapes of records, topics, groups and transactions as users see them. Offsets named `end`
are exclusive: the offset that the next record will get. Times are milliseconds since 1970.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

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
    """Where an acknowledged record is. Without acks, the offset is not known: -1."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def timestamp(self) -> datetime:
        return moment(self.timestamp_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A record that was read. Headers keep their order and may repeat."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    # What the serde makes of the bytes is known when the program runs, not before.
    key: Any
    value: Any
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


def moment(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def milliseconds(when: datetime) -> int:
    """A time without a zone is local time, as everywhere in Python."""
    return round(when.timestamp() * 1000)
