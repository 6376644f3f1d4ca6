"""Topics: their ids, partitions, placement and settings, as a fold over commands.

Owns the rules for creating, changing and deleting topics. Pure: replies and refusals follow from
the command and the state alone, so they are the same on every node. A view is a topic whose
partitions are another's: `Topic.log` leads to the logs of its base.

Invariant: `check` holds a proposal to the rules of this version, `apply` knows only those that are
part of the format: names are unique, a named topic exists, a topic with views stays. So an old
log folds to the same topics in every version, and settings are stored as they were committed.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never
from uuid import UUID

import msgspec

from millstream.control.assignments import (
    Assignment,
    cancelled,
    finished,
    founded,
    moved,
    nodes_of,
    raised,
)
from millstream.control.commands import (
    AddPartitions,
    AddReplicas,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    FinishMoves,
    MoveReplicas,
    Replicas,
    TopicCommand,
)
from millstream.errors import (
    InvalidPartitions,
    InvalidPlacement,
    InvalidSetting,
    TopicExists,
    TopicNameCollides,
    UnknownTopic,
)
from millstream.errors.cluster import NoMove
from millstream.errors.views import HasViews, ReadOnlyView
from millstream.model import LogId, NodeId, Offset, TopicPartition, topic_name
from millstream.names import INTERNAL_TOPICS
from millstream.settings import (
    BUILT_IN_SETTINGS,
    UNLIMITED,
    TopicSettings,
    effective_settings,
    with_overrides,
)
from millstream.view_names import split_filtered

VIEW_OF, VIEW_WHERE = "view_of", "view_where"
OWNER = "owner"
FILTERED_MAX = 10_000  # Topics of filtered names that are cached; others are made again.


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    topic_id: UUID
    placement: tuple[Replicas, ...]
    overrides: dict[str, str]  # Only what differs from the defaults.
    created_ms: int
    number: int  # How many topics had been created before it: no two ever share one.
    base_id: UUID | None = None  # Of a view: the topic whose records it shows.
    follows_cluster: bool = False  # It gets more replicas when nodes join.
    # By partition: those whose replicas have changed since they were founded.
    assignments: dict[int, Assignment] = {}

    @property
    def partition_count(self) -> int:
        return len(self.placement)

    def log(self, partition: int) -> LogId:
        if not 0 <= partition < len(self.placement):
            raise UnknownTopic(TopicPartition(self.name, partition))
        return LogId(self.base_id or self.topic_id, partition)

    def assignment(self, partition: int) -> Assignment:
        """The replicas of a partition, those on their way included."""
        return self.assignments.get(partition) or founded(self.placement[partition])

    def assigned(self, partition: int) -> Replicas:
        """The nodes with a replica, also with one that is on its way there or away."""
        moved = self.assignments.get(partition)
        return self.placement[partition] if moved is None else nodes_of(moved.all)

    def settings(self, defaults: TopicSettings) -> TopicSettings:
        """The settings that hold, also where overrides do not fit the rules of this version."""
        return self._effective(defaults)[0]

    def setting_problems(self) -> list[str]:
        """A sentence for each override that this version does not carry out as it is stored."""
        return self._effective(BUILT_IN_SETTINGS)[1]

    def _effective(self, defaults: TopicSettings) -> tuple[TopicSettings, list[str]]:
        if self.name in INTERNAL_TOPICS:
            defaults = replace(defaults, message_ttl_ms=UNLIMITED)  # Internal topics do not expire.
        return effective_settings(defaults, self.overrides)

    @property
    def is_view(self) -> bool:
        return self.base_id is not None

    def check_writable(self) -> None:
        if self.is_view:
            raise ReadOnlyView(self.name, self.overrides.get(VIEW_OF, "another topic"))


class _Filtered:
    """Topics as they are seen through a filter, made from their names when they are looked up.

    They are no part of the state: each follows from the name and its topic alone, and has an id
    that does too, so it is the same after a restart and on every node.
    """

    def __init__(self) -> None:
        # With the topic that each was made from, which is another object once it has changed.
        self._by_name: OrderedDict[str, tuple[Topic, Topic]] = OrderedDict()
        self._names: dict[UUID, str] = {}

    def find(self, name: str, topics: Mapping[str, Topic]) -> Topic | None:
        parts = split_filtered(name)
        base = None if parts is None else topics.get(parts.topic)
        if parts is None or base is None:
            return None
        made_from, filtered = self._by_name.get(name, (None, None))
        if made_from is not base or filtered is None:
            filtered = _filtered(name, base, parts.where)
            self._by_name[name] = base, filtered
            self._names[filtered.topic_id] = name
            if len(self._by_name) > FILTERED_MAX:
                _, (_, oldest) = self._by_name.popitem(last=False)
                self._names.pop(oldest.topic_id, None)
        self._by_name.move_to_end(name)
        return filtered

    def find_id(self, topic_id: UUID, topics: Mapping[str, Topic]) -> Topic | None:
        """Only while it is at hand: a client that gets None asks again by name."""
        name = self._names.get(topic_id)
        topic = None if name is None else self.find(name, topics)
        return topic if topic is not None and topic.topic_id == topic_id else None


def _filtered(name: str, base: Topic, where: str) -> Topic:
    digest = hashlib.sha256(base.topic_id.bytes + where.encode("utf-8", "replace")).digest()
    if base.is_view:
        where = f"({base.overrides.get(VIEW_WHERE, '')}) and ({where})"
    return Topic(
        name=name,
        topic_id=UUID(bytes=digest[:16], version=4),
        placement=base.placement,
        overrides={VIEW_OF: base.overrides.get(VIEW_OF, base.name), VIEW_WHERE: where},
        created_ms=base.created_ms,
        number=base.number,
        base_id=base.base_id or base.topic_id,
    )


class Catalog:
    """All topics. `apply` changes it and returns the topic, or raises and changes nothing."""

    def __init__(self) -> None:
        self.version = 0  # Grows with every change.
        self.partition_count = 0  # Of all topics, views included.
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._by_number: dict[int, Topic] = {}
        self._spelling: dict[str, str] = {}  # Names with '.' and '_' made equal.
        self._created = 0  # How many topics there have ever been.
        self._filtered = _Filtered()

    def topics(self) -> list[Topic]:
        return list(self._topics.values())

    def find(self, name: str) -> Topic:
        """The topic of that name, or a topic seen through a filter: see `view_names`."""
        topic = self._topics.get(name) or self._filtered.find(name, self._topics)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def find_id(self, topic_id: UUID) -> Topic:
        topic = self._by_id.get(topic_id) or self._filtered.find_id(topic_id, self._topics)
        if topic is None:
            raise UnknownTopic(topic_id)
        return topic

    def has_id(self, topic_id: UUID) -> bool:
        return topic_id in self._by_id

    def find_own(self, name: str) -> Topic:
        """The topic of that name, which commands can be about."""
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def count_of(self, name: str) -> int:
        """How many partitions the topic has; 0 if there is none of that name."""
        topic = self._topics.get(name)
        return 0 if topic is None else topic.partition_count

    def owner_of(self, name: str) -> str:
        """The principal that owns a topic; empty if there is none, or no such topic."""
        topic = self._topics.get(name)
        return "" if topic is None else topic.overrides.get(OWNER, "")

    def views_of(self, topic: Topic) -> list[Topic]:
        """The views that show this topic, by name."""
        views = [view for view in self._topics.values() if view.base_id == topic.topic_id]
        return sorted(views, key=lambda view: view.name)

    def find_base(self, name: str) -> Topic:
        """The topic that a view can show; `InvalidSetting` if there is none of that name."""
        if name in INTERNAL_TOPICS:
            raise InvalidSetting(f"{VIEW_OF} = {name!r} is the broker's own")
        return self._find_shown(name)

    def _find_shown(self, name: str) -> Topic:
        base = self._topics.get(name)
        if base is None:
            raise InvalidSetting(f"{VIEW_OF} = {name[:260]!r} is not a topic")
        if base.is_view:
            raise InvalidSetting(f"{VIEW_OF} = {name!r} is a view itself")
        return base

    def find_number(self, number: int) -> Topic:
        topic = self._by_number.get(number)
        if topic is None:
            raise UnknownTopic(f"number {number}")
        return topic

    def check(self, command: TopicCommand) -> None:
        """Raise what speaks against proposing a command, by the rules of this version."""
        match command:
            case CreateTopic():
                self.check_name(command.name)
                check_view(None, command.overrides)
                with_overrides(BUILT_IN_SETTINGS, command.overrides)
                if name := command.overrides.get(VIEW_OF):
                    self.find_base(name)
                _check_placement(command.placement)
            case DeleteTopic():
                self._check_unshown(self.find_own(command.name))
            case AddPartitions():
                self._check_growth(self.find_own(command.name), command)
            case AddReplicas():
                _check_added(self.find_own(command.name), command)
            case MoveReplicas():
                _check_targets(self.find_own(command.name), command)
            case FinishMoves():
                _check_finished(self.find_own(command.name), command)
            case AlterTopic():
                before = self.find_own(command.name).overrides
                check_view(before, _changed(before, command.changes))
                # Not those that are there already: they may be of another version.
                with_overrides(BUILT_IN_SETTINGS, _changed({}, command.changes))
            case _:
                assert_never(command)

    def apply(self, command: TopicCommand, offset: Offset = 0) -> Topic:
        """`offset` is that of the command in the control log."""
        match command:
            case CreateTopic():
                return self._create(command)
            case DeleteTopic():
                return self._delete(self.find_own(command.name))
            case AddPartitions():
                return self._add_partitions(self.find_own(command.name), command)
            case AddReplicas():
                return self._add_replicas(self.find_own(command.name), command, offset)
            case MoveReplicas():
                return self._move(self.find_own(command.name), command, offset)
            case FinishMoves():
                return self._finish_moves(self.find_own(command.name), command)
            case AlterTopic():
                return self._alter(self.find_own(command.name), command)
            case _:
                assert_never(command)

    def check_name(self, name: str) -> None:
        """Raise what creating a topic of that name would raise."""
        topic_name(name)
        self._check_free(name)

    def _check_free(self, name: str) -> None:
        if name in self._topics:
            raise TopicExists(name)
        other = self._spelling.get(_spelling(name))
        if other is not None:
            raise TopicNameCollides(name, other)

    def _create(self, command: CreateTopic) -> Topic:
        self._check_free(command.name)
        placement, base_id = command.placement, None
        if name := command.overrides.get(VIEW_OF):
            base = self._find_shown(name)
            placement, base_id = base.placement, base.topic_id
        _check_placement(placement)
        assert command.topic_id not in self._by_id, "a topic id was drawn twice"
        number, self._created = self._created, self._created + 1
        return self._put(
            Topic(
                name=command.name,
                topic_id=command.topic_id,
                placement=placement,
                overrides=command.overrides,
                created_ms=command.created_ms,
                number=number,
                base_id=base_id,
                follows_cluster=command.follows_cluster and base_id is None,
            )
        )

    def _delete(self, topic: Topic) -> Topic:
        self._check_unshown(topic)
        return self._remove(topic)

    def _check_unshown(self, topic: Topic) -> None:
        views = self.views_of(topic)
        if views:
            raise HasViews(topic.name, [view.name for view in views])

    def _check_growth(self, topic: Topic, command: AddPartitions) -> None:
        topic.check_writable()
        _check_placement(command.placement)
        if command.count_before != topic.partition_count:
            raise InvalidPartitions(
                f"{topic.name} has {topic.partition_count} partitions, not {command.count_before}"
            )

    def _add_partitions(self, topic: Topic, command: AddPartitions) -> Topic:
        self._check_growth(topic, command)
        placement = topic.placement + command.placement
        for view in self.views_of(topic):
            self._put(msgspec.structs.replace(view, placement=placement))
        return self._put(msgspec.structs.replace(topic, placement=placement))

    def _add_replicas(self, topic: Topic, command: AddReplicas, offset: Offset) -> Topic:
        _check_added(topic, command)
        return self._reassign(
            topic,
            {
                partition: raised(topic.assignment(partition), added, offset)
                for partition, added in enumerate(command.added)
                if added
            },
        )

    def _move(self, topic: Topic, command: MoveReplicas, offset: Offset) -> Topic:
        _check_targets(topic, command)
        changes = {}
        for partition, nodes in command.targets.items():
            before = topic.assignment(partition)
            after = cancelled(before, offset) if nodes is None else moved(before, nodes, offset)
            changes[partition] = after
        return self._reassign(topic, changes)

    def _finish_moves(self, topic: Topic, command: FinishMoves) -> Topic:
        _check_finished(topic, command)
        moves = [move.partition for move in command.moves]
        return self._reassign(topic, {at: finished(topic.assignment(at)) for at in moves})

    def _reassign(self, topic: Topic, changes: Mapping[int, Assignment]) -> Topic:
        assignments = {**topic.assignments, **changes}
        placement = tuple(
            changes[partition].nodes if partition in changes else nodes
            for partition, nodes in enumerate(topic.placement)
        )
        for view in self.views_of(topic):
            self._put(msgspec.structs.replace(view, placement=placement))
        return self._put(
            msgspec.structs.replace(topic, placement=placement, assignments=assignments)
        )

    def partitions_on(self, node_id: NodeId) -> list[tuple[Topic, int]]:
        """The partitions with a replica on this node, or one on its way there or away."""
        return [
            (topic, partition)
            for topic in self._topics.values()
            if not topic.is_view
            for partition in range(topic.partition_count)
            if node_id in topic.assigned(partition)
        ]

    def _alter(self, topic: Topic, command: AlterTopic) -> Topic:
        overrides = _changed(topic.overrides, command.changes)
        return self._put(msgspec.structs.replace(topic, overrides=overrides))

    def _put(self, topic: Topic) -> Topic:
        self.version += 1
        before = self._topics.get(topic.name)
        replaced_count = 0 if before is None else before.partition_count
        self.partition_count += topic.partition_count - replaced_count
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._by_number[topic.number] = topic
        self._spelling[_spelling(topic.name)] = topic.name
        return topic

    def _remove(self, topic: Topic) -> Topic:
        self.version += 1
        self.partition_count -= topic.partition_count
        del self._topics[topic.name]
        del self._by_id[topic.topic_id]
        del self._by_number[topic.number]
        del self._spelling[_spelling(topic.name)]
        return topic


def check_view(before: Mapping[str, str] | None, after: Mapping[str, str]) -> None:
    """Refuse settings that say half of what a view is, or make one of a topic, or the reverse.

    `before` is None for a topic that is created with these settings.
    """
    if before is not None and before.get(VIEW_OF) != after.get(VIEW_OF):
        raise InvalidSetting(f"{VIEW_OF} is said when a topic is created, and stays")
    if bool(after.get(VIEW_OF)) != bool(after.get(VIEW_WHERE)):
        raise InvalidSetting(f"a view has both {VIEW_OF} and {VIEW_WHERE}")
    others = sorted(after.keys() - {VIEW_OF, VIEW_WHERE, OWNER})
    if after.get(VIEW_OF) and others:
        raise InvalidSetting(f"a view has no records of its own, so no {', '.join(others)}")


def _changed(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in {**before, **changes}.items() if text is not None}


def _spelling(name: str) -> str:
    return name.replace(".", "_")


def _check_placement(placement: tuple[Replicas, ...]) -> None:
    if not placement:
        raise InvalidPartitions("a topic needs at least one partition")
    for replicas in placement:
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidPartitions(f"a partition needs distinct replicas, not {list(replicas)}")


def _check_added(topic: Topic, command: AddReplicas) -> None:
    topic.check_writable()
    is_known = topic.topic_id == command.topic_id and len(command.added) == topic.partition_count
    if not is_known or len(topic.placement[0]) != command.count_before:
        raise _changed_since(topic)
    _check_placement(
        tuple(before + added for before, added in zip(topic.placement, command.added, strict=True))
    )


def _check_targets(topic: Topic, command: MoveReplicas) -> None:
    topic.check_writable()
    if topic.topic_id != command.topic_id:
        raise _changed_since(topic)
    for partition, nodes in command.targets.items():
        if not 0 <= partition < topic.partition_count:
            raise UnknownTopic(TopicPartition(topic.name, partition))
        if nodes is None:
            if not topic.assignment(partition).is_moving:
                raise NoMove(f"{topic.name}-{partition} does not move: there is nothing to cancel")
        elif not nodes or len(set(nodes)) != len(nodes):
            raise InvalidPlacement(f"a partition needs distinct replicas, not {list(nodes)}")


def _check_finished(topic: Topic, command: FinishMoves) -> None:
    """Refuse the word of a leader that did not know of a later move."""
    if topic.topic_id != command.topic_id:
        raise _changed_since(topic)
    for move in command.moves:
        now = topic.assignments.get(move.partition)
        is_known = now is not None and now.is_moving and now.moved_offset == move.moved_offset
        if now is None or not is_known or set(now.leaving) != set(move.removed):
            raise _changed_since(topic)


def _changed_since(topic: Topic) -> InvalidPlacement:
    return InvalidPlacement(f"{topic.name} has changed since its replicas were placed")
