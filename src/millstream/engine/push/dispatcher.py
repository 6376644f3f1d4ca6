"""One subscription's decisions: what is sent to whom, what again and when, what is given up.

Owns the records that are not settled and the members' seats. Pure: time and chance are passed in,
sending and reading are the shell's. The one thing to know: whatever happens, a record leaves by one
of three ways only, each once: acknowledged, dropped by the flow policy, or handed to `burials`,
which it leaves when its dead letter is written.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from millstream.codec.lifetime import NEVER_MS
from millstream.codec.records import Record
from millstream.engine.publish.subjects import is_dead_topic
from millstream.engine.push.cursor import (
    PENDING_BYTES,
    TRANSITIONS,
    Cursor,
    Event,
    Pending,
    Phase,
    Sending,
)
from millstream.engine.push.deadlines import Deadlines, delay_ms
from millstream.engine.push.ready import ReadyRecords
from millstream.engine.push.window import Seat
from millstream.internal_topics.deliveries import AckMode, FlowPolicy, Overflow, RetryPolicy
from millstream.model import Offset, TopicPartition

RETRIES_EXHAUSTED = "max_retries_exceeded"
REJECTED = "rejected"
UNREADABLE = "unreadable_batch"  # What `control` keeps of it names no other reason so.
REASON_LENGTH_MAX = 100  # Of what a member says about a record that it rejects,
ERROR_LENGTH_MAX = 1_000  # in a word and in many.


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
        self.expired = 0
        self.buffer = 0  # How many records may wait to be sent.
        self.overflow = Overflow.BLOCK
        self._acks = acks
        self._retry = retry
        self._bounds = bounds
        self._chance = chance
        self._seats: deque[Seat] = deque()  # The first is next.
        self._ready = ReadyRecords()
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
        """Others get what it has, at once. Of the first it counts as an attempt: a record that
        kills whoever gets it must come to an end, and those behind it had no part in that."""
        self._seats.remove(seat)
        self.count_seats()
        first = self._deadlines.first_of(seat.number)
        held = [one for cursor in self.cursors.values() for one in cursor.pending.values()]
        for pending in held:
            if pending.holder != seat.number or pending.phase is not Phase.SENT:
                continue
            if pending is not first:
                pending.attempts -= 1
            self._fail(pending, now_ms, wait_ms=0, error="the subscriber left")
            pending.holder = 0

    def park(self) -> None:
        """Nobody is here: keep of each cursor what would be kept on disk, and no payloads.

        A record that is being buried is not let go of: its outcome is awaited.
        """
        assert not self._seats
        for target, cursor in self.cursors.items():
            if not any(place[0] == target for place in self.burials):
                self.cursors[target] = Cursor.restore(target, cursor.value(), cursor.marked)
        self._ready.clear()
        self._deadlines.clear()
        self.ready_count = 0
        left = [one for cursor in self.cursors.values() for one in cursor.pending.values()]
        for pending in left:
            if pending.phase is not Phase.BURYING:
                self._ready.append(pending)
                pending.phase, pending.holder = Phase.READY, 0
                self.ready_count += 1
        self._unsettled = len(left)
        self._bytes = sum(pending.size for pending in left)

    def forget(self, target: TopicPartition) -> None:
        """The partition is gone, with all its records."""
        self._lose(self.cursors.pop(target).pending, 0)

    def cut(self, target: TopicPartition, end_offset: Offset) -> None:
        """The log ends there, before what was read of it: those records are gone."""
        self._lose(self.cursors[target].pending, end_offset)
        self.cursors[target].cut(end_offset)
        self.is_changed = True

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

    def offer(
        self,
        target: TopicPartition,
        record: Record,
        subject: str,
        size: int = PENDING_BYTES,
        ends_ms: int = NEVER_MS,
    ) -> None:
        """Take the next record of a partition; nobody is sent it from `ends_ms` on."""
        pending = self.cursors[target].take(record, subject, size, ends_ms)
        if pending is None:
            return
        self._unsettled += 1
        self._bytes += pending.size
        if pending.phase is Phase.BURYING:
            self.burials[target, record.offset] = pending
            return
        self.ready_count += 1
        is_too_many = self.ready_count > self.buffer and bool(self._seats)
        if is_too_many and self.overflow is Overflow.DROP:
            self._drop(pending)
            return
        self._ready.append(pending)
        if is_too_many and self.overflow is Overflow.SHED:
            oldest = self._ready.pop()
            assert oldest is not None
            self._drop(oldest)

    def give_up(
        self, target: TopicPartition, record: Record, subject: str, size: int, error: str
    ) -> None:
        """Take a record that cannot be sent to any member: it goes to the dead letters."""
        pending = self.cursors[target].take(record, subject, size)
        if pending is None:
            return
        self._unsettled += 1
        self._bytes += pending.size
        if pending.phase is Phase.BURYING:
            self.burials[target, record.offset] = pending
            return
        self.ready_count += 1  # Until it is given up, which is now.
        self._give_up(pending, UNREADABLE, error)

    def _drop(self, pending: Pending) -> None:
        self._move(pending, Event.DROP)
        self.dropped += 1

    # -- records out -----------------------------------------------------------------------------

    def assign(self, now_ms: int) -> list[tuple[Seat, list[Pending]]]:
        """Share out what is ready among those who may get something, in turn. It counts as sent
        from here on, unless `refuse` takes it back."""
        if not self.ready_count:
            return []
        rooms = {seat.number: seat.room(now_ms) for seat in self._seats}
        shares: dict[int, tuple[Seat, list[Pending]]] = {}
        left = sum(rooms.values())
        while left and (pending := self._ready.pop()) is not None:
            if pending.ends_ms <= now_ms:
                self._move(pending, Event.EXPIRE)
                self.expired += 1
                continue
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
        self._ready.put_back(share)

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
            seat.in_flight -= 1
            pending.sending.drop(pending)
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
        self._fail(pending, now_ms, wait_ms=wait_ms, error="negatively acknowledged")
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

    def buried(self, pending: Pending) -> bool:
        """Its dead letter is written. False if its partition went meanwhile, and with it this."""
        place = pending.target, pending.offset
        if self.burials.get(place) is not pending:
            return False
        del self.burials[place]
        self._move(pending, Event.BURIED)
        return True

    def _find(self, seat: Seat, target: TopicPartition, offset: Offset) -> Pending | None:
        cursor = self.cursors.get(target)
        pending = None if cursor is None else cursor.pending.get(offset)
        if pending is None or pending.holder != seat.number or pending.phase is Phase.BURYING:
            return None
        return pending

    # -- time ------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Let time pass: whoever did not answer has failed, whatever has waited is ready."""
        late = self._deadlines.late(now_ms)
        seats = {seat.number: seat for seat in self._seats} if late else {}
        for pending in late:
            self._give_back(seats[pending.holder], pending)
            self._fail(pending, now_ms, error="no acknowledgement in time")
        due = self._deadlines.due(now_ms)
        for pending in due:
            self._move(pending, Event.DUE)
        self._ready.put_back(due)

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
    ) -> None:
        """An attempt has failed: there is another one, at once or later, or that was the last."""
        self._leave_sending(pending)
        retries = self._retry.max_retries
        if pending.attempts > retries >= 0:
            self._give_up(pending, RETRIES_EXHAUSTED, error)
            return
        if wait_ms is None:
            wait_ms = delay_ms(self._retry, pending.attempts, self._chance)
        if wait_ms <= 0:
            self._move(pending, Event.RETRY_NOW)
            self._ready.put_back([pending])
        else:
            self._move(pending, Event.RETRY_LATER)
            self._deadlines.wait(now_ms + wait_ms, pending, unsettled=self._unsettled)

    def _give_up(self, pending: Pending, reason: str, error: str) -> None:
        self._leave_sending(pending)
        pending.reason, pending.error = reason[:REASON_LENGTH_MAX], error[:ERROR_LENGTH_MAX]
        for seat in self._seats:
            seat.dead_lettered += seat.number == pending.holder
        self._move(pending, Event.GIVE_UP)
        self.burials[pending.target, pending.offset] = pending
        topic = pending.target.topic
        if self._retry.dead_letter_topic is None or is_dead_topic(topic):
            # A dead letter that fails again stays where it is: it is in no other log's way.
            self.buried(pending)

    def _give_back(self, seat: Seat, pending: Pending) -> None:
        if pending.phase is Phase.SENT:
            seat.in_flight -= 1
            self._leave_sending(pending)

    def _leave_sending(self, pending: Pending) -> None:
        if pending.sending is not None:
            pending.sending.drop(pending)

    def _lose(self, held: dict[Offset, Pending], offset: Offset) -> None:
        """What is held from `offset` on is in the log no more."""
        seats = {seat.number: seat for seat in self._seats}
        for at in [one for one in held if one >= offset]:
            pending = held.pop(at)
            if pending.holder in seats:
                self._give_back(seats[pending.holder], pending)
            self.burials.pop((pending.target, at), None)
            self._unsettled -= 1
            self._bytes -= pending.size
            self.ready_count -= pending.phase is Phase.READY
            pending.phase = None

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
