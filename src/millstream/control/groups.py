"""Groups and their committed offsets, as a fold over the records of one offsets partition.

Owns the keys, the values, their bytes, and what the newest record of every key adds up to. A null
value takes a key away. The one thing to know: keys are compared byte by byte by compaction, so
their spelling never changes; values carry a version, and may get further fields at their end.
Pure: who may write what, and when, is the engine's.
"""

from collections.abc import Iterator
from uuid import UUID

import msgspec

from millstream.errors import ProtocolError
from millstream.model import Offset, TopicPartition

NO_EPOCH_KNOWN = -1
_INT32_SIGN = 2**31


class GroupKey(msgspec.Struct, frozen=True, array_like=True, tag=0):
    group_id: str


class OffsetKey(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Tag 2 is kept free for offsets of open transactions."""

    group_id: str
    topic: str
    partition: int

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


AnyKey = GroupKey | OffsetKey


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


class StoredGroup:
    """What is committed about one group."""

    __slots__ = ("offsets", "value")

    def __init__(self) -> None:
        self.value: GroupValue | None = None  # None: only offsets were ever committed.
        self.offsets: dict[TopicPartition, OffsetValue] = {}


class GroupsState:
    """The fold: `apply` each record in order, tombstones included."""

    def __init__(self) -> None:
        self.skipped_count = 0  # Records that are not ours, or of a later version.
        self._groups: dict[str, StoredGroup] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def find(self, group_id: str) -> StoredGroup | None:
        return self._groups.get(group_id)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """A record that cannot be read changes nothing: anybody may have written it."""
        try:
            self._apply(_key_decoder.decode(key or b""), value)
        except msgspec.MsgspecError:
            self.skipped_count += 1

    def _apply(self, key: AnyKey, value: bytes | None) -> None:
        match key:
            case GroupKey(group_id):
                stored = None if value is None else _group_decoder.decode(value)
                self._keep(group_id).value = stored
            case OffsetKey(group_id) if value is None:
                self._keep(group_id).offsets.pop(key.target, None)
            case OffsetKey(group_id):
                offset = _offset_decoder.decode(value)
                self._keep(group_id).offsets[key.target] = offset
        self._drop_if_bare(key.group_id)

    def _keep(self, group_id: str) -> StoredGroup:
        stored = self._groups.get(group_id)
        if stored is None:
            stored = self._groups[group_id] = StoredGroup()
        return stored

    def _drop_if_bare(self, group_id: str) -> None:
        stored = self._groups[group_id]
        if stored.value is None and not stored.offsets:
            del self._groups[group_id]


def encode_key(key: AnyKey) -> bytes:
    return _encoder.encode(key)


def encode_value(value: GroupValue | OffsetValue) -> bytes:
    return _encoder.encode(value)


def check_text(*texts: str | None) -> None:
    """Refuse what cannot be spelled in UTF-8, before it is anywhere in a group."""
    try:
        for text in texts:
            (text or "").encode()
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
    """The offsets that nobody came back for.

    Of an empty group: from when it became empty, or from the commit if that was later. Of a group
    with members only what they are not subscribed to, and nothing if that is not known (None).
    """
    if not is_empty and subscribed is None:
        return []
    since_ms = stored.value.changed_ms if is_empty and stored.value is not None else 0
    return [
        target
        for target, value in stored.offsets.items()
        if now_ms - max(since_ms, value.committed_ms) >= retention_ms
        and (is_empty or target.topic not in (subscribed or ()))
    ]


_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_key_decoder = msgspec.msgpack.Decoder(AnyKey)
_group_decoder = msgspec.msgpack.Decoder(GroupValue)
_offset_decoder = msgspec.msgpack.Decoder(OffsetValue)
