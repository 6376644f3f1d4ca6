"""The members of a consumer group by member id and instance id, and the holders of partitions.

Owns the data, what of it is to be saved, and the rule that a partition has one holder; `group`
decides when it changes. Pure.
"""

from collections.abc import Iterator

from msgspec import Struct

from millstream.engine.groups.consumer.reconciliation import Holding
from millstream.errors.groups import FencedInstance, UnknownMember
from millstream.internal_topics.consumer_groups import (
    ConsumerKey,
    ConsumerValue,
    HoldingKey,
    SubscriptionKey,
    SubscriptionValue,
    TargetKey,
    TargetValue,
    listed,
)
from millstream.model import LogId

MemberKey = SubscriptionKey | TargetKey | HoldingKey


class Consumer(Struct, kw_only=True):
    member_id: str
    subscription: SubscriptionValue
    holding: Holding
    target: frozenset[LogId] = frozenset()
    deadline_ms: int = 0  # When its session ends.
    revoke_deadline_ms: int | None = None  # When it must have given up what it is to give up.
    matched_version: int | None = None  # The world in which its pattern was last looked up.

    @property
    def wake_ms(self) -> int:
        revoke_ms = self.revoke_deadline_ms
        return self.deadline_ms if revoke_ms is None else min(self.deadline_ms, revoke_ms)


class ConsumerRoster:
    def __init__(self, group_id: str) -> None:
        self.unsaved: set[MemberKey] = set()
        self._group_id = group_id
        self._members: dict[str, Consumer] = {}
        self._instances: dict[str, Consumer] = {}
        self._holders: dict[LogId, str] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._members.values())

    def get(self, member_id: str) -> Consumer | None:
        return self._members.get(member_id)

    def static(self, instance_id: str | None) -> Consumer | None:
        return None if instance_id is None else self._instances.get(instance_id)

    def find(self, member_id: str, instance_id: str | None = None) -> Consumer:
        """The member; raises if it is unknown or another member is that instance."""
        static = self.static(instance_id)
        if static is not None and static.member_id != member_id:
            raise FencedInstance(instance_id or "")
        member = self._members.get(member_id)
        if member is None:
            raise UnknownMember(member_id)
        return member

    def is_free(self, partition: LogId, member_id: str) -> bool:
        """Whether no other member holds it."""
        return self._holders.get(partition) in {None, member_id}

    def add(self, member: Consumer) -> None:
        assert member.member_id not in self._members
        assert not member.holding.partitions, "what it holds is to be set"
        self._members[member.member_id] = member
        if member.subscription.instance_id is not None:
            self._instances[member.subscription.instance_id] = member
        self._note_all(member)

    def remove(self, member: Consumer) -> None:
        self.set_holding(member, Holding())
        del self._members[member.member_id]
        if member.subscription.instance_id is not None:
            del self._instances[member.subscription.instance_id]
        self._note_all(member)

    def set_subscription(self, member: Consumer, subscription: SubscriptionValue) -> None:
        assert subscription.instance_id == member.subscription.instance_id
        member.subscription = subscription
        self.unsaved.add(SubscriptionKey(self._group_id, member.member_id))

    def set_target(self, member: Consumer, target: frozenset[LogId]) -> None:
        if target != member.target:
            member.target = target
            self.unsaved.add(TargetKey(self._group_id, member.member_id))

    def set_holding(self, member: Consumer, holding: Holding) -> None:
        if holding is member.holding:
            return
        had, has = set(member.holding.partitions), set(holding.partitions)
        for partition in had - has:
            del self._holders[partition]
        for partition in has - had:
            assert partition not in self._holders, f"{partition} is held already"
            self._holders[partition] = member.member_id
        member.holding = holding
        self.unsaved.add(HoldingKey(self._group_id, member.member_id))

    def changes(self) -> list[tuple[ConsumerKey, ConsumerValue | None]]:
        """The values to write, by key; None deletes a key."""
        return [(key, self._value(key)) for key in self.unsaved]

    def _value(self, key: MemberKey) -> ConsumerValue | None:
        member = self._members.get(key.member_id)
        if member is None:
            return None
        match key:
            case SubscriptionKey():
                return member.subscription
            case TargetKey():
                return TargetValue(listed(member.target))
            case HoldingKey():
                return member.holding.value()

    def _note_all(self, member: Consumer) -> None:
        for kind in (SubscriptionKey, TargetKey, HoldingKey):
            self.unsaved.add(kind(self._group_id, member.member_id))
