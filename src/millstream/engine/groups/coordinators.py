"""The group coordinators of this node: finds, loads and ticks them, and expires offsets.

Owns the task that loads coordinators, processes the groups' deadlines, and deletes offsets past
their retention. Not gated: its caller, `groups.service`, is.
"""

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from msgspec.structs import replace

from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.control.resources import ResourceKind, Resources
from millstream.engine.groups.classic.vocabulary import GroupState, Rules
from millstream.engine.groups.consumer.vocabulary import ConsumerRules
from millstream.engine.groups.coordinator import Coordinator, Group
from millstream.engine.groups.entries import consumer_tombstones, group_tombstone, offset_tombstone
from millstream.engine.groups.waiters import Waiters
from millstream.engine.ledgers.shards import ADOPT_INTERVAL_MS, InternalTopicSpec, Shards
from millstream.engine.runtime.alarms import Alarms, loop_ms
from millstream.engine.topics import Topics
from millstream.errors import Overloaded, RequestError, UnknownTopic
from millstream.internal_topics.groups import StoredGroup, expired_offsets
from millstream.model import NodeId, TopicPartition
from millstream.names import OFFSETS_TOPIC
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

_log = logging.getLogger(__name__)

OFFSETS_SETTINGS = {"cleanup_policy": "compact", "segment_bytes": str(16 * 2**20)}
SWEEP_GROUPS = 100  # Groups examined in one step.
# A catalog that lags behind may not know a topic yet, but not for that long.
ORPHANED_MS_MIN = 60 * 60 * 1000

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
        resources: Resources | None = None,
    ) -> None:
        """`topics` creates the offsets topic on behalf of the broker: its gate must admit it."""
        self.waiters = Waiters(waiters_max=config.limits.group_waiters_max)
        self._catalog = catalog
        self._config = config
        self._clock = clock
        self._subscriptions = subscriptions
        self._rules = rules_of(config)
        self._consumer_rules = consumer_rules_of(config)
        self._resources = resources or Resources()
        self._alarms: Alarms[Group] = Alarms()
        topic = InternalTopicSpec(OFFSETS_TOPIC, config.offsets_partitions, OFFSETS_SETTINGS)
        self._shards = Shards(topic, catalog, hub, topics, self._begin, config=config)

    # -- finding a coordinator -------------------------------------------------------------------

    async def node_of(self, group_id: str) -> NodeId:
        """The node that coordinates the group, by this node's metadata."""
        return await self._shards.node_of(group_id)

    async def home_of(self, group_id: str) -> TopicPartition:
        """The offsets partition of the group."""
        return await self._shards.home_of(group_id)

    def home_now(self, group_id: str) -> TopicPartition:
        """The same without waiting for anything."""
        return self._shards.home_now(group_id)

    async def find(self, group_id: str) -> Coordinator:
        """The coordinator of the group, if this node has it and it has loaded."""
        return await self._shards.find(group_id)

    async def find_confirmed(self, group_id: str) -> Coordinator:
        """The same for reads: it is proven to know all that was committed before this call."""
        return await self._shards.find_confirmed(group_id)

    def all_here(self) -> list[Coordinator]:
        """Every coordinator on this node; `CoordinatorLoading` if one of them is not ready."""
        return self._shards.all_here()

    @property
    def is_loading(self) -> bool:
        return self._shards.is_loading

    def open(self, coordinator: Coordinator, group_id: str) -> Group:
        """The live group, made if there is room for it."""
        if group_id not in coordinator.groups:
            count = sum(len(other.groups) for other in self._shards)
            if count >= self._config.limits.groups_max:
                raise Overloaded(f"{count} groups are coordinated here, which is all there may be")
        return coordinator.open(group_id)

    def subscribed(self, group: Group) -> frozenset[str] | None:
        """The topics of all members; None if the subscription of one is unknown."""
        if group.consumers is not None:
            return group.consumers.topics
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
            self._shards.adopt()
            self._shards.load_some()
            for group in self._alarms.due(loop_ms()):
                group.coordinator.tick(group)
            if loop_ms() >= sweep_ms:
                await self.sweep()
                sweep_ms = loop_ms() + self._config.timing.offsets_check_ms
            await self._alarms.wait(ms_max=0 if self._shards.is_loading else ADOPT_INTERVAL_MS)

    async def sweep(self) -> None:
        """Delete offsets past their retention, and groups that have nothing left."""
        for coordinator in self._shards:
            for count, group in enumerate(list(coordinator.groups.values()), start=1):
                self._sweep_group(coordinator, group)
                if count % SWEEP_GROUPS == 0:
                    await asyncio.sleep(0)

    def _sweep_group(self, coordinator: Coordinator, group: Group) -> None:
        # A commit under way could be undone by a tombstone that does not know of it.
        if group.is_dead or not coordinator.is_loaded or not group.is_committed:
            return
        stored = coordinator.find_stored(group.group_id)
        gone = self._expired(group, stored)
        entries = [offset_tombstone(group.group_id, target) for target in gone]
        is_over = group.is_idle and len(gone) == len(stored.offsets) and not stored.pending
        if is_over and stored.value is not None:
            entries.append(group_tombstone(group.group_id))
        if is_over and group.consumers is not None:
            entries += consumer_tombstones(group.consumers)
        try:
            if entries:
                coordinator.write(group, entries)
        except RequestError as problem:
            _log.warning("could not expire group=%s problem=%s", group.group_id, problem)
            return
        if is_over:
            coordinator.drop(group)
        if entries:
            _log.info("expired offsets=%d group=%s over=%s", len(gone), group.group_id, is_over)

    def _expired(self, group: Group, stored: StoredGroup) -> set[TopicPartition]:
        now_ms = self._clock.now_ms()
        is_said = group.consumers is not None or group.state is GroupState.STABLE
        expired = expired_offsets(
            stored,
            now_ms=now_ms,
            retention_ms=self._config.timing.offsets_retention_ms,
            is_empty=group.is_empty,
            subscribed=self.subscribed(group) if is_said else None,
        )
        orphans = [
            target
            for target, value in stored.offsets.items()
            if now_ms - value.committed_ms >= ORPHANED_MS_MIN
            and not self._knows(target.topic, value.topic_id)
            and target not in stored.pending  # Those may be for the next topic of that name.
        ]
        return {*expired, *orphans}

    def _knows(self, name: str, topic_id: UUID) -> bool:
        try:
            # By name first: a topic that is read through a filter is known by that alone.
            if self._catalog.find(name).topic_id == topic_id:
                return True
            self._catalog.find_id(topic_id)
        except UnknownTopic:
            return False
        return True

    # -- parts -----------------------------------------------------------------------------------

    def _consumer_rules_of(self, group_id: str) -> ConsumerRules:
        """The node's, unless others were set for the group."""
        rules = self._consumer_rules
        own = self._resources.find(ResourceKind.GROUP, group_id)
        if not own:
            return rules
        session_ms = own.get("consumer_session_timeout_ms", rules.session_timeout_ms)
        interval_ms = own.get("consumer_heartbeat_interval_ms", rules.heartbeat_interval_ms)
        return replace(
            rules, session_timeout_ms=int(session_ms), heartbeat_interval_ms=int(interval_ms)
        )

    def _begin(self, replica: Replica) -> Coordinator:
        self._alarms.wake()
        return Coordinator(
            replica,
            self._clock,
            self._rules,
            self._consumer_rules_of,
            self.waiters,
            self._alarms,
        )


def rules_of(config: Config) -> Rules:
    timing = config.timing
    return Rules(
        initial_rebalance_delay_ms=timing.group_initial_rebalance_delay_ms,
        session_timeout_ms_min=timing.group_session_timeout_ms_min,
        session_timeout_ms_max=timing.group_session_timeout_ms_max,
        new_member_join_ms_max=timing.group_new_member_join_ms_max,
        members_max=config.limits.group_members_max,
    )


def consumer_rules_of(config: Config) -> ConsumerRules:
    return ConsumerRules(
        session_timeout_ms=config.timing.consumer_session_timeout_ms,
        heartbeat_interval_ms=config.timing.consumer_heartbeat_interval_ms,
        members_max=config.limits.group_members_max,
    )
