"""Stored state of consumer groups (KIP-848), whose partitions the broker assigns.

Owns the keys, the values and their fold; `groups` owns the encoding. A group has many records,
because it changes bit by bit: its epochs, and each member's subscription, target assignment and
current assignment. Pure.
"""

from collections.abc import Iterable
from enum import Enum
from uuid import UUID

import msgspec

from millstream.model import LogId

# Tags 0 to 2 are those of `groups`.


class ConsumersKey(msgspec.Struct, frozen=True, array_like=True, tag=3):
    group_id: str


class SubscriptionKey(msgspec.Struct, frozen=True, array_like=True, tag=4):
    group_id: str
    member_id: str


class TargetKey(msgspec.Struct, frozen=True, array_like=True, tag=5):
    group_id: str
    member_id: str


class HoldingKey(msgspec.Struct, frozen=True, array_like=True, tag=6):
    group_id: str
    member_id: str


ConsumerKey = ConsumersKey | SubscriptionKey | TargetKey | HoldingKey


class ConsumersValue(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=0):
    """The group itself. `topics_hash` is of all that its members read when its epoch was set."""

    epoch: int
    target_epoch: int
    assignor: str
    topics_hash: bytes
    changed_ms: int


class SubscriptionValue(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=0):
    """A member and its subscription. `matched` are the topics that its pattern matches."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    names: tuple[str, ...]
    pattern: str  # Empty: it has none.
    matched: tuple[str, ...]
    assignor: str | None

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self.names + self.matched)


class TopicShare(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic; with each of them a number, where there is something to say."""

    topic_id: UUID
    partitions: tuple[int, ...]
    numbers: tuple[int, ...] = ()


class TargetValue(msgspec.Struct, frozen=True, array_like=True, tag=0):
    shares: tuple[TopicShare, ...]


class HoldingState(Enum):
    """How far a member has come with what it is to have."""

    STABLE = "stable"  # It has all of it, or nothing was asked of it yet.
    UNREVOKED = "unrevoked"  # It must first give up what others are to have.
    UNRELEASED = "unreleased"  # It waits for what others have yet to give up.


class HoldingValue(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=0):
    """Where a member is on its way to its target: `assigned` with the epochs it got them in."""

    state: HoldingState
    epoch: int
    previous_epoch: int
    assigned: tuple[TopicShare, ...]
    revoking: tuple[TopicShare, ...]


ConsumerValue = ConsumersValue | SubscriptionValue | TargetValue | HoldingValue


class StoredConsumers:
    """The committed state of one consumer group. Without `value` it is none."""

    __slots__ = ("holdings", "subscriptions", "targets", "value")

    def __init__(self) -> None:
        self.value: ConsumersValue | None = None
        self.subscriptions: dict[str, SubscriptionValue] = {}
        self.targets: dict[str, TargetValue] = {}
        self.holdings: dict[str, HoldingValue] = {}

    @property
    def is_bare(self) -> bool:
        return not (self.value or self.subscriptions or self.targets or self.holdings)

    def apply(self, key: ConsumerKey, data: bytes | None) -> None:
        """Raises `msgspec.MsgspecError` for a value that cannot be read, and changes nothing."""
        match key:
            case ConsumersKey():
                self.value = None if data is None else _group_decoder.decode(data)
            case SubscriptionKey(_, member_id) if data is not None:
                self.subscriptions[member_id] = _subscription_decoder.decode(data)
            case TargetKey(_, member_id) if data is not None:
                self.targets[member_id] = _target_decoder.decode(data)
            case HoldingKey(_, member_id) if data is not None:
                self.holdings[member_id] = _holding_decoder.decode(data)
            case SubscriptionKey(_, member_id):
                self.subscriptions.pop(member_id, None)
            case TargetKey(_, member_id):
                self.targets.pop(member_id, None)
            case HoldingKey(_, member_id):
                self.holdings.pop(member_id, None)

    def keys(self, group_id: str) -> list[ConsumerKey]:
        """The keys of all that is stored here."""
        keys: list[ConsumerKey] = [ConsumersKey(group_id)] if self.value else []
        keys += [SubscriptionKey(group_id, member_id) for member_id in self.subscriptions]
        keys += [TargetKey(group_id, member_id) for member_id in self.targets]
        keys += [HoldingKey(group_id, member_id) for member_id in self.holdings]
        return keys


def packed(partitions: Iterable[tuple[LogId, int]]) -> tuple[TopicShare, ...]:
    """Partitions and their numbers by topic, in order."""
    by_topic: dict[UUID, list[tuple[int, int]]] = {}
    for (topic_id, index), number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append((index, number))
    return tuple(
        TopicShare(topic_id, *(tuple(column) for column in zip(*rows, strict=True)))
        for topic_id, rows in by_topic.items()
    )


def unpacked(shares: Iterable[TopicShare]) -> dict[LogId, int]:
    return {
        LogId(share.topic_id, index): number
        for share in shares
        for index, number in zip(share.partitions, share.numbers, strict=False)
    }


def listed(partitions: Iterable[LogId]) -> tuple[TopicShare, ...]:
    """Partitions by topic, in order, without numbers."""
    return tuple(
        TopicShare(share.topic_id, share.partitions)
        for share in packed((partition, 0) for partition in partitions)
    )


def unlisted(shares: Iterable[TopicShare]) -> frozenset[LogId]:
    return frozenset(LogId(share.topic_id, index) for share in shares for index in share.partitions)


_group_decoder = msgspec.msgpack.Decoder(ConsumersValue)
_subscription_decoder = msgspec.msgpack.Decoder(SubscriptionValue)
_target_decoder = msgspec.msgpack.Decoder(TargetValue)
_holding_decoder = msgspec.msgpack.Decoder(HoldingValue)
