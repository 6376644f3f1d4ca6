"""Decides for one subscription which member is sent which record, and when it is sent again.

Owns the records that are not settled and the members' windows. Pure: time and chance are passed in;
`Subscription` sends, `Feed` reads.

Invariant: a record leaves in one of four ways, once: acknowledged, dropped by the flow policy,
expired, or put into `given_up`, which it leaves when its dead letter is written.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from millstream.codec.lifetime import NEVER_MS
from millstream.codec.records import Record
from millstream.engine.publish.subjects import is_dead_topic
from millstream.engine.push.cursor import (
    IN_FLIGHT_BYTES,
    TRANSITIONS,
    Cursor,
    Event,
    InFlight,
    Phase,
    Sending,
)
from millstream.engine.push.queues import Deadlines, ReadyRecords, delay_ms
from millstream.engine.push.window import Window
from millstream.internal_topics.deliveries import AckMode, FlowPolicy, Overflow, RetryPolicy
from millstream.model import Offset, TopicPartition

RETRIES_EXHAUSTED = "max_retries_exceeded"
REJECTED = "rejected"
UNREADABLE = "unreadable_batch"  # Stored in intents: no other reason has this name.
REASON_LENGTH_MAX = 100  # Of a member's reason for rejecting a record.
ERROR_LENGTH_MAX = 1_000  # Of the error text that goes with it.


class Bounds(NamedTuple):
    """Limits of what a subscription holds in memory."""

    unsettled_max: int
    bytes_max: int


class Dispatcher:
    def __init__(
        self, acks: AckMode, retry: RetryPolicy, bounds: Bounds, chance: Callable[[], float]
    ) -> None:
        """`chance` returns a number from 0 to 1, for jitter."""
        self.cursors: dict[TopicPartition, Cursor] = {}
        self.given_up: dict[tuple[TopicPartition, Offset], InFlight] = {}
        self.is_changed = False  # Some cursor has changed since it was saved.
        self.ready_count = 0
        self.dropped = 0
        self.expired = 0
        self.buffer = 0  # Limit of `ready_count`: the sum over all members.
        self.overflow = Overflow.BLOCK
        self._acks = acks
        self._retry = retry
        self._bounds = bounds
        self._chance = chance
        self._windows: deque[Window] = deque()  # The first gets the next record.
        self._ready = ReadyRecords()
        self._deadlines = Deadlines()
        self._unsettled = 0
        self._bytes = 0

    # -- members ---------------------------------------------------------------------------------

    @property
    def windows(self) -> list[Window]:
        return sorted(self._windows, key=lambda window: window.number)

    def join(self, number: int, flow: FlowPolicy, now_ms: int) -> Window:
        assert number > 0
        window = Window(number, flow, now_ms)
        self._windows.append(window)
        self.update_buffer()
        return window

    def update_buffer(self) -> None:
        """Recompute the buffer size and the overflow policy from the members' flow policies."""
        self.buffer = sum(window.flow.buffer for window in self._windows)
        policies = {window.flow.overflow for window in self._windows}
        # Blocking wins where members disagree: it loses nothing.
        self.overflow = policies.pop() if len(policies) == 1 else Overflow.BLOCK

    def leave(self, window: Window, now_ms: int) -> None:
        """Give the member's records to the others at once. The oldest one counts as a failed
        attempt, so a record that kills its consumer is given up in the end; the ones behind it
        do not count."""
        self._windows.remove(window)
        self.update_buffer()
        first = self._deadlines.first_of(window.number)
        held = [item for cursor in self.cursors.values() for item in cursor.in_flight.values()]
        for in_flight in held:
            if in_flight.holder != window.number or in_flight.phase is not Phase.SENT:
                continue
            if in_flight is not first:
                in_flight.attempts -= 1
            self._fail(in_flight, now_ms, wait_ms=0, error="the subscriber left")
            in_flight.holder = 0

    def suspend(self) -> None:
        """Drop all payloads while there is no member; each cursor keeps what would be saved.

        A partition keeps its records while dead letters of it are being written.
        """
        assert not self._windows
        for target, cursor in self.cursors.items():
            if not any(place[0] == target for place in self.given_up):
                self.cursors[target] = Cursor.restore(target, cursor.value(), cursor.marked)
        self._ready.clear()
        self._deadlines.clear()
        self.ready_count = 0
        left = [item for cursor in self.cursors.values() for item in cursor.in_flight.values()]
        for in_flight in left:
            if in_flight.phase is not Phase.GIVEN_UP:
                self._ready.append(in_flight)
                in_flight.phase, in_flight.holder = Phase.READY, 0
                self.ready_count += 1
        self._unsettled = len(left)
        self._bytes = sum(in_flight.size for in_flight in left)

    def forget(self, target: TopicPartition) -> None:
        """Drop the cursor of a deleted partition, and its records."""
        self._lose(self.cursors.pop(target).in_flight, 0)

    def cut(self, target: TopicPartition, end_offset: Offset) -> None:
        """The log was truncated to `end_offset`: drop the records from there on."""
        self._lose(self.cursors[target].in_flight, end_offset)
        self.cursors[target].cut(end_offset)
        self.is_changed = True

    def change_all(self) -> None:
        """Mark every cursor as changed, so all are saved again."""
        self.is_changed = bool(self.cursors)
        for cursor in self.cursors.values():
            cursor.is_changed = True

    # -- records in ------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether more should be read from the log."""
        if not self._windows:
            return False
        bounds = self._bounds
        if self._unsettled >= bounds.unsettled_max or self._bytes >= bounds.bytes_max:
            return False
        return self.ready_count < self.buffer or self.overflow is not Overflow.BLOCK

    def offer(
        self,
        target: TopicPartition,
        record: Record,
        subject: str,
        size: int = IN_FLIGHT_BYTES,
        ends_ms: int = NEVER_MS,
    ) -> None:
        """Take the next record of a partition; it expires at `ends_ms`."""
        in_flight = self.cursors[target].take(record, subject, size, ends_ms)
        if in_flight is None:
            return
        self._unsettled += 1
        self._bytes += in_flight.size
        if in_flight.phase is Phase.GIVEN_UP:
            self.given_up[target, record.offset] = in_flight
            return
        self.ready_count += 1
        is_too_many = self.ready_count > self.buffer and bool(self._windows)
        if is_too_many and self.overflow is Overflow.DROP:
            self._drop(in_flight)
            return
        self._ready.append(in_flight)
        if is_too_many and self.overflow is Overflow.SHED:
            oldest = self._ready.pop()
            assert oldest is not None
            self._drop(oldest)

    def may_pass(self, target: TopicPartition, window: Window, count: int) -> bool:
        """Whether a run of records may go to the only member without being in flight.

        Nothing waits before them, nothing limits the member, and sending settles them.
        """
        return (
            self._acks is AckMode.ON_SEND
            and not self._unsettled
            and len(self._windows) == 1
            and window.is_unlimited(count)
            and self.cursors[target].is_caught_up
        )

    def passed(
        self, target: TopicPartition, window: Window, count: int, next_offset: Offset
    ) -> None:
        """Count a run that the only member's connection has taken."""
        self.cursors[target].pass_to(next_offset)
        self.is_changed = True
        window.delivered += count
        window.acknowledged += count

    def give_up(
        self, target: TopicPartition, record: Record, subject: str, size: int, error: str
    ) -> None:
        """Take a record that no member can be sent; it becomes a dead letter."""
        in_flight = self.cursors[target].take(record, subject, size)
        if in_flight is None:
            return
        self._unsettled += 1
        self._bytes += in_flight.size
        if in_flight.phase is Phase.GIVEN_UP:
            self.given_up[target, record.offset] = in_flight
            return
        self.ready_count += 1  # `_give_up` subtracts it again.
        self._give_up(in_flight, UNREADABLE, error)

    def _drop(self, in_flight: InFlight) -> None:
        self._move(in_flight, Event.DROP)
        self.dropped += 1

    # -- records out -----------------------------------------------------------------------------

    def assign(self, now_ms: int) -> list[tuple[Window, list[InFlight]]]:
        """Distribute ready records round-robin over the members whose windows have room. They
        count as sent from here on, unless `refuse` takes them back."""
        if not self.ready_count:
            return []
        rooms = {window.number: window.room(now_ms) for window in self._windows}
        shares: dict[int, tuple[Window, list[InFlight]]] = {}
        left = sum(rooms.values())
        while left and (in_flight := self._ready.pop()) is not None:
            if in_flight.ends_ms <= now_ms:
                self._move(in_flight, Event.EXPIRE)
                self.expired += 1
                continue
            while rooms[self._windows[0].number] == 0:
                self._windows.rotate(-1)
            window = self._windows[0]
            self._windows.rotate(-1)
            rooms[window.number] -= 1
            left -= 1
            shares.setdefault(window.number, (window, []))[1].append(in_flight)
        for window, share in shares.values():
            self._send(window, share, now_ms)
        return list(shares.values())

    def refuse(self, window: Window, share: list[InFlight]) -> None:
        """Take a share back: the connection had no room for any of it."""
        window.is_open = False
        window.took(-len(share))
        for in_flight in share:
            in_flight.attempts -= 1
            self._leave_sending(in_flight)
            self._move(in_flight, Event.REFUSE)
        self._ready.put_back(share)

    def sent(self, window: Window, share: list[InFlight]) -> None:
        """Count a share that the connection has taken."""
        window.delivered += len(share)
        for in_flight in share:
            if in_flight.attempts > 1:
                window.redelivered += 1
        if self._acks is AckMode.ON_SEND:
            for in_flight in share:
                self._move(in_flight, Event.ACK)
            window.in_flight_count -= len(share)
            window.acknowledged += len(share)

    def _send(self, window: Window, share: list[InFlight], now_ms: int) -> None:
        number, after = window.number, TRANSITIONS[Phase.READY, Event.SEND]
        sending = None
        if self._acks is AckMode.EXPLICIT:
            sending = Sending(now_ms + self._retry.ack_timeout_ms, share)
            self._deadlines.watch(sending, unsettled=self._unsettled)
        for in_flight in share:
            in_flight.phase = after
            in_flight.attempts += 1
            in_flight.holder = number
            in_flight.sending = sending
            in_flight.cursor.is_changed = True
        self.is_changed = True
        self.ready_count -= len(share)
        window.took(len(share))

    # -- what members say ------------------------------------------------------------------------

    def ack(self, window: Window, target: TopicPartition, offset: Offset) -> bool:
        """Settle a record; False if this member does not, or no longer, hold it."""
        in_flight = self._find(window, target, offset)
        if in_flight is None:
            return False
        if in_flight.sending is not None:
            window.in_flight_count -= 1
            in_flight.sending.drop(in_flight)
        self._move(in_flight, Event.ACK)
        window.acknowledged += 1
        return True

    def nack(
        self,
        window: Window,
        target: TopicPartition,
        offset: Offset,
        now_ms: int,
        *,
        wait_ms: int | None = None,
    ) -> bool:
        """The member failed: send the record again after the policy's delay or `wait_ms`."""
        in_flight = self._find(window, target, offset)
        if in_flight is None or in_flight.phase is not Phase.SENT:
            return False
        self._give_back(window, in_flight)
        self._fail(in_flight, now_ms, wait_ms=wait_ms, error="negatively acknowledged")
        return True

    def reject(
        self, window: Window, target: TopicPartition, offset: Offset, reason: str, error: str
    ) -> bool:
        """The member rejects the record: it becomes a dead letter without further attempts."""
        in_flight = self._find(window, target, offset)
        if in_flight is None:
            return False
        self._give_back(window, in_flight)
        self._give_up(in_flight, reason or REJECTED, error)
        return True

    def dead_letter_written(self, in_flight: InFlight) -> bool:
        """Settle a record whose dead letter is written; False if its partition is gone."""
        place = in_flight.target, in_flight.offset
        if self.given_up.get(place) is not in_flight:
            return False
        del self.given_up[place]
        self._move(in_flight, Event.DEAD_LETTERED)
        return True

    def _find(self, window: Window, target: TopicPartition, offset: Offset) -> InFlight | None:
        cursor = self.cursors.get(target)
        in_flight = None if cursor is None else cursor.in_flight.get(offset)
        if (
            in_flight is None
            or in_flight.holder != window.number
            or in_flight.phase is Phase.GIVEN_UP
        ):
            return None
        return in_flight

    # -- time ------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Fail the attempts past their deadline, and make records ready whose delay is over."""
        late = self._deadlines.late(now_ms)
        windows = {window.number: window for window in self._windows} if late else {}
        for in_flight in late:
            self._give_back(windows[in_flight.holder], in_flight)
            self._fail(in_flight, now_ms, error="no acknowledgement in time")
        due = self._deadlines.due(now_ms)
        for in_flight in due:
            self._move(in_flight, Event.DUE)
        self._ready.put_back(due)

    def due_ms(self, now_ms: int) -> int | None:
        """Next time at which `tick` or `assign` has something to do; None if only events matter."""
        times = [self._deadlines.next_ms()]
        if self.ready_count:
            times += [
                window.bucket.whole_ms(now_ms)
                for window in self._windows
                if window.bucket is not None and window.is_held_up_by_rate()
            ]
        return min((time for time in times if time is not None), default=None)

    # -- parts -----------------------------------------------------------------------------------

    def _fail(
        self, in_flight: InFlight, now_ms: int, *, wait_ms: int | None = None, error: str = ""
    ) -> None:
        """Count a failed attempt: retry at once, retry later, or give the record up."""
        self._leave_sending(in_flight)
        retries = self._retry.max_retries
        if in_flight.attempts > retries >= 0:
            self._give_up(in_flight, RETRIES_EXHAUSTED, error)
            return
        if wait_ms is None:
            wait_ms = delay_ms(self._retry, in_flight.attempts, self._chance)
        if wait_ms <= 0:
            self._move(in_flight, Event.RETRY_NOW)
            self._ready.put_back([in_flight])
        else:
            self._move(in_flight, Event.RETRY_LATER)
            self._deadlines.wait(now_ms + wait_ms, in_flight, unsettled=self._unsettled)

    def _give_up(self, in_flight: InFlight, reason: str, error: str) -> None:
        self._leave_sending(in_flight)
        in_flight.reason, in_flight.error = reason[:REASON_LENGTH_MAX], error[:ERROR_LENGTH_MAX]
        for window in self._windows:
            window.dead_lettered += window.number == in_flight.holder
        self._move(in_flight, Event.GIVE_UP)
        self.given_up[in_flight.target, in_flight.offset] = in_flight
        topic = in_flight.target.topic
        if self._retry.dead_letter_topic is None or is_dead_topic(topic):
            # Dead letters are switched off, or the record is a dead letter itself and stays where
            # it is.
            self.dead_letter_written(in_flight)

    def _give_back(self, window: Window, in_flight: InFlight) -> None:
        if in_flight.phase is Phase.SENT:
            window.in_flight_count -= 1
            self._leave_sending(in_flight)

    def _leave_sending(self, in_flight: InFlight) -> None:
        if in_flight.sending is not None:
            in_flight.sending.drop(in_flight)

    def _lose(self, held: dict[Offset, InFlight], offset: Offset) -> None:
        """Drop the held records from `offset` on: the log no longer has them."""
        windows = {window.number: window for window in self._windows}
        for at in [at for at in held if at >= offset]:
            in_flight = held.pop(at)
            if in_flight.holder in windows:
                self._give_back(windows[in_flight.holder], in_flight)
            self.given_up.pop((in_flight.target, at), None)
            self._unsettled -= 1
            self._bytes -= in_flight.size
            self.ready_count -= in_flight.phase is Phase.READY
            in_flight.phase = None

    def _move(self, in_flight: InFlight, event: Event) -> None:
        assert in_flight.phase is not None
        before = in_flight.phase
        after = in_flight.phase = TRANSITIONS[before, event]
        if before is Phase.READY:
            self.ready_count -= 1
        if after is Phase.READY:
            self.ready_count += 1
        elif after is None:
            in_flight.cursor.settle(in_flight.record.offset)
            self._unsettled -= 1
            self._bytes -= in_flight.size
            self.is_changed = True
