"""Subscriptions as protocols ask for them: subscribe, join, create, describe, delete.

Owns which subscriptions are live on this node, and the access checks. The `Pump` runs their turns
(read, send, save). A durable subscription belongs to the shard that its name hashes to, and is live
here while this node leads that shard.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.engine.cluster.relay.callers import first_hand
from millstream.engine.gate import Gate, Operation, group_resource, topic_resource
from millstream.engine.ledgers.shards import Shards
from millstream.engine.partitions.service import Partitions
from millstream.engine.partitions.slices import Earliest, Latest
from millstream.engine.push.cursor import Cursor
from millstream.engine.push.dispatcher import Bounds
from millstream.engine.push.member import Member
from millstream.engine.push.pump import Pump
from millstream.engine.push.shard import LOADING_WAIT_MS, DeliveryShard, find_open
from millstream.engine.push.specs import (
    check_flow,
    check_spec,
    group_of,
    restored,
    stored,
    topics_of,
)
from millstream.engine.push.subscription import Subscription, SubscriptionContext
from millstream.engine.push.values import AtOffset, Send, Start, SubscriptionSpec, SubscriptionView
from millstream.errors import (
    CoordinatorLoading,
    Denied,
    Overloaded,
    StorageUnavailable,
    UnknownTopic,
)
from millstream.errors.deliveries import (
    InvalidSubscription,
    SubscriptionExists,
    UnknownSubscription,
)
from millstream.internal_topics.deliveries import CursorValue, FlowPolicy
from millstream.metrics import Metrics
from millstream.model import SYSTEM_SESSION, LogId, Offset, Session, TopicPartition
from millstream.ports import Clock

if TYPE_CHECKING:  # It calls this one.
    from millstream.engine.push.remote.service import RemoteSubscriptions


class Deliveries:
    def __init__(
        self,
        gate: Gate,
        catalog: Catalog,
        partitions: Partitions,
        shards: Shards[DeliveryShard],
        pump: Pump,
        *,
        config: Config,
        clock: Clock,
        metrics: Metrics,
        chance: Callable[[], float],
    ) -> None:
        # Owners and members on other nodes; None before the first link to one.
        self.remote: RemoteSubscriptions | None = None
        self._gate = gate
        self._catalog = catalog
        self._partitions = partitions
        self._shards = shards
        self._pump = pump
        self._limits = config.limits
        self._clock = clock
        self._shared: dict[str, Subscription] = {}  # Named and not durable.
        self._changing: dict[str, asyncio.Event] = {}  # Durable ones that come or go right now.
        bounds = Bounds(
            config.limits.delivery_unsettled_max, config.limits.delivery_buffered_bytes_max
        )
        self._context = SubscriptionContext(pump.touch, self._ended, chance, bounds, metrics)

    async def subscribe(self, session: Session, spec: SubscriptionSpec, send: Send) -> Member:
        """Become a member, of a subscription that is made if there is none of that name.

        What exists stays as it is: only the flow policy of `spec` counts then, for this member.
        Records may be sent before this returns.
        """
        self._admit(session, spec)
        check_spec(spec)
        if self.remote is not None and spec.name is not None and not session.is_relayed:
            return await self.remote.subscribe(session, spec, send)
        session = first_hand(session)
        if spec.name is not None and spec.is_durable:
            while (shard := await self._find(spec.name)).stored.find(spec.name) is None:
                await self._define(session, spec, spec.name, shard)
            return self._join_durable(session, spec.name, send, spec.flow)
        subscription = self._shared.get(spec.name or "")
        if subscription is None:
            subscription = await self._begin(session, spec)
        return subscription.join(session, send, spec.flow)

    async def join(
        self, session: Session, name: str, send: Send, *, flow: FlowPolicy | None = None
    ) -> Member:
        """Become a member of a durable subscription, or raise `UnknownSubscription`."""
        self._gate.admit(session, Operation.JOIN, group_resource(name))
        if flow is not None:
            check_flow(flow)
        if self.remote is not None and not session.is_relayed:
            return await self.remote.join(session, name, send, flow)
        session = first_hand(session)
        shard = await self._find(name)
        value = shard.stored.find(name)
        if value is None:
            raise UnknownSubscription(name)
        self._admit(session, restored(name, value))
        return self._join_durable(session, name, send, flow)

    async def create(self, session: Session, spec: SubscriptionSpec) -> None:
        """Create a durable subscription; it begins where `start` is at this moment."""
        self._admit(session, spec)
        check_spec(spec)
        if spec.name is None or not spec.is_durable:
            raise InvalidSubscription("only a durable subscription can exist without members")
        if self.remote is not None and not session.is_relayed:
            await self.remote.create(session, spec, spec.name)
            return
        session = first_hand(session)
        shard = await self._find(spec.name)
        if shard.stored.find(spec.name) is not None:
            raise SubscriptionExists(spec.name)
        await self._define(session, spec, spec.name, shard)

    async def delete(self, session: Session, name: str) -> None:
        """Forget a durable subscription; its members get nothing more."""
        self._gate.admit(session, Operation.DELETE, group_resource(name))
        if self.remote is not None and not session.is_relayed:
            await self.remote.delete(session, name)
            return
        shard = await self._find(name)
        if shard.stored.find(name) is None:
            raise UnknownSubscription(name)
        with self._changed(name):
            live = self._pump.durable.get((shard, name))
            if live is not None:
                live.end()
            await shard.delete(name)
        self._gate.note("group.delete", session, group_resource(name))

    async def list(self, session: Session) -> list[SubscriptionView]:
        """Every durable subscription that the session may see, by name; of nodes that are up."""
        self._gate.admit(session, Operation.DESCRIBE, "groups")
        if self.remote is not None and not session.is_relayed:
            return await self.remote.list(session)
        await self._loaded()
        views = {
            name: self._view(shard, name)
            for shard in self._shards
            for name in shard.stored
            if self._gate.sees(session, group_resource(name))
        }
        return [views[name] for name in sorted(views)]

    async def describe(self, session: Session, name: str) -> SubscriptionView:
        """A durable subscription: its members and its cursors."""
        self._gate.admit(session, Operation.DESCRIBE, group_resource(name))
        if self.remote is not None and not session.is_relayed:
            return await self.remote.describe(session, name)
        shard = await self._find(name)
        if shard.stored.find(name) is None:
            raise UnknownSubscription(name)
        return self._view(shard, name)

    # -- rights ----------------------------------------------------------------------------------

    def _admit(self, session: Session, spec: SubscriptionSpec) -> None:
        group = group_of(spec)
        if group is not None:
            self._gate.admit(session, Operation.JOIN, group_resource(group))
        for topic in spec.topics:
            self._gate.admit(session, Operation.READ, topic_resource(topic))
        if not spec.topics and spec.pattern is not None:
            first = spec.pattern.tokens[0] if spec.pattern.tokens else None
            if first is None:
                # Access to each topic is checked when it is read.
                self._gate.admit(session, Operation.DESCRIBE, "topics")
            else:
                self._gate.admit(session, Operation.READ, topic_resource(first))

    # -- finding and beginning -------------------------------------------------------------------

    async def _find(self, name: str) -> DeliveryShard:
        """The shard of a subscription, once no creation or deletion of it is in progress."""
        shard = await find_open(self._shards, name)
        while name in self._changing:
            await self._changing[name].wait()
            shard = await find_open(self._shards, name)
        return shard

    @contextmanager
    def _changed(self, name: str) -> Iterator[None]:
        """Make other calls for this subscription wait until its change is written."""
        assert name not in self._changing
        done = self._changing[name] = asyncio.Event()
        try:
            yield
        finally:
            del self._changing[name]
            done.set()

    async def _loaded(self) -> None:
        while True:
            try:
                for shard in self._shards.all_here():
                    shard.check_open("*")
                return
            except CoordinatorLoading:
                self._pump.wake()
                await asyncio.sleep(LOADING_WAIT_MS / 1000)

    async def _define(
        self, session: Session, spec: SubscriptionSpec, name: str, shard: DeliveryShard
    ) -> None:
        """Store a new subscription; concurrent calls for the same name wait for the first."""
        self._check_count()
        with self._changed(name):
            value = stored(spec, principal=str(session.principal), now_ms=self._clock.now_ms())
            cursors = {
                log_id: CursorValue(next_offset=offset)
                for _, log_id, offset in await self._starts(session, spec)
            }
            await shard.define(name, value, cursors)

    def _join_durable(
        self, session: Session, name: str, send: Send, flow: FlowPolicy | None
    ) -> Member:
        shard = self._shards.find_now(name)
        shard.check_open(name)
        live = self._pump.durable.get((shard, name))
        if live is None:
            live = self._restored(session, name, shard)
            self._pump.begin(live)
        elif not live.members:
            live.session = session
        return live.join(session, send, flow)

    async def _begin(self, session: Session, spec: SubscriptionSpec) -> Subscription:
        """Start a subscription that is not durable."""
        self._check_count()
        subscription = Subscription(spec, session, self._context)
        if self.remote is not None and spec.name is not None:
            subscription.home = await self._find(spec.name)
        for target, log_id, offset in await self._starts(session, spec):
            subscription.add_cursor(Cursor(target, offset), log_id)
        if spec.name is not None:
            other = self._shared.setdefault(spec.name, subscription)
            if other is not subscription:
                return other  # A concurrent call created it first.
        self._pump.begin(subscription)
        return subscription

    def _ended(self, subscription: Subscription) -> None:
        if self._shared.get(subscription.name) is subscription:
            del self._shared[subscription.name]
        self._pump.end(subscription)

    def _check_count(self) -> None:
        limit = self._limits.subscriptions_max
        passing = len(self._pump.live) - len(self._pump.durable)
        count = passing + sum(len(shard.stored) for shard in self._shards)
        if count >= limit:
            raise Overloaded(f"{count} subscriptions are here, which is all there may be")

    # -- where a subscription begins -------------------------------------------------------------

    async def _starts(
        self, session: Session, spec: SubscriptionSpec
    ) -> Sequence[tuple[TopicPartition, LogId, Offset]]:
        """Start offsets in the partitions that exist now. Later ones are read from their start."""
        starts = []
        logs: set[UUID] = set()
        for topic in topics_of(spec, self._catalog):
            log = topic.base_id or topic.topic_id
            if log in logs:  # There is one cursor per log.
                raise InvalidSubscription(
                    f"{topic.name!r} shows the same records as another of its topics"
                )
            logs.add(log)
            for partition in range(topic.partition_count):
                target = TopicPartition(topic.name, partition)
                try:
                    offset = await self._start(session, target, spec.start)
                except (Denied, UnknownTopic, StorageUnavailable):
                    if spec.topics:
                        raise
                    continue  # A pattern skips topics that cannot or may not be read.
                starts.append((target, topic.log(partition), offset))
        return starts

    async def _start(self, session: Session, target: TopicPartition, start: Start) -> Offset:
        if isinstance(start, AtOffset):
            first = await self._partitions.find(session, target, Earliest())
            last = await self._partitions.find(session, target, Latest())
            assert first is not None
            assert last is not None
            return max(first.offset, min(start.offset, last.offset))
        position = await self._partitions.find(session, target, start)
        if position is None:
            position = await self._partitions.find(session, target, Latest())
            assert position is not None
        return position.offset

    def _target(self, spec: SubscriptionSpec, log_id: LogId) -> TopicPartition | None:
        """The partition of a log, by the name of the subscription's topic; None if deleted."""
        for topic in topics_of(spec, self._catalog):
            is_its = (topic.base_id or topic.topic_id) == log_id.topic_id
            if is_its and log_id.partition < topic.partition_count:
                return TopicPartition(topic.name, log_id.partition)
        return None

    def _view(self, shard: DeliveryShard, name: str) -> SubscriptionView:
        live = self._pump.durable.get((shard, name))
        if live is not None:
            return live.view()
        return self._restored(SYSTEM_SESSION, name, shard).view()

    def _restored(self, session: Session, name: str, shard: DeliveryShard) -> Subscription:
        """A durable subscription as stored."""
        value = shard.stored.find(name)
        if value is None:
            raise UnknownSubscription(name)
        subscription = Subscription(restored(name, value), session, self._context, shard)
        marks = shard.stored.settled(name)
        for log_id, cursor in shard.stored.cursors(name).items():
            target = self._target(subscription.spec, log_id)
            if target is not None:
                kept = Cursor.restore(target, cursor, marks.get(log_id, frozenset()))
                subscription.add_cursor(kept, log_id)
        return subscription
