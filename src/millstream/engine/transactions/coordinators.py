"""The transaction coordinators of this node: finds, loads and ticks them.

Owns the task that loads coordinators, writes the markers of decided transactions, fences producers
whose transaction exceeds its timeout, and deletes expired ids. Not gated: its callers,
`transactions.service` and `partitions.service`, are.
"""

import asyncio
import logging
from collections.abc import Iterator
from functools import partial

from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.engine.cluster.peer_calls import PeerCalls
from millstream.engine.ledgers.shards import ADOPT_INTERVAL_MS, InternalTopicSpec, Shards
from millstream.engine.partitions.markers import Markers
from millstream.engine.producer_ids import ProducerIds
from millstream.engine.runtime.alarms import Alarms, loop_ms
from millstream.engine.runtime.backoff import Backoff
from millstream.engine.topics import Topics
from millstream.engine.transactions.coordinator import TransactionCoordinator
from millstream.errors import Overloaded, RequestError
from millstream.internal_topics.batch_groups import (
    BatchGroupValue,
    GroupState,
    expired,
    group_of,
    home_of,
    is_forgettable,
    is_silent,
)
from millstream.internal_topics.transaction_steps import (
    completed,
    fenced,
    is_expired,
    is_overdue,
    needs_producer_id,
)
from millstream.internal_topics.transactions import NO_ID, Participant, TransactionValue
from millstream.metrics import TRANSACTIONS, TRANSACTIONS_OPEN, Metrics, Sample
from millstream.model import SYSTEM_SESSION, NodeId
from millstream.names import TRANSACTIONS_TOPIC
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

_log = logging.getLogger(__name__)

TRANSACTIONS_SETTINGS = {"cleanup_policy": "compact", "segment_bytes": str(16 * 2**20)}
CHECKED_AT_ONCE = 1_000  # Transactional ids examined in one step.


class TransactionCoordinators:
    def __init__(
        self,
        catalog: Catalog,
        hub: Hub,
        topics: Topics,
        producer_ids: ProducerIds,
        *,
        config: Config,
        clock: Clock,
        metrics: Metrics,
        peers: PeerCalls | None = None,
    ) -> None:
        """`topics` and `producer_ids` serve the broker itself: their gates must admit it."""
        self._producer_ids = producer_ids
        self._limits = config.limits
        self._timing = config.timing
        self._clock = clock
        self._outcomes = {
            commits: metrics.counter(TRANSACTIONS, "committed" if commits else "aborted")
            for commits in (True, False)
        }
        metrics.watch(self._samples)
        self._markers = Markers(catalog, hub, clock, peers)
        self._alarms: Alarms[None] = Alarms()
        self._ending: set[tuple[TransactionCoordinator, str]] = set()
        topic = InternalTopicSpec(
            TRANSACTIONS_TOPIC, config.transaction_partitions, TRANSACTIONS_SETTINGS
        )
        self._shards = Shards(topic, catalog, hub, topics, self._begin, config=config)

    # -- finding a coordinator -------------------------------------------------------------------

    async def node_of(self, transactional_id: str) -> NodeId:
        """The node that coordinates the id, by this node's metadata."""
        return await self._shards.node_of(home_of(transactional_id))

    async def find(self, transactional_id: str) -> TransactionCoordinator:
        """The coordinator of the id, if this node has it and it has loaded."""
        return await self._shards.find(home_of(transactional_id))

    async def find_confirmed(self, transactional_id: str) -> TransactionCoordinator:
        """The same for reads: it is proven to know all that was committed before this call."""
        return await self._shards.find_confirmed(home_of(transactional_id))

    def find_now(self, transactional_id: str) -> TransactionCoordinator:
        """The same without waiting for anything."""
        return self._shards.find_now(home_of(transactional_id))

    def all_here(self) -> list[TransactionCoordinator]:
        """Every coordinator on this node; `CoordinatorLoading` if one of them is not ready."""
        return self._shards.all_here()

    async def fresh_id(self, value: TransactionValue | None) -> int:
        """A new producer id, if the next step needs one."""
        if not needs_producer_id(value):
            return NO_ID
        if value is None:
            count = sum(len(shard.stored) for shard in self._shards)
            if count >= self._limits.transactional_ids_max:
                raise Overloaded(f"{count} transactional ids are known here, which is all")
        return await self._producer_ids.next(SYSTEM_SESSION)

    def check_room_for_group(self, value: BatchGroupValue | None) -> None:
        """Raise if the batch group is new and the limit is reached."""
        count = sum(len(shard.batches) for shard in self._shards)
        if value is None and count >= self._limits.transactional_ids_max:
            raise Overloaded(f"{count} batch groups are known here, which is all")

    # -- time ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, end and check until cancelled."""
        check_ms = loop_ms() + self._timing.transaction_check_ms
        async with asyncio.TaskGroup() as group:
            while True:
                self._shards.adopt()
                self._shards.load_some()
                self._end_some(group)
                if loop_ms() >= check_ms:
                    await self.check()
                    check_ms = loop_ms() + self._timing.transaction_check_ms
                wait_ms = min(ADOPT_INTERVAL_MS, max(0, check_ms - loop_ms()))
                await self._alarms.wait(ms_max=0 if self._shards.is_loading else wait_ms)

    async def check(self) -> None:
        """Fence producers of overdue transactions, and delete expired ids."""
        for shard in self._shards:
            for count, transactional_id in enumerate(list(shard.stored), start=1):
                if count % CHECKED_AT_ONCE == 0:
                    await asyncio.sleep(0)
                if shard.is_loaded and not shard.is_gone and shard.is_committed(transactional_id):
                    self._check(shard, transactional_id)
            if shard.is_loaded and not shard.is_gone:
                self._check_groups(shard)

    def _check(self, shard: TransactionCoordinator, transactional_id: str) -> None:
        value, now_ms = shard.stored.find(transactional_id), self._clock.now_ms()
        if value is None:
            return
        expiration_ms = self._timing.transactional_id_expiration_ms
        try:
            if self._is_leased(shard, transactional_id):
                return  # It lives as long as its group: `_check_groups` decides.
            if is_overdue(value, now_ms):
                _log.info("aborting an overdue transaction transactional_id=%s", transactional_id)
                shard.write(transactional_id, fenced(transactional_id, value, now_ms=now_ms))
            elif is_expired(value, now_ms=now_ms, expiration_ms=expiration_ms):
                shard.write(transactional_id, None)
        except RequestError as problem:
            _log.warning("could not check id=%s problem=%s", transactional_id, problem)

    def _is_leased(self, shard: TransactionCoordinator, transactional_id: str) -> bool:
        group = group_of(transactional_id)
        value = None if group is None else shard.batches.find(group)
        return value is not None and value.state is GroupState.OPEN

    def _check_groups(self, shard: TransactionCoordinator) -> None:
        """Abort batches whose lease is over, and delete expired groups."""
        expiration_ms = self._timing.transactional_id_expiration_ms
        for group in shard.batches.names():
            value, now_ms = shard.batches.find(group), self._clock.now_ms()
            if value is None:
                continue
            try:
                if shard.batches.members(group):
                    self._check_lease(shard, group, value, now_ms)
                elif is_forgettable(value, now_ms=now_ms, expiration_ms=expiration_ms):
                    shard.forget_batches(group)
            except RequestError as problem:
                _log.warning("could not check group=%s problem=%s", group, problem)

    def _check_lease(
        self, shard: TransactionCoordinator, group: str, value: BatchGroupValue, now_ms: int
    ) -> None:
        if value.state is not GroupState.OPEN:
            return
        renewed_ms = shard.batches.renewed_ms(group, now_ms)
        if is_silent(shard.batch_members(group), renewed_ms=renewed_ms, now_ms=now_ms):
            _log.info("aborting a silent batch group=%s term=%d", group, value.term)
            shard.begin_batch_change(group, partial(expired, group, now_ms=now_ms))

    # -- ending ----------------------------------------------------------------------------------

    def _end_some(self, group: asyncio.TaskGroup) -> None:
        for shard in self._shards:
            if not shard.is_loaded:
                continue
            for transactional_id in shard.unmarked:
                if len(self._ending) >= self._limits.transaction_endings_max:
                    return
                if (shard, transactional_id) not in self._ending:
                    self._ending.add((shard, transactional_id))
                    group.create_task(self._end(shard, transactional_id))

    async def _end(self, shard: TransactionCoordinator, transactional_id: str) -> None:
        """Write all markers, then that they are written; retry until both are done."""
        value = shard.stored.find(transactional_id)
        assert value is not None
        left: list[Participant] | None = list(value.participants)
        backoff = Backoff()
        try:
            while not shard.is_gone:
                if left:
                    left = await self._markers.write(value, left, epoch=shard.epoch)
                if not left and await self._complete(shard, transactional_id):
                    return
                await backoff.wait()
        finally:
            self._ending.discard((shard, transactional_id))
            self._alarms.wake()

    async def _complete(self, shard: TransactionCoordinator, transactional_id: str) -> bool:
        """Write that every partition has its marker; return whether that is committed."""

        def step(value: TransactionValue | None) -> TransactionValue:
            assert value is not None
            return completed(transactional_id, value, now_ms=self._clock.now_ms())

        try:
            if shard.is_committed(transactional_id):
                if group_of(transactional_id) is not None:
                    # Each batch has its own ids: they are never used again.
                    shard.write(transactional_id, None)
                    await shard.wait_committed(transactional_id)
                else:
                    await shard.change(transactional_id, step)
            else:
                await shard.wait_committed(transactional_id)
        except RequestError as problem:
            _log.warning("could not complete id=%s problem=%s", transactional_id, problem)
            return False
        return True

    def _begin(self, replica: Replica) -> TransactionCoordinator:
        self._alarms.wake()
        return TransactionCoordinator(replica, self._clock, self._alarms.wake, self._decided)

    def _decided(self, commits: bool) -> None:
        self._outcomes[commits].value += 1

    def _samples(self) -> Iterator[Sample]:
        yield Sample(TRANSACTIONS_OPEN, (), sum(len(shard.open_ids) for shard in self._shards))
