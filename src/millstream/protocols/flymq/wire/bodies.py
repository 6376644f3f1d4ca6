"""The bodies of the FlyMQ protocol, as they lie on the wire, but for those about users.

Owns the layouts, in the order of the opcodes; `shapes` encodes them and `frames` maps opcodes to
them. Where the two client libraries of FlyMQ disagree, the layout is one that both decode.
"""

from typing import Annotated, NamedTuple

from millstream.protocols.flymq.wire.shapes import (
    I32,
    I64,
    U32,
    U64,
    Bool,
    Bytes4,
    Name2,
    Str1,
    Str2,
    Uncounted,
)

# -- shared by several ---------------------------------------------------------------------------


class Nothing(NamedTuple):
    """An empty payload."""


class Done(NamedTuple):
    """A single byte that says yes."""

    success: Bool


class Message(NamedTuple):
    success: Bool
    message: Str2


class RecordMetadata(NamedTuple):
    """Where a record went."""

    topic: Str2
    partition: I32
    offset: U64
    timestamp_ms: I64
    key_bytes: I32  # -1 without a key.
    value_bytes: I32


class TopicOnly(NamedTuple):
    topic: Str2


class TopicOrAll(NamedTuple):
    topic: Str2 = ""


class Failure(NamedTuple):
    """The body of an error frame. There is one code only."""

    code: I32
    message: Str2


# -- records and topics --------------------------------------------------------------------------


class Produce(NamedTuple):
    topic: Str2
    key: Bytes4  # Empty: none.
    value: Bytes4
    partition: I32  # Negative: as the key says.


class Consume(NamedTuple):
    topic: Str2
    partition: I32
    offset: U64


class Consumed(NamedTuple):
    key: Bytes4
    value: Bytes4


class CreateTopic(NamedTuple):
    topic: Str2
    partitions: I32


class PartitionMetadata(NamedTuple):
    partition: I32
    leader_id: I32
    oldest_offset: U64
    next_offset: U64


class TopicMetadata(NamedTuple):
    topic: Str2
    partitions: tuple[PartitionMetadata, ...]


class Subscribe(NamedTuple):
    topic: Str2
    group: Str2
    partition: I32
    mode: Str1


class Place(NamedTuple):
    offset: U64


class Commit(NamedTuple):
    topic: Str2
    group: Str2
    partition: I32
    offset: U64


class Fetch(NamedTuple):
    topic: Str2
    partition: I32
    offset: U64
    count_max: I32
    filter: Str2 = ""


class FetchedRecord(NamedTuple):
    offset: U64
    key: Bytes4
    value: Bytes4


class Fetched(NamedTuple):
    """The count stands before the offset, so the records stand without one of their own."""

    record_count: U32
    next_offset: U64
    records: Annotated[tuple[FetchedRecord, ...], Uncounted]


class Topics(NamedTuple):
    topics: tuple[Str2, ...]


# -- schemas -------------------------------------------------------------------------------------


class RegisterSchema(NamedTuple):
    name: Str2
    kind: Str1
    definition: Bytes4


class Schema(NamedTuple):
    name: Str2
    kind: Str1
    version: U32


class Schemas(NamedTuple):
    schemas: tuple[Schema, ...]


class SchemaVersion(NamedTuple):
    name: Str2
    version: U32


class SchemaNameOrAll(NamedTuple):
    name: Str2 = ""


class Validate(NamedTuple):
    name: Str2
    message: Bytes4


class Validated(NamedTuple):
    is_valid: Bool
    errors: tuple[Str2, ...]


class ProduceWithSchema(NamedTuple):
    """As FlyMQ's Go client orders it."""

    topic: Str2
    schema: Name2
    value: Bytes4


class ProduceWithSchemaLast(NamedTuple):
    """As its Python and Java clients do."""

    topic: Str2
    value: Bytes4
    schema: Name2


# -- dead letters, delays and transactions -------------------------------------------------------


class FetchDeadLetters(NamedTuple):
    topic: Str2
    count_max: U32


class DeadLetter(NamedTuple):
    id: Str2
    value: Bytes4
    error: Str2
    attempts: I32


class DeadLetters(NamedTuple):
    letters: tuple[DeadLetter, ...]


class ReplayById(NamedTuple):
    topic: Str2
    id: Name2


class ReplayByOffset(NamedTuple):
    topic: Str2
    offset: U64


class Replayed(NamedTuple):
    """A message that reads as empty whether its length is thought to have two bytes or four."""

    success: Bool
    message_bytes: U32  # Always 0.


class ProduceDelayed(NamedTuple):
    topic: Str2
    value: Bytes4
    delay_ms: U64


class DelayedMetadata(NamedTuple):
    """Record metadata, and behind it a field that no client of FlyMQ's reads: how to cancel it."""

    topic: Str2
    partition: I32
    offset: U64
    timestamp_ms: I64
    key_bytes: I32
    value_bytes: I32
    id: Str2


class CancelDelayed(NamedTuple):
    id: Str2


class ProduceWithTtl(NamedTuple):
    topic: Str2
    value: Bytes4
    ttl_ms: U64


class TransactionId(NamedTuple):
    transaction: Str2


class TransactionOutcome(NamedTuple):
    transaction: Str2
    success: Bool


class ProduceInTransaction(NamedTuple):
    transaction: Str2
    topic: Str2
    value: Bytes4


# -- cluster -------------------------------------------------------------------------------------


class JoinCluster(NamedTuple):
    peer: Str2


class ClusterStatus(NamedTuple):
    cluster_id: Str2
    node_id: Str2
    state: Str2
    nodes: U32
    topics: U32
    partitions: U32


class PlacedPartition(NamedTuple):
    partition: I32
    leader_id: Str2
    leader_address: Str2
    epoch: U64
    state: Str2
    replicas: tuple[Str2, ...]
    in_sync: tuple[Str2, ...]


class PlacedTopic(NamedTuple):
    topic: Str2
    partitions: tuple[PlacedPartition, ...]


class ClusterMetadata(NamedTuple):
    cluster_id: Str2
    topics: tuple[PlacedTopic, ...]


# -- groups --------------------------------------------------------------------------------------


class GroupPartition(NamedTuple):
    topic: Str2
    group: Str2
    partition: I32


class ResetOffset(NamedTuple):
    topic: Str2
    group: Str2
    partition: I32
    mode: Str1
    offset: U64 = 0  # Only for the mode "offset".


class GroupOfTopic(NamedTuple):
    topic: Str2
    group: Str2


class GroupOffset(NamedTuple):
    partition: I32
    offset: U64


class Group(NamedTuple):
    topic: Str2
    group: Str2
    members: U32
    offsets: tuple[GroupOffset, ...]


class Groups(NamedTuple):
    groups: tuple[Group, ...]


class Lag(NamedTuple):
    current: U64
    committed: U64
    latest: U64
    lag: U64


class SeekToTimestamp(NamedTuple):
    topic: Str2
    partition: I32
    timestamp_ms: I64
