"""Runs all subscriptions of a node in one task: reads, sends, saves cursors, checks deadlines.

A subscription that was touched and a partition that has new records get a turn; nothing happens
between turns. Acknowledgements are saved every `delivery_save_ms`, not at once: after a crash the
unsaved ones are delivered again, which "at least once" allows.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.engine.dead_letters.writer import DeadLetterWriter, FailedRecord
from millstream.engine.gate import Gate, Operation, group_resource, topic_resource
from millstream.engine.ledgers.ledger import Entry
from millstream.engine.ledgers.shards import ADOPT_INTERVAL_MS, Shards
from millstream.engine.partitions.service import Partitions
from millstream.engine.produce.unpacking import NotSmall
from millstream.engine.push.cursor import Cursor, InFlight
from millstream.engine.push.feed import Feed, Read
from millstream.engine.push.records import Chunk, read_records
from millstream.engine.push.shard import DeliveryShard
from millstream.engine.push.specs import group_of, topics_of
from millstream.engine.push.subscription import Source, Subscription
from millstream.engine.push.values import SubscriptionSpec
from millstream.engine.runtime.alarms import Alarms, loop_ms
from millstream.engine.runtime.backoff import RETRY_MS_MIN
from millstream.engine.runtime.chunked import chunked
from millstream.errors import RequestError
from millstream.model import CONTROL_LOG, LogId, Offset, Session, TopicPartition
from millstream.ports import Clock
from millstream.replication.hub import Hub

_log = logging.getLogger(__name__)

DEAD_LETTER_WRITES_MAX = 100  # Partitions whose dead letters are written concurrently.
SAVED_AT_ONCE = 500  # Entries in one write.
SAVED_BYTES_MAX = 2**20  # Of the entries in one write; a larger entry is written alone.
# Read and decoded in one step, unless one batch is larger: a few milliseconds.
TURN_BYTES_MAX = 64 * 2**10
REMOTE_POLL_MS = 100  # Of a partition that has no replica here.
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
        dead_letter_writer: DeadLetterWriter,
        gate: Gate,
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
        self._dead_letter_writer = dead_letter_writer
        self._gate = gate
        self._clock = clock
        self._save_interval_ms = config.timing.delivery_save_ms
        self._alarms: Alarms[Subscription | Feed] = Alarms()
        self._feeds: dict[_Place, _Watched] = {}
        self._touched: dict[Subscription, None] = {}
        self._moved: dict[Feed, None] = {}
        # Feeds that wait for a thread or for another node, and whether they moved meanwhile.
        self._slow: dict[Feed, bool] = {}
        self._unsaved: dict[Subscription, None] = {}
        self._save_ms = 0
        self._finishing: set[DeliveryShard] = set()
        self._keepers: dict[
            DeliveryShard, None
        ] = {}  # Shards with durable subscriptions on this node.
        self._dead_letter_writes = 0
        self._followed = (-1, -1)  # The versions of the catalog and of all rights.

    async def run(self) -> None:
        """Give turns until cancelled."""
        self._hub.replicas[CONTROL_LOG].watch(self.wake)  # Topics are created and deleted there.
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
        if subscription.home is not None:
            self._keepers[subscription.home] = None
        self.touch(subscription)

    def end(self, subscription: Subscription) -> None:
        self._detach(subscription)
        self.live.pop(subscription, None)
        self._unsaved.pop(subscription, None)
        if subscription.shard is not None:
            self.durable.pop((subscription.shard, subscription.name), None)

    def save(self, *, all_of_it: bool = False) -> None:
        """Write the changed cursors of all subscriptions, in a few batches per shard."""
        unsaved = list(self.durable.values()) if all_of_it else list(self._unsaved)
        self._unsaved.clear()
        by_shard: dict[DeliveryShard, list[Entry]] = {}
        for subscription in unsaved:
            if subscription.shard is not None and not subscription.shard.is_gone:
                entries = subscription.unsaved(all_of_it=all_of_it)
                by_shard.setdefault(subscription.shard, []).extend(entries)
        for shard, entries in by_shard.items():
            try:
                for part in chunked(
                    entries, _size_of, count_max=SAVED_AT_ONCE, bytes_max=SAVED_BYTES_MAX
                ):
                    shard.write(part)
            except RequestError as problem:
                _log.warning("could not save cursors count=%d problem=%s", len(entries), problem)
                for subscription in unsaved:
                    if subscription.shard is shard:
                        subscription.dispatcher.change_all()
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
            self._follow(subscription)  # Rights may be others since the turn began.
            if subscription in self.live:
                now_ms = loop_ms()
                subscription.dispatch(now_ms)
                self._follow_up(subscription, now_ms, group)
            if count % DISPATCHED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _step(
        self, feed: Feed, touched: dict[Subscription, None], group: asyncio.TaskGroup
    ) -> None:
        if feed in self._slow:
            self._slow[feed] = True
            return
        if loop_ms() < feed.retry_at_ms:
            return  # It gets a turn when the wait is over.
        if feed.is_elsewhere:
            self._slow[feed] = False
            group.create_task(self._step_slowly(feed))
            return
        try:
            await self._read_on(feed, self._read, touched)
        except NotSmall:
            # Other feeds do not wait until a thread has decompressed the batch.
            self._slow[feed] = True
            group.create_task(self._step_slowly(feed))

    async def _step_slowly(self, feed: Feed) -> None:
        touched: dict[Subscription, None] = {}
        try:
            await self._read_on(feed, self._read_patiently, touched)
        finally:
            has_moved = self._slow.pop(feed)
        self._touched.update(touched)
        if has_moved:
            self._moved[feed] = None
        if feed and (feed.replica is None or feed.replica.is_gone):  # Nothing says what is new.
            self._alarms.set(loop_ms() + REMOTE_POLL_MS, feed)
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
        """Schedule what follows a turn: reads, dead letters, saving, the next alarm."""
        dispatcher = subscription.dispatcher
        if dispatcher.has_room:
            for source in subscription.sources.values():
                if not source.is_live and isinstance(source.feed, Feed):
                    self._moved[source.feed] = None
        if dispatcher.given_up:
            self._write_dead_letters(subscription, group)
        if dispatcher.is_changed and subscription.shard is not None:
            self._save_later(subscription)
        due_ms = dispatcher.due_ms(now_ms)
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

    def _write_dead_letters(self, subscription: Subscription, group: asyncio.TaskGroup) -> None:
        by_target: dict[TopicPartition, list[InFlight]] = {}
        if self._dead_letter_writes >= DEAD_LETTER_WRITES_MAX:
            self._alarms.set(loop_ms() + RETRY_MS_MIN, subscription)
            return
        for in_flight in subscription.take_given_up():
            by_target.setdefault(in_flight.target, []).append(in_flight)
        for failed in by_target.values():
            self._dead_letter_writes += 1
            batches = self._dead_letter_writer.prepare(subscription, failed)
            group.create_task(self._write_batches(subscription, batches))

    async def _write_batches(
        self, subscription: Subscription, batches: list[list[FailedRecord]]
    ) -> None:
        try:
            await self._dead_letter_writer.write(subscription, batches)
        finally:
            self._dead_letter_writes -= 1

    def _finish_some(self, group: asyncio.TaskGroup) -> None:
        for shard in self._shards:
            if shard.held and shard not in self._finishing:
                self._finishing.add(shard)
                group.create_task(self._finish(shard))

    async def _finish(self, shard: DeliveryShard) -> None:
        try:
            await self._dead_letter_writer.finish(shard)
        finally:
            self._finishing.discard(shard)
            self._alarms.wake()

    # -- which partitions are read ---------------------------------------------------------------

    def _follow_catalog(self) -> None:
        """End the subscriptions of lost shards; touch all others when the catalog changed."""
        for shard in [shard for shard in self._keepers if shard.is_gone]:
            del self._keepers[shard]
            for subscription in [live for live in self.live if live.home is shard]:
                subscription.end()
        if self._versions != self._followed:
            self._followed = self._versions
            self._touched.update(self.live)

    @property
    def _versions(self) -> tuple[int, int]:
        return self._catalog.version, self._gate.version

    def _follow(self, subscription: Subscription) -> None:
        """Attach a subscription to the partitions of its topics that all its members may read."""
        if subscription not in self.live:
            return
        if subscription.followed == (*self._versions, *subscription.membership):
            return
        self._expel(subscription)
        if subscription not in self.live:
            return  # It ended with its last member.
        if not subscription.members:
            if subscription.sources:
                self._suspend(subscription)
            return
        topics = topics_of(subscription.spec, self._catalog)
        partitions = {
            TopicPartition(topic.name, partition): topic.log(partition)
            for topic in topics
            for partition in range(topic.partition_count)
        }
        for target, log_id in list(subscription.logs.items()):
            if partitions.get(target) != log_id:
                self._drop(subscription, target)
        hidden = {topic.name for topic in topics if not self._may_read(subscription, topic.name)}
        is_complete = True
        for target, log_id in partitions.items():
            if target.topic in hidden:
                self._hide(subscription, target)
            elif target not in subscription.sources:
                is_complete &= self._attach(subscription, target, log_id)
        if is_complete:
            subscription.followed = (*self._versions, *subscription.membership)
        else:
            self._alarms.set(loop_ms() + RETRY_MS_MIN, subscription)

    def _expel(self, subscription: Subscription) -> None:
        """Close the members that may not be in the subscription any more."""
        if not self._gate.may_change:
            return
        for member in list(subscription.members.values()):
            if not self._may_join(member.session, subscription.spec):
                member.expel()

    def _may_join(self, session: Session, spec: SubscriptionSpec) -> bool:
        allows, group = self._gate.allows, group_of(spec)
        if group is not None and not allows(session, Operation.JOIN, group_resource(group)):
            return False
        return all(allows(session, Operation.READ, topic_resource(name)) for name in spec.topics)

    def _may_read(self, subscription: Subscription, topic: str) -> bool:
        """Whether every member may: any of them may be given the next record."""
        return not self._gate.may_change or all(
            self._gate.allows(member.session, Operation.READ, topic_resource(topic))
            for member in subscription.members.values()
        )

    def _hide(self, subscription: Subscription, target: TopicPartition) -> None:
        """Stop reading a partition; its cursor waits until all members may read it."""
        source = subscription.sources.get(target)
        if source is not None:
            source.cursor.is_changed = True
            self._leave(subscription, target)
            subscription.rewind(target)

    def _attach(self, subscription: Subscription, target: TopicPartition, log_id: LogId) -> bool:
        """Read a partition; False if this node has no replica of it yet."""
        watched = self._feeds.get((target, log_id))
        if watched is None:
            replica = self._hub.replicas.get(log_id)
            if replica is None and not self._is_elsewhere(log_id):
                self._hub.wake([log_id])  # There may be thousands: threads open them.
                return False
            feed = Feed(target, replica, self._clock)

            def moved() -> None:
                if not self._touched and not self._moved:
                    self._alarms.wake()
                self._moved[feed] = None

            watched = self._feeds[target, log_id] = _Watched(feed, moved)
            if replica is not None:
                replica.watch(moved)
        if target not in subscription.logs:
            subscription.add_cursor(Cursor(target, 0), log_id)
        source = Source(subscription, target, log_id, watched.feed)
        subscription.sources[target] = source
        watched.feed.add(source)
        self._moved[watched.feed] = None
        return True

    def _is_elsewhere(self, log_id: LogId) -> bool:
        """Whether another node leads a log of which none is here."""
        if log_id in self._hub.resting or self._partitions.remote is None:
            return False
        return self._hub.leadership.of(log_id).leader is not None

    def _drop(self, subscription: Subscription, target: TopicPartition) -> None:
        """Drop the cursor of a deleted partition."""
        self._leave(subscription, target)
        entries = subscription.drop_cursor(target)
        if subscription.shard is not None:
            try:
                subscription.shard.write(entries)
            except RequestError as problem:
                _log.warning("could not delete a cursor target=%s problem=%s", target, problem)

    def _suspend(self, subscription: Subscription) -> None:
        """Detach a subscription without members from its partitions, and drop payloads."""
        if subscription.shard is not None:
            subscription.dispatcher.change_all()
            self._save_later(subscription)
        self._detach(subscription)
        subscription.dispatcher.suspend()

    def _detach(self, subscription: Subscription) -> None:
        for target in list(subscription.sources):
            self._leave(subscription, target)
        subscription.followed = None

    def _leave(self, subscription: Subscription, target: TopicPartition) -> None:
        source = subscription.sources.pop(target, None)
        if source is None:
            return
        watched = self._feeds[target, source.log_id]
        watched.feed.remove(source)
        if not watched.feed:
            if watched.feed.replica is not None:
                watched.feed.replica.unwatch(watched.watcher)
            del self._feeds[target, source.log_id]
            self._moved.pop(watched.feed, None)


def _size_of(entry: Entry) -> int:
    return len(entry.key or b"") + len(entry.value or b"")
