"""Schedules the delayed records of this node: loads their shards and starts deliverers.

Owns the task that loads shards, watches the clock and starts a `Deliverer` for each partition with
records due soon. Not gated: its callers, `delayed.service` and `produce.pipeline`, are.

Invariant: a record is due when the broker's wall clock has reached its time, so none is early. All
else is prepared before: a record is late by one commit, at most 500 ms on a machine that keeps up
(docs/decisions/0013).
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from millstream.codec.batch import Header
from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.engine.cluster.peer_calls import PeerCalls
from millstream.engine.delayed.deliverer import Deliverer
from millstream.engine.delayed.shard import DelayedShard
from millstream.engine.ledgers.exactly_once import WriterContext
from millstream.engine.ledgers.shards import ADOPT_INTERVAL_MS, InternalTopicSpec, Shards
from millstream.engine.runtime.alarms import Alarms
from millstream.engine.topics import Topics
from millstream.errors import (
    CoordinatorLoading,
    NotCoordinator,
    RequestError,
    StorageError,
    UnknownTopic,
)
from millstream.metrics import DELAYED_LATE_SECONDS, Metrics
from millstream.model import NodeId
from millstream.names import DELAYED_TOPIC
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

if TYPE_CHECKING:
    from millstream.engine.delayed.remote import RemoteDelays
    from millstream.engine.delayed.remote_deliverer import RemoteDeliverer

DelayedIds = Callable[[UUID], Iterator[tuple[bytes, int]]]

DELAYED_SETTINGS = {
    "cleanup_policy": "compact",
    "segment_bytes": str(64 * 2**20),
    # Every fold starts at the start of this log: tombstones need not be kept long.
    "delete_retention_ms": "60000",
}
# What is due soon is taken up between so long before its time and a step later. That must be enough
# for a plan to be committed, on a disk that is busy with others.
LEAD_MS = 200
LEAD_STEP_MS = 50  # Each step costs a plan, and the longer it is the more is in the plan.
DELIVERERS_MAX = 10_000  # Partitions that are delivered to concurrently.
READY_WAIT_MS = 5  # Between two checks of a shard that is loading.


class DelayedScheduler:
    def __init__(
        self,
        catalog: Catalog,
        hub: Hub,
        topics: Topics,
        context: WriterContext,
        *,
        config: Config,
        metrics: Metrics,
    ) -> None:
        """`topics` creates the topic on behalf of the broker: its gate must admit it."""
        self.remote: RemoteDelays | None = None  # None before the first link to a node.
        self._limits = config.limits
        self._catalog = catalog
        self._clock = context.clock
        self._context = context
        self._late_seconds = metrics.histogram(DELAYED_LATE_SECONDS)
        self._alarms: Alarms[None] = Alarms()
        self._deliverers: dict[tuple[DelayedShard, int], Deliverer | RemoteDeliverer] = {}
        topic = InternalTopicSpec(DELAYED_TOPIC, config.delayed_partitions, DELAYED_SETTINGS)
        self._shards = Shards(topic, catalog, hub, topics, self._begin, config=config)

    # -- shards ----------------------------------------------------------------------------------

    def find_now(self, topic: str) -> DelayedShard:
        """The shard of a topic's delayed records, if this node has it and it has loaded."""
        return self._shards.find_now(topic)

    def is_ready(self, topic: str) -> bool:
        """Whether the shard of a topic is loaded here, or another node has it."""
        try:
            self._shards.find_now(topic)
        except NotCoordinator as problem:
            return self.remote is not None and problem.leader is not None
        except RequestError:
            return False
        return True

    def node_of(self, topic: str) -> NodeId | None:
        """The other node that has the shard of a topic; None if it is here, or is not known."""
        if self.remote is None:
            return None
        try:
            self._shards.find_now(topic)
        except NotCoordinator as problem:
            return None if problem.leader is None else NodeId(problem.leader)
        except RequestError:
            return None
        return None

    def is_needed(self, topic: str, due_ms: Collection[int], header: Header) -> bool:
        """Whether a batch with these delays needs the shard of its topic.

        Records that are due by now are appended at once. But a batch of an idempotent producer may
        be a retry from before a crash, whose records were delayed then: the shard knows.
        """
        if not due_ms:
            return False
        if max(due_ms) > self._clock.now_ms():
            return True
        return header.has_producer and self._exists()

    async def ready(self, topic: str) -> None:
        """Wait until the shard of a topic is loaded; creates `__deferred` if needed."""
        while True:
            try:
                await self._shards.find(topic)
                return
            except CoordinatorLoading:
                await asyncio.sleep(READY_WAIT_MS / 1000)
            except NotCoordinator:
                if self.node_of(topic) is None:
                    raise
                return

    async def known(self, topic: str) -> None:
        """Like `ready`, without creating `__deferred`."""
        if self._exists():
            await self.ready(topic)

    async def all_known(self) -> list[DelayedShard]:
        """All shards of this node, loaded, by partition."""
        while True:
            try:
                shards = self._shards.all_here()
            except CoordinatorLoading:
                await asyncio.sleep(READY_WAIT_MS / 1000)
            else:
                return sorted(shards, key=lambda shard: shard.mark[0].id.partition)

    def late_ms(self) -> int:
        """How long the first record of this node has been due; 0 if none is."""
        nexts = [shard.due_heap.next_due_ms for shard in self._shards if shard.is_loaded]
        due_ms = [due for due in nexts if due is not None]
        return max(0, self._clock.now_ms() - min(due_ms)) if due_ms else 0

    @property
    def delayed_count(self) -> int:
        return sum(len(shard.due_heap) for shard in self._shards)

    def message_ids(self, topic_id: UUID) -> Iterator[tuple[bytes, int]]:
        """The ids of a topic's delayed records, and when they arrived."""
        for shard in self._shards:
            yield from shard.message_ids(topic_id)

    async def message_ids_of(self, topic: str, topic_id: UUID) -> DelayedIds:
        """Where the ids of a topic's delayed records are read: here, or from another node."""
        node = self.node_of(topic)
        if node is None or self.remote is None:
            return self.message_ids
        ids = await self.remote.message_ids(node, topic, topic_id)
        return lambda _topic_id: iter(ids)

    def connect(self, peers: PeerCalls) -> None:
        """Reach the shards of other nodes, and let them reach those of this one."""
        from millstream.engine.delayed.remote import RemoteDelays

        self.remote = RemoteDelays(peers, self._shards, self._limits, self._clock)

    # -- time ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, watch the clock and deliver until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._shards.adopt()
                self._shards.load_some()
                has_more = self._dispatch(group)
                is_busy = has_more or self._shards.is_loading
                idle_ms = min(ADOPT_INTERVAL_MS, self._idle_ms())
                await self._alarms.wait(ms_max=0 if is_busy else idle_ms)

    def _idle_ms(self) -> int:
        """Time until a record is due soon. A wall clock that steps is noticed at the next turn."""
        nexts = [shard.due_heap.next_due_ms for shard in self._shards if shard.is_loaded]
        soon_ms = self._clock.now_ms() + LEAD_MS - LEAD_STEP_MS
        left_ms = [due_ms - soon_ms for due_ms in nexts if due_ms is not None]
        return max(1, min(left_ms, default=ADOPT_INTERVAL_MS))

    def _dispatch(self, group: asyncio.TaskGroup) -> bool:
        """Start or wake deliverers for what is due soon; return whether there is more."""
        has_more = False
        for shard in self._shards:
            if not shard.is_loaded:
                continue
            has_more |= shard.take_soon(self._clock.now_ms() + LEAD_MS)
            for place in shard.waiting:
                deliverer = self._deliverers.get((shard, place))
                if deliverer is not None:
                    deliverer.wake()
                elif len(self._deliverers) < DELIVERERS_MAX:
                    deliverer = self._deliverers[shard, place] = self._deliverer(shard, place)
                    group.create_task(self._deliver(deliverer, shard, place))
        return has_more

    def _deliverer(self, shard: DelayedShard, place: int) -> "Deliverer | RemoteDeliverer":
        if shard.writer.leader_elsewhere(shard.targets[place]) is None:
            return Deliverer(shard, place, self._clock, self._late_seconds)
        from millstream.engine.delayed.remote_deliverer import RemoteDeliverer

        return RemoteDeliverer(shard, place, self._clock, self._late_seconds)

    async def _deliver(
        self, deliverer: "Deliverer | RemoteDeliverer", shard: DelayedShard, place: int
    ) -> None:
        try:
            await deliverer.run()
        except StorageError as problem:
            shard.fail(problem)
        finally:
            del self._deliverers[shard, place]
            self._alarms.wake()

    def _exists(self) -> bool:
        try:
            self._catalog.find(DELAYED_TOPIC)
        except UnknownTopic:
            return False
        return True

    def _begin(self, replica: Replica) -> DelayedShard:
        self._alarms.wake()
        return DelayedShard(replica, self._context, self._alarms.wake)
