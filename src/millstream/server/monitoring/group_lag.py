"""How far consumer groups are behind: in records, and in the age of the oldest of them."""

from collections.abc import Iterator
from typing import NamedTuple

from millstream.control.catalog import Catalog
from millstream.engine.groups.coordinator import Coordinator, Group
from millstream.engine.groups.coordinators import Coordinators
from millstream.errors import CoordinatorLoading, UnknownTopic
from millstream.internal_topics.groups import OffsetValue
from millstream.model import Offset, TopicPartition
from millstream.ports import Clock
from millstream.replication.hub import Hub


class PartitionLag(NamedTuple):
    target: TopicPartition
    committed: Offset
    records: int
    age_ms: int  # Of the oldest record that is not committed; 0 without any.


class GroupLags:
    """The groups that this node coordinates, with their lags."""

    def __init__(
        self, catalog: Catalog, hub: Hub, coordinators: Coordinators, clock: Clock
    ) -> None:
        self._catalog = catalog
        self._hub = hub
        self._coordinators = coordinators
        self._clock = clock

    def groups(self) -> Iterator[tuple[str, Group, Coordinator]]:
        """By name; none while coordinators load."""
        try:
            coordinators = self._coordinators.all_here()
        except CoordinatorLoading:
            return
        homes = {name: coordinator for coordinator in coordinators for name in coordinator.groups}
        for group_id, coordinator in sorted(homes.items()):
            group = coordinator.groups.get(group_id)
            if group is not None:  # It may have gone between two steps.
                yield group_id, group, coordinator

    def lags(self, group_id: str, coordinator: Coordinator) -> list[PartitionLag]:
        """Of each partition that the group has committed an offset for, in order."""
        now_ms = self._clock.now_ms()
        offsets = sorted(coordinator.find_stored(group_id).offsets.items())
        return [self._lag(target, value, now_ms) for target, value in offsets]

    def _lag(self, target: TopicPartition, committed: OffsetValue, now_ms: int) -> PartitionLag:
        nothing = PartitionLag(target, committed.offset, 0, 0)
        try:
            topic = self._catalog.find(target.topic)
            log_id = topic.log(target.partition)
        except UnknownTopic:
            return nothing
        replica, resting = self._hub.replicas.get(log_id), self._hub.resting
        if topic.topic_id != committed.topic_id or not (replica or log_id in resting):
            return nothing
        if replica is None:
            start, end = resting.health(log_id).start_offset, resting.end_offset(log_id)
            first = max(committed.offset, start)
            return PartitionLag(target, committed.offset, max(0, end - first), 0)
        first = max(committed.offset, replica.log.start_offset)
        if first >= replica.high_watermark:
            return nothing
        age_ms = replica.arrival_times().age_ms(first, now_ms)
        return PartitionLag(target, committed.offset, replica.high_watermark - first, age_ms)


def member_count(group: Group) -> int:
    if group.consumers is not None:
        return len(group.consumers.members)
    return len(group.membership.group.roster)
