"""One subscription's decisions: what is sent to whom, what again and when, what is given up.

Owns the records that are not settled and the members' seats. Pure: time and chance are passed in,
sending and reading are the shell's. The one thing to know: whatever happens, a record leaves by one
of three ways only, each once: acknowledged, dropped by the flow policy, or handed to `burials`,
which it leaves when its dead letter is written.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from millstream.codec.records import Record
from millstream.control.deliveries import AckMode, FlowPolicy, Overflow, RetryPolicy
from millstream.engine.delivery.cursor import (
    TRANSITIONS,
    Cursor,
    Event,
    Pending,
    Phase,
    Sending,
)
from millstream.engine.delivery.deadlines import Deadlines, delay_ms
from millstream.engine.delivery.flow import Seat
from millstream.engine.subjects import is_dead_topic
from millstream.model import Offset, TopicPartition

RETRIES_EXHAUSTED = "max_retries_exceeded"
REJECTED = "rejected"
ERROR_LENGTH_MAX = 1_000  # Of what a member says about a record that it rejects.


class Bounds(NamedTuple):
    """What a subscription may hold in memory."""

    unsettled_max: int
    bytes_max: int


class Desk:
    def __init__(
        self, acks: AckMode, retry: RetryPolicy, bounds: Bounds, chance: Callable[[], float]
    ) -> None:
        """`chance` returns a number from 0 to 1, for jitter."""
        self.cursors: dict[TopicPartition, Cursor] = {}
        self.burials: dict[tuple[TopicPartition, Offset], Pending] = {}
        self.is_changed = False  # Some cursor is not as it was kept.
        self.ready_count = 0
        self.dropped = 0
        self.buffer = 0  # How many records may wait to be sent.
        self.overflow = Overflow.BLOCK
        self._acks = acks
        self._retry = retry
        self._bounds = bounds
        self._chance = chance
        self._seats: deque[Seat] = deque()  # The first is next.
        self._ready: deque[Pending] = deque()  # Also some that are ready no more.
        self._refused: list[Pending] = []  # Ready too: all of a round go back in one order.
        self._deadlines = Deadlines()
        self._unsettled = 0
        self._bytes = 0

    # -- members ---------------------------------------------------------------------------------

    @property
    def seats(self) -> list[Seat]:
        return sorted(self._seats, key=lambda seat: seat.number)

    def join(self, number: int, flow: FlowPolicy, now_ms: int) -> Seat:
        assert number > 0
        seat = Seat(number, flow, now_ms)
        self._seats.append(seat)
        self.count_seats()
        return seat

    def count_seats(self) -> None:
        """Seats or their policies are others: add up what they allow."""
        self.buffer = sum(seat.flow.buffer for seat in self._seats)
        policies = {seat.flow.overflow for seat in self._seats}
        # Blocking wins where members disagree: it loses nothing.
        self.overflow = policies.pop() if len(policies) == 1 else Overflow.BLOCK

    def leave(self, seat: Seat, now_ms: int) -> None:
        """Others get what it has, at once. It counts as an attempt: a record that kills whoever
        gets it must come to an end."""
        self._seats.remove(seat)
        self.count_seats()
        held = [one for one in self._held() if one.holder == seat.number]
        for pending in held:
            self._fail(pending, now_ms, wait_ms=0, error="the subscriber left")
            pending.holder = 0
        self._put_first(pending for pending in held if pending.phase is Phase.READY)

    def park(self) -> None:
        """Nobody is here: keep of each cursor what would be kept on disk, and no payloads.

        A record that is being buried is not let go of: its outcome is awaited.
        """
        assert not self._seats
        for target, cursor in self.cursors.items():
            if not any(place[0] == target for place in self.burials):
                self.cursors[target] = Cursor.restore(target, cursor.value(), cursor.marked)
        self._ready.clear()
        self._refused.clear()
        self._deadlines.clear()
        self.ready_count = 0
        left = [one for cursor in self.cursors.values() for one in cursor.pending.values()]
        for pending in left:
            if pending.phase is not Phase.BURYING:
                self._make_ready(pending)
        self._unsettled = len(left)
        self._bytes = sum(pending.size for pending in left)

    def forget(self, target: TopicPartition) -> None:
        """The partition is gone, with all its records."""
        for pending in list(self.cursors[target].pending.values()):
            seat = next((one for one in self._seats if one.number == pending.holder), None)
            if seat is not None:
                self._give_back(seat, pending)
            self.burials.pop((target, pending.offset), None)
            self._unsettled -= 1
            self._bytes -= pending.size
            self.ready_count -= pending.phase is Phase.READY
            pending.phase = None
        del self.cursors[target]

    def change_all(self) -> None:
        """Have every cursor kept anew."""
        self.is_changed = bool(self.cursors)
        for cursor in self.cursors.values():
            cursor.is_changed = True

    # -- records in ------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether more should be read from the log."""
        if not self._seats:
            return False
        bounds = self._bounds
        if self._unsettled >= bounds.unsettled_max or self._bytes >= bounds.bytes_max:
            return False
        return self.ready_count < self.buffer or self.overflow is not Overflow.BLOCK

    def offer(self, target: TopicPartition, record: Record, subject: str) -> None:
        """Take the next record of a partition."""
        pending = self.cursors[target].take(record, subject)
        if pending is None:
            return
        self._unsettled += 1
        self._bytes += pending.size
        if pending.phase is Phase.BURYING:
            self.burials[target, record.offset] = pending
            return
        self._ready.append(pending)
        self.ready_count += 1
        if self.ready_count > self.buffer and self._seats:
            self._overflow(pending)

    def _overflow(self, newest: Pending) -> None:
        match self.overflow:
            case Overflow.BLOCK:
                return
            case Overflow.DROP:
                self._drop(newest)
            case Overflow.SHED:
                while self._ready[0].phase is not Phase.READY:
                    self._ready.popleft()
                self._drop(self._ready[0])

    def _drop(self, pending: Pending) -> None:
        self._move(pending, Event.DROP)
        self.dropped += 1

    # -- records out -----------------------------------------------------------------------------

    def assign(self, now_ms: int) -> list[tuple[Seat, list[Pending]]]:
        """Share out what is ready among those who may get something, in turn. It counts as sent
        from here on, unless `refuse` takes it back."""
        if not self.ready_count:
            return []
        if self._refused:
            self._put_first(self._refused)
            self._refused = []
        rooms = {seat.number: seat.room(now_ms) for seat in self._seats}
        shares: dict[int, tuple[Seat, list[Pending]]] = {}
        left = sum(rooms.values())
        while left and (pending := self._next_ready()) is not None:
            while rooms[self._seats[0].number] == 0:
                self._seats.rotate(-1)
            seat = self._seats[0]
            self._seats.rotate(-1)
            rooms[seat.number] -= 1
            left -= 1
            shares.setdefault(seat.number, (seat, []))[1].append(pending)
        for seat, share in shares.values():
            self._send(seat, share, now_ms)
        return list(shares.values())

    def refuse(self, seat: Seat, share: list[Pending]) -> None:
        """The connection had no room for any of it."""
        seat.is_open = False
        seat.took(-len(share))
        for pending in share:
            pending.attempts -= 1
            self._leave_sending(pending)
            self._move(pending, Event.REFUSE)
        self._refused += share

    def sent(self, seat: Seat, share: list[Pending]) -> None:
        """The connection has taken it."""
        seat.delivered += len(share)
        for pending in share:
            if pending.attempts > 1:
                seat.redelivered += 1
        if self._acks is AckMode.ON_SEND:
            for pending in share:
                self._move(pending, Event.ACK)
            seat.in_flight -= len(share)
            seat.acknowledged += len(share)

    def _next_ready(self) -> Pending | None:
        while self._ready:
            pending = self._ready.popleft()
            if pending.phase is Phase.READY:
                return pending
        return None

    def _send(self, seat: Seat, share: list[Pending], now_ms: int) -> None:
        number, after = seat.number, TRANSITIONS[Phase.READY, Event.SEND]
        sending = None
        if self._acks is AckMode.EXPLICIT:
            sending = Sending(now_ms + self._retry.ack_timeout_ms, share)
            self._deadlines.watch(sending, unsettled=self._unsettled)
        for pending in share:
            pending.phase = after
            pending.attempts += 1
            pending.holder = number
            pending.sending = sending
            pending.cursor.is_changed = True
        self.is_changed = True
        self.ready_count -= len(share)
        seat.took(len(share))

    # -- what members say ------------------------------------------------------------------------

    def ack(self, seat: Seat, target: TopicPartition, offset: Offset) -> bool:
        """Settle a record; False if it is not, or no longer, this member's to settle."""
        pending = self._find(seat, target, offset)
        if pending is None:
            return False
        if pending.sending is not None:
            self._give_back(seat, pending)
        self._move(pending, Event.ACK)
        seat.acknowledged += 1
        return True

    def nack(
        self,
        seat: Seat,
        target: TopicPartition,
        offset: Offset,
        now_ms: int,
        *,
        wait_ms: int | None = None,
    ) -> bool:
        """The member could not do it: send it again later, by the policy or after `wait_ms`."""
        pending = self._find(seat, target, offset)
        if pending is None or pending.phase is not Phase.SENT:
            return False
        self._give_back(seat, pending)
        if self._fail(pending, now_ms, wait_ms=wait_ms, error="negatively acknowledged"):
            self._put_first([pending])
        return True

    def reject(
        self, seat: Seat, target: TopicPartition, offset: Offset, reason: str, error: str
    ) -> bool:
        """The member will never be able to do it: to the dead letters, without further attempts."""
        pending = self._find(seat, target, offset)
        if pending is None:
            return False
        self._give_back(seat, pending)
        self._give_up(pending, reason or REJECTED, error)
        return True

    def buried(self, target: TopicPartition, offset: Offset) -> None:
        """Its dead letter is written."""
        pending = self.burials.pop((target, offset), None)
        if pending is not None:  # Else its partition went meanwhile.
            self._move(pending, Event.BURIED)

    def _find(self, seat: Seat, target: TopicPartition, offset: Offset) -> Pending | None:
        cursor = self.cursors.get(target)
        pending = None if cursor is None else cursor.pending.get(offset)
        if pending is None or pending.holder != seat.number or pending.phase is Phase.BURYING:
            return None
        return pending

    # -- time ------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Let time pass: whoever did not answer has failed, whatever has waited is ready."""
        seats = {seat.number: seat for seat in self._seats}
        again = self._deadlines.late(now_ms)
        for pending in again:
            self._give_back(seats[pending.holder], pending)
            self._fail(pending, now_ms, error="no acknowledgement in time")
        due = self._deadlines.due(now_ms)
        for pending in due:
            self._move(pending, Event.DUE)
        self._put_first(one for one in again + due if one.phase is Phase.READY)

    def due_ms(self, now_ms: int) -> int | None:
        """When time alone will change something; None if it will not."""
        times = [self._deadlines.next_ms()]
        if self.ready_count:
            times += [
                seat.bucket.whole_ms(now_ms)
                for seat in self._seats
                if seat.bucket is not None and seat.is_held_up_by_rate()
            ]
        return min((time for time in times if time is not None), default=None)

    # -- parts -----------------------------------------------------------------------------------

    def _fail(
        self, pending: Pending, now_ms: int, *, wait_ms: int | None = None, error: str = ""
    ) -> bool:
        """An attempt has failed; say whether the next one may follow at once."""
        self._leave_sending(pending)
        retries = self._retry.max_retries
        if pending.attempts > retries >= 0:
            self._give_up(pending, RETRIES_EXHAUSTED, error)
            return False
        if wait_ms is None:
            wait_ms = delay_ms(self._retry, pending.attempts, self._chance)
        if wait_ms <= 0:
            self._move(pending, Event.RETRY_NOW)
            return True
        self._move(pending, Event.RETRY_LATER)
        self._deadlines.wait(now_ms + wait_ms, pending)
        return False

    def _give_up(self, pending: Pending, reason: str, error: str) -> None:
        self._leave_sending(pending)
        pending.reason, pending.error = reason, error[:ERROR_LENGTH_MAX]
        for seat in self._seats:
            seat.dead_lettered += seat.number == pending.holder
        self._move(pending, Event.GIVE_UP)
        self.burials[pending.target, pending.offset] = pending
        topic = pending.target.topic
        if self._retry.dead_letter_topic is None or is_dead_topic(topic):
            # A dead letter that fails again stays where it is: it is in no other log's way.
            self.buried(pending.target, pending.offset)

    def _give_back(self, seat: Seat, pending: Pending) -> None:
        if pending.phase is Phase.SENT:
            seat.in_flight -= 1
            self._leave_sending(pending)

    def _leave_sending(self, pending: Pending) -> None:
        if pending.sending is not None:
            pending.sending.drop_one()
            pending.sending = None

    def _put_first(self, again: "Iterator[Pending] | list[Pending]") -> None:
        """What was sent before goes before what was not, in the order of the log."""
        self._ready.extendleft(sorted(again, key=lambda one: one.record.offset, reverse=True))

    def _make_ready(self, pending: Pending) -> None:
        self._ready.append(pending)
        pending.phase = Phase.READY
        pending.sending = None
        pending.holder = 0
        self.ready_count += 1

    def _held(self) -> Iterator[Pending]:
        for cursor in self.cursors.values():
            for pending in list(cursor.pending.values()):
                if pending.phase is Phase.SENT:
                    yield pending

    def _move(self, pending: Pending, event: Event) -> None:
        assert pending.phase is not None
        before = pending.phase
        after = pending.phase = TRANSITIONS[before, event]
        if before is Phase.READY:
            self.ready_count -= 1
        if after is Phase.READY:
            self.ready_count += 1
        elif after is None:
            pending.cursor.settle(pending.record.offset)
            self._unsettled -= 1
            self._bytes -= pending.size
            self.is_changed = True
