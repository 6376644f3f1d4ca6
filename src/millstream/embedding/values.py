"""Values that an embedded broker takes and returns, free of the engine's types."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.model import TopicPartition


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to be appended. Without a timestamp it gets the time of the broker."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as it was read."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Fetched records. `next_offset` also skips control and aborted records."""

    records: tuple[Record, ...]
    next_offset: int
    start_offset: int  # Of the partition.
    end_offset: int  # Of the partition, as far as readers may see.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDetails:
    partition: int
    leader: int | None
    start_offset: int
    end_offset: int
    size_bytes: int

    @property
    def record_count(self) -> int:
        """Offsets between start and end; fewer records where some were compacted away."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDetails:
    name: str
    topic_id: str
    partitions: tuple[PartitionDetails, ...]
    is_internal: bool
    settings: Mapping[str, str] = field(default_factory=dict)  # Only what was set for it.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListed:
    group_id: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    offset: int
    end_offset: int | None  # None for a topic that is gone.
    metadata: str

    @property
    def lag(self) -> int:
        return 0 if self.end_offset is None else max(0, self.end_offset - self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetails:
    group_id: str
    state: str
    members: tuple[GroupMember, ...]
    offsets: Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatistics:
    group_id: str
    state: str
    member_count: int
    partition_count: int  # With a committed offset.
    lag_total: int
    lag_max: int
