"""A consumer group without a broker: topics, time, a log of what was saved, and its readers."""

from typing import Any
from uuid import UUID

from msgspec.structs import replace

from millstream.engine.filters.name_patterns import Pattern
from millstream.engine.groups.consumer.group import ConsumerGroup
from millstream.engine.groups.consumer.reconciliation import AWAY, JOINING, LEAVING
from millstream.engine.groups.consumer.vocabulary import Beat, Beaten, ConsumerRules
from millstream.internal_topics.consumer_groups import StoredConsumers
from millstream.internal_topics.groups import encode_value
from millstream.model import LogId

GROUP = "billing"
REBALANCE_MS = 60_000


class Topics:
    """The world as a group sees it."""

    def __init__(self, **counts: int) -> None:
        self.version = 0
        self._made = 0
        self._topics: dict[str, tuple[UUID, int]] = {}
        for name, count in counts.items():
            self.put(name, count)

    def put(self, name: str, count: int) -> None:
        self._made += 1
        topic_id = self._topics.get(name, (UUID(int=self._made), 0))[0]
        self._topics[name] = (topic_id, count)
        self.version += 1

    def remove(self, name: str) -> None:
        if self._topics.pop(name, None) is not None:
            self.version += 1

    def find(self, name: str) -> tuple[UUID, int] | None:
        return self._topics.get(name)

    def matching(self, pattern: str) -> tuple[str, ...]:
        compiled = Pattern(pattern)
        return tuple(name for name in sorted(self._topics) if compiled.matches(name))

    def partitions(self, *names: str) -> frozenset[LogId]:
        collected = [self._topics[name] for name in names or self._topics if name in self._topics]
        return frozenset(
            LogId(topic_id, at) for topic_id, count in collected for at in range(count)
        )


class Hall:
    """One group on hand-wound time."""

    def __init__(self, topics: Topics | None = None, rules: ConsumerRules | None = None) -> None:
        self.topics = topics or Topics(orders=4)
        self.rules = rules or ConsumerRules()
        self.group = ConsumerGroup(GROUP, self.rules)
        self.stored = StoredConsumers()
        self.now_ms = 0

    def beat(self, request: Beat) -> Beaten:
        try:
            if request.epoch in {LEAVING, AWAY}:
                return self.group.leave(request, self.now_ms)
            return self.group.beat(request, self.topics, self.now_ms)
        finally:
            self.save()

    def save(self) -> None:
        for key, value in self.group.changes(changed_ms=self.now_ms):
            self.stored.apply(key, None if value is None else encode_value(value))
        self.group.saved()

    def restart(self) -> None:
        """Nothing but what was saved is left."""
        if self.stored.value is not None:
            self.group = ConsumerGroup.restore(GROUP, self.stored, self.rules, now_ms=self.now_ms)

    def pass_ms(self, span_ms: int) -> list[str]:
        """Let time pass, and the group notice in time; return who had to go."""
        end_ms = self.now_ms + span_ms
        gone: list[str] = []
        while self.group.wake_ms is not None and self.group.wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.group.wake_ms)
            gone += self.group.tick(self.now_ms)
            self.save()
        self.now_ms = end_ms
        return gone


class Reader:
    """A member that does as it is told, except where a test says otherwise."""

    def __init__(self, hall: Hall, member_id: str, *names: str, **settings: Any) -> None:
        self.hall = hall
        self.joining = Beat(
            member_id=member_id,
            epoch=JOINING,
            rebalance_timeout_ms=REBALANCE_MS,
            names=names or ("orders",),
            owned=frozenset(),
        )
        self.joining = replace(self.joining, **settings)
        self.member_id = member_id
        self.epoch = JOINING
        self.owned: frozenset[LogId] = frozenset()

    @property
    def identity(self) -> Beat:
        return Beat(
            member_id=self.member_id, epoch=self.epoch, instance_id=self.joining.instance_id
        )

    def join(self, *, is_answer_lost: bool = False) -> Beaten:
        self.epoch, self.owned = JOINING, frozenset()
        return self._say(self.joining, is_answer_lost=is_answer_lost)

    def beat(
        self, *, is_answer_lost: bool = False, is_slow: bool = False, **changes: Any
    ) -> Beaten:
        """A heartbeat that says what it owns. One that is slow goes on as before for now."""
        owned = self.owned
        said = replace(self.identity, owned=owned)
        answer = self._say(replace(said, **changes), is_answer_lost=is_answer_lost)
        if is_slow:
            self.owned = owned
        return answer

    def leave(self, epoch: int = LEAVING) -> Beaten:
        self.owned = frozenset()
        return self.hall.beat(replace(self.identity, epoch=epoch))

    def _say(self, request: Beat, *, is_answer_lost: bool) -> Beaten:
        answer = self.hall.beat(request)
        if not is_answer_lost:
            self.epoch = answer.epoch
            if answer.assignment is not None:
                self.owned = answer.assignment
        return answer


def settle(*readers: Reader, rounds_max: int = 10) -> None:
    """Let everyone beat until nothing changes."""
    for _ in range(rounds_max):
        before = [(reader.epoch, reader.owned) for reader in readers]
        for reader in readers:
            reader.beat()
        if before == [(reader.epoch, reader.owned) for reader in readers]:
            return
    raise AssertionError("the group does not come to rest")
