"""The one task behind all subscriptions of a node: it reads, sends, keeps cursors, lets time pass.

Owns the turns. A subscription that was touched and a partition that moved get one; between turns
nothing happens. The one thing to know: what members acknowledged is written every so often, not at
once, because it may be lost: then records come again, which "at least once" allows.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.engine.dead_letters.writer import Burial, HandOvers
from millstream.engine.ledgers.ledger import Entry
from millstream.engine.ledgers.shards import ADOPT_INTERVAL_MS, Shards
from millstream.engine.partitions.service import Partitions
from millstream.engine.produce.unpacking import NotSmall
from millstream.engine.push.chunked import bundles
from millstream.engine.push.cursor import Cursor, Pending
from millstream.engine.push.feed import Feed, Read
from millstream.engine.push.records import Chunk, read_records
from millstream.engine.push.shard import DeliveryShard
from millstream.engine.push.specs import topics_of
from millstream.engine.push.subscription import Source, Subscription
from millstream.engine.runtime.backoff import RETRY_MS_MIN
from millstream.engine.runtime.waiters import Alarms, loop_ms
from millstream.errors import RequestError
from millstream.model import CONTROL_LOG, LogId, Offset, Session, TopicPartition
from millstream.ports import Clock
from millstream.replication.hub import Hub

log = logging.getLogger(__name__)

BURIERS_MAX = 100  # Partitions whose dead letters are being written at the same time.
SAVED_AT_ONCE = 500  # Entries of one write,
SAVED_BYTES_MAX = 2**20  # and what they hold, but one at least.
# What is read and decoded in one step, unless one batch is larger: a few milliseconds.
TURN_BYTES_MAX = 64 * 2**10
FOLLOWED_AT_ONCE = 100  # Subscriptions that look for topics in one step.
DISPATCHED_AT_ONCE = 20  # Subscriptions that get their turn in one step.

_Place = tuple[TopicPartition, LogId]


class _Watched(NamedTuple):
    feed: Feed
    watcher: Callable[[], None]


class Pump:
    def __init__(
        self,
        catalog: Catalog,
        hub: Hub,
        partitions: Partitions,
        shards: Shards[DeliveryShard],
        hand_overs: HandOvers,
        *,
        config: Config,
        clock: Clock,
    ) -> None:
        self.live: dict[Subscription, None] = {}
        self.durable: dict[tuple[DeliveryShard, str], Subscription] = {}
        self._catalog = catalog
        self._hub = hub
        self._partitions = partitions
        self._shards = shards
        self._hand_overs = hand_overs
        self._clock = clock
        self._save_interval_ms = config.timing.delivery_save_ms
        self._alarms: Alarms[Subscription | Feed] = Alarms()
        self._feeds: dict[_Place, _Watched] = {}
        self._touched: dict[Subscription, None] = {}
        self._moved: dict[Feed, None] = {}
        self._slow: set[Feed] = set()  # A thread unpacks what they read next.
        self._unsaved: dict[Subscription, None] = {}
        self._save_ms = 0
        self._finishing: set[DeliveryShard] = set()
        self._keepers: dict[DeliveryShard, None] = {}  # Of what is durable here.
        self._buriers = 0
        self._catalog_version = -1

    async def run(self) -> None:
        """Give turns until cancelled."""
        self._hub.replicas[CONTROL_LOG].watch(self.wake)  # Topics may have come or gone.
        async with asyncio.TaskGroup() as group:
            while True:
                self._shards.adopt()
                self._shards.load_some()
                self._finish_some(group)
                self._follow_catalog()
                for item in self._alarms.due(loop_ms()):
                    if isinstance(item, Feed):
                        self._moved[item] = None
                    else:
                        self._touched[item] = None
                await self._turn(group)
                if self._unsaved and loop_ms() >= self._save_ms:
                    self.save()
                await self._alarms.wait(ms_max=self._idle_ms())

    def wake(self) -> None:
        self._alarms.wake()

    def touch(self, subscription: Subscription) -> None:
        """Give it a turn soon."""
        if not self._touched and not self._moved:
            self._alarms.wake()
        self._touched[subscription] = None

    def begin(self, subscription: Subscription) -> None:
        self.live[subscription] = None
        if subscription.shard is not None:
            self.durable[subscription.shard, subscription.name] = subscription
            self._keepers[subscription.shard] = None
        self.touch(subscription)

    def end(self, subscription: Subscription) -> None:
        self._detach(subscription)
        self.live.pop(subscription, None)
        self._unsaved.pop(subscription, None)
        if subscription.shard is not None:
            self.durable.pop((subscription.shard, subscription.name), None)

    def save(self, *, all_of_it: bool = False) -> None:
        """Write what is not written of the cursors, for all of them in a few batches."""
        unsaved = list(self.durable.values()) if all_of_it else list(self._unsaved)
        self._unsaved.clear()
        by_shard: dict[DeliveryShard, list[Entry]] = {}
        for subscription in unsaved:
            if subscription.shard is not None and not subscription.shard.is_gone:
                entries = subscription.unsaved(all_of_it=all_of_it)
                by_shard.setdefault(subscription.shard, []).extend(entries)
        for shard, entries in by_shard.items():
            try:
                for some in bundles(
                    entries, _size_of, count_max=SAVED_AT_ONCE, bytes_max=SAVED_BYTES_MAX
                ):
                    shard.write(some)
            except RequestError as problem:
                log.warning("could not keep cursors count=%d problem=%s", len(entries), problem)
                for subscription in unsaved:
                    if subscription.shard is shard:
                        subscription.desk.change_all()
                        self._save_later(subscription)

    # -- turns -----------------------------------------------------------------------------------

    async def _turn(self, group: asyncio.TaskGroup) -> None:
        touched, self._touched = self._touched, {}
        for count, subscription in enumerate(touched, start=1):
            self._follow(subscription)
            if count % FOLLOWED_AT_ONCE == 0:
                await asyncio.sleep(0)
        moved, self._moved = self._moved, {}
        for feed in moved:
            await self._step(feed, touched, group)
            await asyncio.sleep(0)
        for count, subscription in enumerate(touched, start=1):
            if subscription in self.live:
                now_ms = loop_ms()
                subscription.dispatch(now_ms)
                self._follow_up(subscription, now_ms, group)
            if count % DISPATCHED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _step(
        self, feed: Feed, touched: dict[Subscription, None], group: asyncio.TaskGroup
    ) -> None:
        if feed in self._slow or loop_ms() < feed.retry_at_ms:
            return  # It gets a turn when that is over.
        try:
            await self._read_on(feed, self._read, touched)
        except NotSmall:
            # Others need not wait until a thread has unpacked the batch.
            self._slow.add(feed)
            group.create_task(self._step_slowly(feed))

    async def _step_slowly(self, feed: Feed) -> None:
        touched: dict[Subscription, None] = {}
        try:
            await self._read_on(feed, self._read_patiently, touched)
        finally:
            self._slow.discard(feed)
        self._touched.update(touched)
        self._moved[feed] = None
        self._alarms.wake()

    async def _read_on(self, feed: Feed, read: Read, touched: dict[Subscription, None]) -> None:
        try:
            has_more = await feed.step(read, touched)
        except RequestError as problem:
            wait_ms = feed.failed(problem)
            self._alarms.set(loop_ms() + wait_ms, feed)
        else:
            feed.worked()
            if has_more:
                self._moved[feed] = None

    async def _read(self, session: Session, target: TopicPartition, offset: Offset) -> Chunk:
        return await read_records(
            self._partitions, session, target, offset, bytes_max=TURN_BYTES_MAX, is_patient=False
        )

    async def _read_patiently(
        self, session: Session, target: TopicPartition, offset: Offset
    ) -> Chunk:
        return await read_records(
            self._partitions, session, target, offset, bytes_max=TURN_BYTES_MAX
        )

    def _follow_up(self, subscription: Subscription, now_ms: int, group: asyncio.TaskGroup) -> None:
        """What a turn leaves to be done: reading on, burying, keeping, the next alarm."""
        desk = subscription.desk
        if desk.has_room:
            for source in subscription.sources.values():
                if not source.is_live and isinstance(source.feed, Feed):
                    self._moved[source.feed] = None
        if desk.burials:
            self._bury_some(subscription, group)
        if desk.is_changed and subscription.shard is not None:
            self._save_later(subscription)
        due_ms = desk.due_ms(now_ms)
        if due_ms is not None and not now_ms < subscription.alarm_ms <= due_ms:
            subscription.alarm_ms = due_ms
            self._alarms.set(due_ms, subscription)

    def _save_later(self, subscription: Subscription) -> None:
        if not self._unsaved:
            self._save_ms = loop_ms() + self._save_interval_ms
        self._unsaved[subscription] = None

    def _idle_ms(self) -> int:
        if self._touched or self._moved or self._shards.is_loading:
            return 0
        if self._unsaved:
            return max(0, min(ADOPT_INTERVAL_MS, self._save_ms - loop_ms()))
        return ADOPT_INTERVAL_MS

    # -- dead letters ----------------------------------------------------------------------------

    def _bury_some(self, subscription: Subscription, group: asyncio.TaskGroup) -> None:
        by_target: dict[TopicPartition, list[Pending]] = {}
        if self._buriers >= BURIERS_MAX:
            self._alarms.set(loop_ms() + RETRY_MS_MIN, subscription)
            return
        for pending in subscription.to_bury():
            by_target.setdefault(pending.target, []).append(pending)
        for failed in by_target.values():
            self._buriers += 1
            batches = self._hand_overs.prepare(subscription, failed)
            group.create_task(self._bury(subscription, batches))

    async def _bury(self, subscription: Subscription, batches: list[list[Burial]]) -> None:
        try:
            await self._hand_overs.bury(subscription, batches)
        finally:
            self._buriers -= 1

    def _finish_some(self, group: asyncio.TaskGroup) -> None:
        for shard in self._shards:
            if shard.held and shard not in self._finishing:
                self._finishing.add(shard)
                group.create_task(self._finish(shard))

    async def _finish(self, shard: DeliveryShard) -> None:
        try:
            await self._hand_overs.finish(shard)
        finally:
            self._finishing.discard(shard)
            self._alarms.wake()

    # -- which partitions are read ---------------------------------------------------------------

    def _follow_catalog(self) -> None:
        """Let topics that came and went be seen by whoever may care."""
        for shard in [one for one in self._keepers if one.is_gone]:
            del self._keepers[shard]
            for subscription in [one for one in self.live if one.shard is shard]:
                subscription.end()
        if self._catalog.version != self._catalog_version:
            self._catalog_version = self._catalog.version
            self._touched.update(self.live)

    def _follow(self, subscription: Subscription) -> None:
        """Read where there is something to read, as long as there is anybody to read for."""
        if subscription not in self.live:
            return
        if not subscription.members:
            if subscription.sources:
                self._park(subscription)
            return
        if subscription.catalog_version == self._catalog.version:
            return
        wanted = {
            TopicPartition(topic.name, partition): topic.log(partition)
            for topic in topics_of(subscription.spec, self._catalog)
            for partition in range(topic.partition_count)
        }
        for target, log_id in list(subscription.logs.items()):
            if wanted.get(target) != log_id:
                self._drop(subscription, target)
        is_complete = True
        for target, log_id in wanted.items():
            if target not in subscription.sources:
                is_complete &= self._attach(subscription, target, log_id)
        if is_complete:
            subscription.catalog_version = self._catalog.version
        else:
            self._alarms.set(loop_ms() + RETRY_MS_MIN, subscription)

    def _attach(self, subscription: Subscription, target: TopicPartition, log_id: LogId) -> bool:
        """Read a partition; False if it is not here yet."""
        watched = self._feeds.get((target, log_id))
        if watched is None:
            replica = self._hub.replicas.get(log_id)
            if replica is None:
                return False
            feed = Feed(target, replica, self._clock)

            def moved() -> None:
                if not self._touched and not self._moved:
                    self._alarms.wake()
                self._moved[feed] = None

            watched = self._feeds[target, log_id] = _Watched(feed, moved)
            replica.watch(moved)
        if target not in subscription.logs:
            subscription.add_cursor(Cursor(target, 0), log_id)
        source = Source(subscription, target, log_id, watched.feed)
        subscription.sources[target] = source
        watched.feed.add(source)
        self._moved[watched.feed] = None
        return True

    def _drop(self, subscription: Subscription, target: TopicPartition) -> None:
        """The partition is gone, with all that was known of it."""
        self._leave(subscription, target)
        entries = subscription.drop_cursor(target)
        if subscription.shard is not None:
            try:
                subscription.shard.write(entries)
            except RequestError as problem:
                log.warning("could not forget a cursor target=%s problem=%s", target, problem)

    def _park(self, subscription: Subscription) -> None:
        """Nobody is here: let go of partitions and payloads."""
        if subscription.shard is not None:
            subscription.desk.change_all()
            self._save_later(subscription)
        self._detach(subscription)
        subscription.desk.park()

    def _detach(self, subscription: Subscription) -> None:
        for target in list(subscription.sources):
            self._leave(subscription, target)
        subscription.catalog_version = -1

    def _leave(self, subscription: Subscription, target: TopicPartition) -> None:
        source = subscription.sources.pop(target, None)
        if source is None:
            return
        watched = self._feeds[target, source.log_id]
        watched.feed.remove(source)
        if not watched.feed:
            watched.feed.replica.unwatch(watched.watcher)
            del self._feeds[target, source.log_id]
            self._moved.pop(watched.feed, None)


def _size_of(entry: Entry) -> int:
    return len(entry.key or b"") + len(entry.value or b"")
