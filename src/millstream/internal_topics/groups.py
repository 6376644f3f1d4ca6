"""Groups and their committed offsets, as a fold over the records of one offsets partition.

Owns the keys, the values, their bytes and the fold. A null value removes a key. Offsets of a
transaction are pending until its marker. Pure: the engine decides what is written.

Invariant: the encoding of a key never changes, because compaction compares keys byte by byte;
values carry a version, and may get further fields at their end.
"""

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

import msgspec

from millstream.codec.markers import ControlKind, Marker
from millstream.codec.records import Record
from millstream.errors import InvalidRequest, ProtocolError
from millstream.internal_topics.consumer_groups import ConsumerKey, ConsumerValue, StoredConsumers
from millstream.model import Offset, TopicPartition

NO_EPOCH_KNOWN = -1
# A string of Kafka's older versions has 32767 bytes; a member id has 37 more than its instance id.
TEXT_BYTES_MAX = 2**15 - 1 - 37
_INT32_SIGN = 2**31


class GroupKey(msgspec.Struct, frozen=True, array_like=True, tag=0):
    group_id: str


class OffsetKey(msgspec.Struct, frozen=True, array_like=True, tag=1):
    group_id: str
    topic: str
    partition: int

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


AnyKey = GroupKey | OffsetKey | ConsumerKey


class Protocol(msgspec.Struct, frozen=True, array_like=True):
    """A way to share the work that a member offers, with what it says about itself there."""

    name: str
    metadata: bytes


class MemberValue(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes


class GroupValue(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=0):
    """A generation as its members know it, from the moment they have their assignments."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    changed_ms: int
    members: tuple[MemberValue, ...]


class OffsetValue(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=0):
    """Where a group will go on. It counts only for the topic of that id, not for a namesake."""

    offset: Offset
    leader_epoch: int
    metadata: str
    committed_ms: int
    topic_id: UUID


class PendingOffset(NamedTuple):
    """An offset of an open transaction; a `value` of None deletes it on commit."""

    position: Offset  # Where it stands in the log: a later record of the same key beats it.
    value: OffsetValue | None


class StoredGroup:
    """The committed state of one group, and offsets of open transactions."""

    __slots__ = ("consumers", "offsets", "pending", "value")

    def __init__(self) -> None:
        self.value: GroupValue | None = None  # None: it is no classic group.
        self.consumers: StoredConsumers | None = None  # None: it is no consumer group either.
        self.offsets: dict[TopicPartition, OffsetValue] = {}
        self.pending: dict[TopicPartition, dict[int, PendingOffset]] = {}  # Then by producer id.

    @property
    def is_bare(self) -> bool:
        is_known = self.value is not None or self.consumers is not None
        return not is_known and not self.offsets and not self.pending

    @property
    def changed_ms(self) -> int:
        """When its members were last others; 0 if it has none to speak of."""
        if self.consumers is not None and self.consumers.value is not None:
            return self.consumers.value.changed_ms
        return 0 if self.value is None else self.value.changed_ms


class GroupsState:
    """The fold: `apply` each record in order, tombstones included; `pend` those of a transaction,
    and `end` it where its marker stands.

    Of two records of a key the later one counts, whichever was decided first: as compaction does
    it, which knows positions only. So a committed record of a key drops all older pending ones.
    """

    def __init__(self) -> None:
        self._groups: dict[str, StoredGroup] = {}
        self._open: dict[int, set[OffsetKey]] = {}  # What each producer has pending.

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def find(self, group_id: str) -> StoredGroup | None:
        return self._groups.get(group_id)

    def apply(self, record: Record) -> None:
        """A record that cannot be read changes nothing and raises what its decoder does."""
        key = _key_decoder.decode(record.key or b"")
        match key:
            case GroupKey(group_id):
                value = None if record.value is None else _group_decoder.decode(record.value)
                self._keep(group_id).value = value
                self._drop_if_bare(group_id)
            case OffsetKey():
                self._resolve(key, PendingOffset(record.offset, _decode_offset(record.value)))
            case _:
                self._apply_to_consumers(key, record.value)

    def pend(self, record: Record, producer_id: int) -> None:
        """Take an offset of an open transaction; nothing else is written in one. Raises like
        `apply`."""
        key = _offset_key_decoder.decode(record.key or b"")
        pending = PendingOffset(record.offset, _decode_offset(record.value))
        self._keep(key.group_id).pending.setdefault(key.target, {})[producer_id] = pending
        self._open.setdefault(producer_id, set()).add(key)

    def end(self, marker: Marker) -> None:
        """A producer's transaction is over: what it has pending counts, or never did."""
        for key in list(self._open.get(marker.producer_id, ())):
            pending = self._take(key, marker.producer_id)
            if marker.kind is ControlKind.COMMIT:
                self._resolve(key, pending)
            else:
                self._drop_if_bare(key.group_id)

    def _apply_to_consumers(self, key: ConsumerKey, value: bytes | None) -> None:
        stored = self._keep(key.group_id)
        consumers = stored.consumers or StoredConsumers()
        try:
            consumers.apply(key, value)
        finally:
            stored.consumers = None if consumers.is_bare else consumers
            self._drop_if_bare(key.group_id)

    def _resolve(self, key: OffsetKey, decided: PendingOffset) -> None:
        stored = self._keep(key.group_id)
        if decided.value is None:
            stored.offsets.pop(key.target, None)
        else:
            stored.offsets[key.target] = decided.value
        for producer_id, pending in list(stored.pending.get(key.target, {}).items()):
            if pending.position < decided.position:
                self._take(key, producer_id)
        self._drop_if_bare(key.group_id)

    def _take(self, key: OffsetKey, producer_id: int) -> PendingOffset:
        """Remove and return the pending offset of a producer."""
        by_target = self._groups[key.group_id].pending
        by_producer = by_target[key.target]
        pending = by_producer.pop(producer_id)
        if not by_producer:
            del by_target[key.target]
        keys = self._open[producer_id]
        keys.remove(key)
        if not keys:
            del self._open[producer_id]
        return pending

    def _keep(self, group_id: str) -> StoredGroup:
        stored = self._groups.get(group_id)
        if stored is None:
            stored = self._groups[group_id] = StoredGroup()
        return stored

    def _drop_if_bare(self, group_id: str) -> None:
        if self._groups[group_id].is_bare:
            del self._groups[group_id]


def encode_key(key: AnyKey) -> bytes:
    return _encoder.encode(key)


def encode_value(value: GroupValue | OffsetValue | ConsumerValue) -> bytes:
    return _encoder.encode(value)


def check_readable(key: bytes | None, value: bytes | None) -> None:
    """Raise what `GroupsState.apply` would raise for a record that it cannot read."""
    match _key_decoder.decode(key or b""):
        case GroupKey():
            if value is not None:
                _group_decoder.decode(value)
        case OffsetKey():
            _decode_offset(value)
        case other:
            StoredConsumers().apply(other, value)


def check_text(*texts: str | None) -> None:
    """Refuse what is not UTF-8, or too long for a string of Kafka, before it is in a group."""
    try:
        for text in texts:
            size = len((text or "").encode())
            if size > TEXT_BYTES_MAX:
                raise InvalidRequest(f"a name of {size} bytes, at most {TEXT_BYTES_MAX}")
    except UnicodeEncodeError as problem:
        raise ProtocolError(f"text that is no Unicode: {problem.reason}") from problem


def partition_for(group_id: str, partition_count: int) -> int:
    """The offsets partition of a group: Java's hash of its id, because Kafka's tools compute it."""
    code = 0
    units = group_id.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    if code >= _INT32_SIGN:
        code = 2 * _INT32_SIGN - code
    # The least integer has no absolute value in Java; there Kafka takes 0.
    return 0 if code == _INT32_SIGN else code % partition_count


def expired_offsets(
    stored: StoredGroup,
    *,
    now_ms: int,
    retention_ms: int,
    is_empty: bool,
    subscribed: frozenset[str] | None,
) -> list[TopicPartition]:
    """The offsets past their retention.

    Of an empty group: from when it became empty, or from the commit if that was later. Of a group
    with members only what they are not subscribed to, and nothing if that is not known (None). None
    that a transaction is about to replace.
    """
    if not is_empty and subscribed is None:
        return []
    since_ms = stored.changed_ms if is_empty else 0
    return [
        target
        for target, value in stored.offsets.items()
        if now_ms - max(since_ms, value.committed_ms) >= retention_ms
        and (is_empty or target.topic not in (subscribed or ()))
        and target not in stored.pending
    ]


def _decode_offset(value: bytes | None) -> OffsetValue | None:
    return None if value is None else _offset_decoder.decode(value)


_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_key_decoder = msgspec.msgpack.Decoder(AnyKey)
_offset_key_decoder = msgspec.msgpack.Decoder(OffsetKey)
_group_decoder = msgspec.msgpack.Decoder(GroupValue)
_offset_decoder = msgspec.msgpack.Decoder(OffsetValue)
