"""Topics: their ids, partitions, placement and settings, as a fold over commands.

Owns the rules of what may be created, changed and deleted. Pure: replies and refusals follow from
the command and the state alone, so they are the same on every node.
"""

from typing import assert_never
from uuid import UUID

import msgspec

from millstream.control.commands import (
    AddPartitions,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    Replicas,
    TopicCommand,
)
from millstream.errors import InvalidPartitions, TopicExists, TopicNameCollides, UnknownTopic
from millstream.model import LogId, topic_name
from millstream.settings import TopicSettings, with_overrides


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    topic_id: UUID
    placement: tuple[Replicas, ...]
    overrides: dict[str, str]  # Only what differs from the defaults.
    created_ms: int

    @property
    def partition_count(self) -> int:
        return len(self.placement)

    def log(self, partition: int) -> LogId:
        if not 0 <= partition < len(self.placement):
            raise UnknownTopic(f"{self.name}-{partition}")
        return LogId(self.topic_id, partition)

    def settings(self, defaults: TopicSettings) -> TopicSettings:
        return with_overrides(defaults, self.overrides)


class Catalog:
    """All topics. `apply` changes it and returns the topic, or raises and changes nothing."""

    def __init__(self) -> None:
        self.version = 0  # Grows with every change.
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._spelling: dict[str, str] = {}  # Names with '.' and '_' made equal.

    def topics(self) -> list[Topic]:
        return list(self._topics.values())

    def find(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def find_id(self, topic_id: UUID) -> Topic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopic(topic_id)
        return topic

    def apply(self, command: TopicCommand) -> Topic:
        match command:
            case CreateTopic():
                return self._create(command)
            case DeleteTopic():
                return self._remove(self.find(command.name))
            case AddPartitions():
                return self._add_partitions(self.find(command.name), command)
            case AlterTopic():
                return self._alter(self.find(command.name), command)
            case _:
                assert_never(command)

    def check_name(self, name: str) -> None:
        """Raise what creating a topic of that name would raise."""
        topic_name(name)
        if name in self._topics:
            raise TopicExists(name)
        other = self._spelling.get(_spelling(name))
        if other is not None:
            raise TopicNameCollides(name, other)

    def _create(self, command: CreateTopic) -> Topic:
        self.check_name(command.name)
        _check_placement(command.placement)
        with_overrides(TopicSettings(), command.overrides)
        assert command.topic_id not in self._by_id, "a topic id was drawn twice"
        return self._put(
            Topic(
                name=command.name,
                topic_id=command.topic_id,
                placement=command.placement,
                overrides=command.overrides,
                created_ms=command.created_ms,
            )
        )

    def _add_partitions(self, topic: Topic, command: AddPartitions) -> Topic:
        _check_placement(command.placement)
        if command.count_before != topic.partition_count:
            raise InvalidPartitions(
                f"{topic.name} has {topic.partition_count} partitions, not {command.count_before}"
            )
        return self._put(
            msgspec.structs.replace(topic, placement=topic.placement + command.placement)
        )

    def _alter(self, topic: Topic, command: AlterTopic) -> Topic:
        overrides = dict(topic.overrides)
        for name, text in command.changes.items():
            if text is None:
                overrides.pop(name, None)
            else:
                overrides[name] = text
        with_overrides(TopicSettings(), overrides)
        return self._put(msgspec.structs.replace(topic, overrides=overrides))

    def _put(self, topic: Topic) -> Topic:
        self.version += 1
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._spelling[_spelling(topic.name)] = topic.name
        return topic

    def _remove(self, topic: Topic) -> Topic:
        self.version += 1
        del self._topics[topic.name]
        del self._by_id[topic.topic_id]
        del self._spelling[_spelling(topic.name)]
        return topic


def _spelling(name: str) -> str:
    return name.replace(".", "_")


def _check_placement(placement: tuple[Replicas, ...]) -> None:
    if not placement:
        raise InvalidPartitions("a topic needs at least one partition")
    for replicas in placement:
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidPartitions(f"a partition needs distinct replicas, not {list(replicas)}")
