"""The offsets topic from this node's side: which groups it coordinates, and their time.

Owns the topic that remembers groups, a `Coordinator` for each of its partitions that is led here,
and the one task that loads them, lets time pass for their groups, and gives up offsets that nobody
came back for. Not gated: `groups` is, and stands before it.
"""

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from millstream.config import Config
from millstream.control.catalog import Catalog, Topic
from millstream.control.groups import StoredGroup, expired_offsets, partition_for
from millstream.engine.coordinator import Coordinator, Group
from millstream.engine.group_entries import group_tombstone, offset_tombstone
from millstream.engine.rebalance import GroupState, Rules
from millstream.engine.topics import Topics
from millstream.engine.waiting import Alarms, Waiters, loop_ms
from millstream.errors import (
    CoordinatorLoading,
    CoordinatorUnavailable,
    NotCoordinator,
    NotLeader,
    Overloaded,
    RequestError,
    StorageUnavailable,
    TopicExists,
    UnknownTopic,
)
from millstream.model import OFFSETS_TOPIC, LogId, NodeId, Session, TopicPartition
from millstream.ports import Clock
from millstream.replication.hub import Hub

log = logging.getLogger(__name__)

OFFSETS_SETTINGS = {"cleanup_policy": "compact", "segment_bytes": str(16 * 2**20)}
OFFSETS_REPLICAS = 3  # Or as many as there are nodes.
ADOPT_INTERVAL_MS = 1_000  # How long a partition may be led here before its groups are loaded.
SWEEP_GROUPS = 100  # Groups looked at in one step.
# A catalog that lags behind may not know a topic yet, but not for that long.
ORPHANED_MS_MIN = 60 * 60 * 1000

_BROKER = Session(principal="millstream", door="internal")

# What a member's metadata says it is subscribed to, by protocol type; None if it does not say.
Subscriptions = Callable[[str, bytes], frozenset[str] | None]


def unknown_subscriptions(protocol_type: str, metadata: bytes) -> frozenset[str] | None:
    return None


class Coordinators:
    def __init__(
        self,
        catalog: Catalog,
        hub: Hub,
        topics: Topics,
        *,
        config: Config,
        clock: Clock,
        subscriptions: Subscriptions = unknown_subscriptions,
    ) -> None:
        """`topics` creates the offsets topic on behalf of the broker: its gate must admit it."""
        self.waiters = Waiters(waiters_max=config.limits.group_waiters_max)
        self._catalog = catalog
        self._hub = hub
        self._topics = topics
        self._config = config
        self._clock = clock
        self._subscriptions = subscriptions
        self._rules = rules_of(config)
        self._led: dict[LogId, Coordinator] = {}
        self._alarms: Alarms[Group] = Alarms()

    # -- who coordinates -------------------------------------------------------------------------

    async def node_of(self, group_id: str) -> NodeId:
        """The node that coordinates the group, as far as it is known here."""
        topic = await self._topic(group_id)
        partition = partition_for(group_id, topic.partition_count)
        replica = self._hub.replicas.get(topic.log(partition))
        leader = topic.placement[partition][0] if replica is None else replica.leader
        if leader is None:
            raise CoordinatorUnavailable(group_id)
        return leader

    async def find(self, group_id: str) -> Coordinator:
        """The coordinator of the group, if it is here and has loaded."""
        topic = await self._topic(group_id)
        log_id = topic.log(partition_for(group_id, topic.partition_count))
        coordinator = self._adopt(log_id)
        if coordinator is None:
            raise self._absence(group_id, log_id)
        if not coordinator.is_loaded:
            raise CoordinatorLoading(group_id)
        return coordinator

    def all_here(self) -> list[Coordinator]:
        """Every coordinator on this node; `CoordinatorLoading` if one of them is not ready."""
        self._adopt_all()
        if self._is_loading():
            raise CoordinatorLoading("*")
        return [coordinator for coordinator in self._led.values() if not coordinator.is_gone]

    def open(self, coordinator: Coordinator, group_id: str) -> Group:
        """The live group, made if there is room for it."""
        if group_id not in coordinator.groups:
            count = sum(len(other.groups) for other in self._led.values())
            if count >= self._config.limits.groups_max:
                raise Overloaded(f"{count} groups are coordinated here, which is all there may be")
        return coordinator.open(group_id)

    def subscribed(self, group: Group) -> frozenset[str] | None:
        """The topics that the members read together; None if one of them does not say."""
        generations = group.membership.group
        topics: set[str] = set()
        for member in generations.roster:
            metadata = member.metadata(generations.protocol or "")
            said = self._subscriptions(generations.protocol_type or "", metadata)
            if said is None:
                return None
            topics |= said
        return frozenset(topics)

    # -- time ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, tick and sweep until cancelled."""
        sweep_ms = loop_ms() + self._config.timing.offsets_check_ms
        while True:
            self._adopt_all()
            for coordinator in self._led.values():
                coordinator.load_some()
            for group in self._alarms.due(loop_ms()):
                group.coordinator.tick(group)
            if loop_ms() >= sweep_ms:
                await self.sweep()
                sweep_ms = loop_ms() + self._config.timing.offsets_check_ms
            await self._alarms.wait(ms_max=0 if self._is_loading() else ADOPT_INTERVAL_MS)

    async def sweep(self) -> None:
        """Give up what is past its retention, and groups of which nothing is left."""
        for coordinator in list(self._led.values()):
            for count, group in enumerate(list(coordinator.groups.values()), start=1):
                self._sweep_group(coordinator, group)
                if count % SWEEP_GROUPS == 0:
                    await asyncio.sleep(0)

    def _sweep_group(self, coordinator: Coordinator, group: Group) -> None:
        # A commit under way could be undone by a tombstone that does not know of it.
        if group.state is GroupState.DEAD or not coordinator.is_loaded or not group.is_settled:
            return
        stored = coordinator.find_stored(group.group_id)
        gone = self._expired(group, stored)
        entries = [offset_tombstone(group.group_id, target) for target in gone]
        is_over = group.is_idle and len(gone) == len(stored.offsets)
        if is_over and stored.value is not None:
            entries.append(group_tombstone(group.group_id))
        try:
            if entries:
                coordinator.write(group, entries)
        except RequestError as problem:
            log.warning("could not expire group=%s problem=%s", group.group_id, problem)
            return
        if is_over:
            coordinator.drop(group)
        if entries:
            log.info("expired offsets=%d group=%s over=%s", len(gone), group.group_id, is_over)

    def _expired(self, group: Group, stored: StoredGroup) -> set[TopicPartition]:
        now_ms = self._clock.now_ms()
        is_stable = group.state is GroupState.STABLE
        expired = expired_offsets(
            stored,
            now_ms=now_ms,
            retention_ms=self._config.timing.offsets_retention_ms,
            is_empty=group.state is GroupState.EMPTY,
            subscribed=self.subscribed(group) if is_stable else None,
        )
        orphans = [
            target
            for target, value in stored.offsets.items()
            if now_ms - value.committed_ms >= ORPHANED_MS_MIN and not self._knows(value.topic_id)
        ]
        return {*expired, *orphans}

    def _knows(self, topic_id: UUID) -> bool:
        try:
            self._catalog.find_id(topic_id)
        except UnknownTopic:
            return False
        return True

    # -- parts -----------------------------------------------------------------------------------

    async def _topic(self, group_id: str) -> Topic:
        """The offsets topic; the first who asks for it creates it."""
        try:
            return self._catalog.find(OFFSETS_TOPIC)
        except UnknownTopic:
            pass
        replicas = min(OFFSETS_REPLICAS, len(self._config.voters))
        try:
            return await self._topics.create(
                _BROKER,
                OFFSETS_TOPIC,
                partitions=self._config.offsets_partitions,
                replicas=replicas,
                settings=OFFSETS_SETTINGS,
            )
        except TopicExists:
            return self._catalog.find(OFFSETS_TOPIC)
        except NotLeader as problem:
            raise CoordinatorUnavailable(group_id) from problem

    def _adopt_all(self) -> None:
        self._led = {at: here for at, here in self._led.items() if not here.is_gone}
        try:
            topic = self._catalog.find(OFFSETS_TOPIC)
        except UnknownTopic:
            return
        for partition in range(topic.partition_count):
            self._adopt(topic.log(partition))

    def _adopt(self, log_id: LogId) -> Coordinator | None:
        """The coordinator of a partition, begun if this node has come to lead it."""
        known = self._led.get(log_id)
        if known is not None and not known.is_gone:
            return known
        replica = self._hub.replicas.get(log_id)
        if replica is None or not replica.is_leader or not replica.is_settled:
            return None
        coordinator = Coordinator(replica, self._clock, self._rules, self.waiters, self._alarms)
        self._led[log_id] = coordinator
        coordinator.load_some()  # Most often that is all.
        self._alarms.wake()
        return None if coordinator.is_gone else coordinator

    def _is_loading(self) -> bool:
        return any(not here.is_loaded and not here.is_gone for here in self._led.values())

    def _absence(self, group_id: str, log_id: LogId) -> RequestError:
        problem = self._hub.damaged.get(log_id)
        replica = self._hub.replicas.get(log_id)
        if replica is not None:
            problem = replica.failure or problem
        if problem is not None:
            return StorageUnavailable(str(problem))
        if replica is not None and replica.is_leader:
            return CoordinatorLoading(group_id)
        return NotCoordinator(group_id, None if replica is None else replica.leader)


def rules_of(config: Config) -> Rules:
    timing = config.timing
    return Rules(
        initial_rebalance_delay_ms=timing.group_initial_rebalance_delay_ms,
        session_timeout_ms_min=timing.group_session_timeout_ms_min,
        session_timeout_ms_max=timing.group_session_timeout_ms_max,
        new_member_join_ms_max=timing.group_new_member_join_ms_max,
        members_max=config.limits.group_members_max,
    )
