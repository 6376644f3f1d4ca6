"""A live subscription: its dispatcher, its members, and the partitions that it reads.

Sends what the dispatcher assigns to the members' connections, and says which cursors must be saved.
Belongs to the event loop; nothing here awaits. `touch` asks the pump for a turn.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from millstream.codec.records import Record
from millstream.engine.dead_letters.records import raw_record
from millstream.engine.filters.filter import Filter, parse
from millstream.engine.ledgers.ledger import Entry
from millstream.engine.publish.subjects import Pattern
from millstream.engine.push.cursor import Cursor, InFlight, size_of
from millstream.engine.push.dispatcher import Bounds, Dispatcher
from millstream.engine.push.member import Member
from millstream.engine.push.records import Chunk, Unreadable
from millstream.engine.push.shard import DeliveryShard, cursor_entry, unmark
from millstream.engine.push.values import (
    AtOffset,
    CursorView,
    Delivered,
    DeliveredRun,
    Send,
    Statistics,
    SubscriptionSpec,
    SubscriptionView,
)
from millstream.engine.runtime.alarms import loop_ms
from millstream.internal_topics.deliveries import FlowPolicy
from millstream.metrics import (
    ACKNOWLEDGED_RECORDS,
    DEAD_LETTERS,
    DELIVERED_RECORDS,
    DROPPED_RECORDS,
    EXPIRED_RECORDS,
    REDELIVERED_RECORDS,
    Metrics,
)
from millstream.model import LogId, Offset, Session, TopicPartition

EVERYTHING = Pattern.parse(">")
COUNTED = ACKNOWLEDGED_RECORDS, DROPPED_RECORDS, EXPIRED_RECORDS


class Reading(Protocol):
    """The feed of a source, as the source sees it."""

    @property
    def position(self) -> Offset: ...


class Source:
    """A subscription in one partition. It is live while the partition's feed reads for it, and
    behind while it has to read for itself."""

    __slots__ = ("ahead", "feed", "is_live", "log_id", "subscription", "target")

    def __init__(
        self, subscription: "Subscription", target: TopicPartition, log_id: LogId, feed: Reading
    ) -> None:
        self.subscription = subscription
        self.target = target
        self.log_id = log_id
        self.feed = feed
        self.is_live = False
        self.ahead: Chunk | None = None  # Already read; the dispatcher had no room for it.

    @property
    def cursor(self) -> Cursor:
        """The cursor, moved on to the feed's position while the source is live."""
        cursor = self.subscription.dispatcher.cursors[self.target]
        if self.is_live:
            cursor.move_on(self.feed.position)
        return cursor

    def offer(self, record: Record, subject: str, size: int, ends_ms: int) -> None:
        """Offer a record whose subject matches, if the filter accepts it."""
        if record.offset < self.subscription.first_offset:
            return
        where = self.subscription.filter
        if where is None or where.matches(record, topic=self.target.topic):
            self.subscription.dispatcher.offer(self.target, record, subject, size, ends_ms)

    def give_up(self, batch: Unreadable) -> None:
        """Give an unreadable batch up: it becomes a dead letter, if the policy has them."""
        if batch.last_offset < self.subscription.first_offset:
            return
        dispatcher, topic = self.subscription.dispatcher, self.target.topic
        record = raw_record(batch.raw, batch.offset, batch.last_offset, batch.timestamp)
        dispatcher.give_up(self.target, record, topic, size_of(record), batch.problem)


class SubscriptionContext(NamedTuple):
    """Callbacks, limits and metrics of the service, for a subscription."""

    touch: Callable[["Subscription"], None]
    ended: Callable[["Subscription"], None]
    chance: Callable[[], float]
    bounds: Bounds
    metrics: Metrics


class Subscription:
    def __init__(
        self,
        spec: SubscriptionSpec,
        session: Session,
        context: SubscriptionContext,
        shard: DeliveryShard | None = None,
    ) -> None:
        """With a `shard` it is durable, and stored there."""
        self.spec = spec
        self.session = session  # On whose behalf records are read.
        self.shard = shard
        # Where its name belongs: it ends when this node no longer leads that.
        self.home = shard
        self.pattern = spec.pattern or EVERYTHING
        self.filter: Filter | None = None if spec.filter is None else parse(spec.filter)
        # The start may be past the end of a log: records before it are skipped.
        self.first_offset = spec.start.offset if isinstance(spec.start, AtOffset) else 0
        self.dispatcher = Dispatcher(spec.acks, spec.retry, context.bounds, context.chance)
        self.members: dict[int, Member] = {}
        self.sources: dict[TopicPartition, Source] = {}
        self.logs: dict[TopicPartition, LogId] = {}  # Of every cursor.
        self.dead_letters_in_progress: set[InFlight] = set()  # Being written.
        self.followed: object = None  # The topics, rights and members that its sources follow.
        self.alarm_ms = -1  # When the pump gives it a turn anyway.
        self.is_ended = False
        self.acknowledged = 0  # By members.
        self._marks: dict[TopicPartition, set[Offset]] = {}
        self._context = context
        self._members_made = 0
        self._counted = 0, 0, 0  # Already in the metrics.

    @property
    def name(self) -> str:
        """Its name in dead letters; empty for one without a name."""
        return self.spec.name or ""

    def touch(self) -> None:
        """Ask for a turn."""
        self._context.touch(self)

    def add_cursor(self, cursor: Cursor, log_id: LogId) -> None:
        self.dispatcher.cursors[cursor.target] = cursor
        self.logs[cursor.target] = log_id
        if cursor.marked:
            self._marks[cursor.target] = set(cursor.marked)

    def drop_cursor(self, target: TopicPartition) -> list[Entry]:
        """Drop the cursor of a deleted partition; return the entries to write."""
        self.dispatcher.forget(target)
        log_id = self.logs.pop(target)
        marks = self._marks.pop(target, set())
        entries = [cursor_entry(self.name, log_id, None)]
        return entries + [unmark(self.name, log_id, offset) for offset in sorted(marks)]

    def rewind(self, target: TopicPartition) -> None:
        """Forget what was read of a partition and is not settled; its cursor stays."""
        value = self._cursor(target).value()
        marks = frozenset(self._marks.get(target, ()))
        self.dispatcher.forget(target)
        self.dispatcher.cursors[target] = Cursor.restore(target, value, marks)

    @property
    def membership(self) -> tuple[int, int]:
        """Changes whenever a member joins or leaves."""
        return self._members_made, len(self.members)

    # -- members ---------------------------------------------------------------------------------

    def join(self, session: Session, send: Send, flow: FlowPolicy | None) -> Member:
        assert not self.is_ended
        self._members_made += 1
        window = self.dispatcher.join(self._members_made, flow or self.spec.flow, loop_ms())
        member = self.members[window.number] = Member(self, window, session, send)
        self.touch()
        return member

    def leave(self, member: Member) -> None:
        del self.members[member.window.number]
        if not self.is_ended:
            self.dispatcher.leave(member.window, loop_ms())
            if self.members:
                self.session = next(iter(self.members.values())).session
            elif self.shard is None:
                self.end()
        self.touch()

    def end(self) -> None:
        """End the subscription: nothing more is read or sent."""
        self.is_ended = True
        self._count()
        self._context.ended(self)
        for member in list(self.members.values()):
            member.end()

    def set_flow(self, member: Member, flow: FlowPolicy) -> None:
        member.window.set_flow(flow, loop_ms())
        self.dispatcher.update_buffer()
        self.touch()

    def nack(
        self, member: Member, target: TopicPartition, offset: Offset, wait_ms: int | None
    ) -> bool:
        if not self.dispatcher.nack(member.window, target, offset, loop_ms(), wait_ms=wait_ms):
            return False
        self.touch()
        return True

    # -- out to the members ----------------------------------------------------------------------

    def pass_on(self, target: TopicPartition, run: DeliveredRun) -> bool:
        """Send a run past the queues, if nothing of it has to be remembered; else return False.

        The usual case of a subscription without acknowledgements. It costs one call for a run,
        where a record in flight costs an object, and a dozen steps.
        """
        if self.filter is not None or len(self.members) != 1:
            return False
        ((number, member),) = self.members.items()
        window, count = member.window, len(run)
        assert number == window.number
        if run[0].record.offset < self.first_offset:
            return False
        if not self.dispatcher.may_pass(target, window, count):
            return False
        if not member.push(run):
            window.is_open = False  # Until `Member.resume`.
            return False
        if not member.is_closed:
            self.dispatcher.passed(target, window, count, run[-1].record.offset + 1)
            self.acknowledged += count
            self._context.metrics.add(DELIVERED_RECORDS, count)
            self._count()
        return True

    def dispatch(self, now_ms: int) -> None:
        """Process deadlines, then send what the windows allow."""
        dispatcher = self.dispatcher
        dispatcher.tick(now_ms)
        while shares := dispatcher.assign(now_ms):
            for window, share in shares:
                member = self.members.get(window.number)
                if member is None:
                    continue  # It left while another member was sent records.
                is_taken = member.push([_delivered(in_flight) for in_flight in share])
                if member.is_closed:
                    continue  # It left during the send; others get the records.
                if is_taken:
                    redelivered, acknowledged = window.redelivered, window.acknowledged
                    dispatcher.sent(window, share)
                    self.acknowledged += window.acknowledged - acknowledged
                    self._context.metrics.add(DELIVERED_RECORDS, len(share))
                    self._context.metrics.add(REDELIVERED_RECORDS, window.redelivered - redelivered)
                else:
                    dispatcher.refuse(window, share)
        self._count()

    def _count(self) -> None:
        dispatcher, metrics, before = self.dispatcher, self._context.metrics, self._counted
        counts = self._counted = self.acknowledged, dispatcher.dropped, dispatcher.expired
        if counts != before:
            for metric, count, counted in zip(COUNTED, counts, before, strict=True):
                metrics.add(metric, count - counted)

    def take_given_up(self) -> list[InFlight]:
        """Take the given-up records whose dead letters are not being written yet."""
        given_up = [
            item
            for item in self.dispatcher.given_up.values()
            if item not in self.dead_letters_in_progress
        ]
        self.dead_letters_in_progress.update(given_up)
        return given_up

    def dead_letter_written(self, in_flight: InFlight) -> bool:
        """Settle a record whose dead letter and mark are written. False if its partition is gone:
        then the mark has to be removed."""
        self.dead_letters_in_progress.discard(in_flight)
        self._context.metrics.add(DEAD_LETTERS)
        is_known = self.dispatcher.dead_letter_written(in_flight)
        if is_known and self.shard is not None:
            self._marks.setdefault(in_flight.target, set()).add(in_flight.offset)
        self.touch()
        return is_known

    # -- what is kept ----------------------------------------------------------------------------

    def unsaved(self, *, all_of_it: bool = False) -> list[Entry]:
        """Entries that save the changed cursors; they count as saved from here on."""
        entries = []
        dispatcher = self.dispatcher
        for target in sorted(dispatcher.cursors):
            cursor = self._cursor(target)
            if not cursor.is_changed and not all_of_it:
                continue
            cursor.is_changed = False
            value = cursor.value()
            entries.append(cursor_entry(self.name, self.logs[target], value))
            open_offsets = {entry.offset for entry in value.unsettled}
            marks = self._marks.get(target, set())
            for offset in sorted(marks):
                if offset < value.next_offset and offset not in open_offsets:
                    entries.append(unmark(self.name, self.logs[target], offset))
                    marks.discard(offset)
        dispatcher.is_changed = False
        return entries

    def _cursor(self, target: TopicPartition) -> Cursor:
        """A cursor, moved on to its source's position."""
        source = self.sources.get(target)
        return self.dispatcher.cursors[target] if source is None else source.cursor

    # -- what it shows ---------------------------------------------------------------------------

    def statistics(self, member: Member) -> Statistics:
        window, dispatcher = member.window, self.dispatcher
        usage = min(1.0, dispatcher.ready_count / dispatcher.buffer) if dispatcher.buffer else 0.0
        return Statistics(
            delivered=window.delivered,
            redelivered=window.redelivered,
            acknowledged=window.acknowledged,
            dropped=dispatcher.dropped,
            dead_lettered=window.dead_lettered,
            in_flight=window.in_flight_count,
            buffered=dispatcher.ready_count,
            buffer_usage=usage,
            tokens=0.0 if window.bucket is None else window.bucket.tokens(loop_ms()),
            is_slow=usage >= window.flow.slow_threshold,
            flow=window.flow,
        )

    def view(self) -> SubscriptionView:
        members = tuple(self.statistics(member) for member in self.members.values())
        return SubscriptionView(self.spec, members, dict(self._cursor_views()))

    def _cursor_views(self) -> Iterator[tuple[TopicPartition, CursorView]]:
        for target in self.dispatcher.cursors:
            cursor = self._cursor(target)
            yield target, CursorView(cursor.floor, cursor.next_offset, cursor.unsettled_count)


def _delivered(in_flight: InFlight) -> Delivered:
    return Delivered(in_flight.target, in_flight.record, in_flight.subject, in_flight.attempts)
