"""The decisions of delivery, whatever happens in whatever order, with restarts in between.

The model is a list of records and what became of each. No record is lost, none is settled twice,
records are first sent in their order and those that failed before the others, and at the end each
was acknowledged, dropped, expired, or became a dead letter, once. A restart finds the cursors as
they were kept last, which may be a while ago, and the marks of all dead letters.
"""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millstream.codec.lifetime import NEVER_MS
from millstream.codec.records import Record
from millstream.engine.push.cursor import Cursor, InFlight, Phase
from millstream.engine.push.dispatcher import Bounds, Dispatcher
from millstream.engine.push.window import Window
from millstream.internal_topics.deliveries import (
    AckMode,
    CursorValue,
    FlowPolicy,
    Overflow,
    RetryPolicy,
)
from millstream.model import TopicPartition
from tests.support.tiers import sized

TARGET = TopicPartition("orders", 0)
BOUNDS = Bounds(unsettled_max=30, bytes_max=2**20)


class Delivery(RuleBasedStateMachine):
    @initialize(
        max_retries=st.integers(0, 3),
        delay_ms=st.sampled_from([0, 50]),
        every=st.integers(1, 3),
        window=st.integers(1, 5),
        overflow=st.sampled_from([Overflow.BLOCK, *Overflow]),
    )
    def begin(
        self, max_retries: int, delay_ms: int, every: int, window: int, overflow: Overflow
    ) -> None:
        self.retry = RetryPolicy(
            max_retries=max_retries, ack_timeout_ms=100, retry_delay_ms=delay_ms
        )
        self.flow = FlowPolicy(window=window, buffer=5, overflow=overflow)
        self.every = every  # Only so many offsets are for this subscription.
        self.now_ms = 0
        self.log_end = 0
        self.ends: dict[int, int] = {}  # When records expire, of those that do.
        self.windows: list[Window] = []
        self.made = 0
        self.held: dict[int, list[int]] = {}  # By window: what it has and has not answered.
        self.late: list[tuple[Window, int]] = []  # What members may still answer, out of time.
        self.settled: dict[int, str] = {}
        self.attempts: dict[int, int] = {}
        self.sent: list[int] = []  # For the first time since the restart.
        self.kept = CursorValue(next_offset=0)
        self.kept_settled: dict[int, str] = {}
        self.marks: set[int] = set()
        self.dispatcher = self.fresh(Cursor(TARGET, 0))
        self.somebody_joins()
        self.records_come(10, None)

    def fresh(self, cursor: Cursor) -> Dispatcher:
        dispatcher = Dispatcher(AckMode.EXPLICIT, self.retry, BOUNDS, Random(1).random)
        dispatcher.cursors[TARGET] = cursor
        return dispatcher

    def is_ours(self, offset: int) -> bool:
        return offset % self.every == 0

    # -- what happens ----------------------------------------------------------------------------

    @rule(count=st.integers(1, 10), ttl_ms=st.none() | st.integers(1, 300))
    def records_come(self, count: int, ttl_ms: int | None) -> None:
        for _ in range(count):
            if ttl_ms is not None:
                self.ends[self.log_end] = self.now_ms + ttl_ms
            self.log_end += 1
        self.the_log_is_read()

    @rule()
    def the_log_is_read(self) -> None:
        cursor = self.dispatcher.cursors[TARGET]
        while cursor.next_offset < self.log_end and self.dispatcher.has_room:
            offset = cursor.next_offset
            ends_ms = self.ends.get(offset, NEVER_MS)
            if self.is_ours(offset) and ends_ms > self.now_ms:
                record = Record(offset, 0, None, b"v")
                self.dispatcher.offer(TARGET, record, "orders", ends_ms=ends_ms)
            cursor.move_on(offset + 1)
        self.note_ended()

    @precondition(lambda self: len(self.windows) < 4)
    @rule()
    def somebody_joins(self) -> None:
        self.made += 1
        self.windows.append(self.dispatcher.join(self.made, self.flow, self.now_ms))
        self.held[self.made] = []

    @precondition(lambda self: self.windows)
    @rule(is_refused=st.sampled_from([False, False, True]))
    def records_are_sent(self, is_refused: bool) -> None:
        self.the_log_is_read()
        for window in self.windows:
            window.is_open = True
        sent: list[InFlight] = []
        for window, share in self.dispatcher.assign(self.now_ms):
            assert [in_flight.offset for in_flight in share] == sorted(
                in_flight.offset for in_flight in share
            )
            if is_refused:
                self.dispatcher.refuse(window, share)
                continue
            self.dispatcher.sent(window, share)
            assert len(self.held[window.number]) + len(share) <= self.flow.window
            sent += share
        self.note_ended()
        for in_flight in sorted(sent, key=lambda entry: entry.offset):  # They were sent together.
            self.note_sent(in_flight)
            self.held[in_flight.holder].append(in_flight.offset)

    def note_sent(self, in_flight: InFlight) -> None:
        offset = in_flight.offset
        assert self.is_ours(offset)
        assert offset not in self.settled, "a settled record came again"
        assert self.ends.get(offset, NEVER_MS) > self.now_ms, "an expired record was sent"
        assert not any(offset in held for held in self.held.values()), "two members have it"
        if offset not in self.sent:
            assert not self.sent or offset > self.sent[-1], "out of order"
            self.sent.append(offset)
        assert in_flight.attempts == self.attempts.get(offset, 0) + 1, "attempts are miscounted"
        self.attempts[offset] = in_flight.attempts
        self.late = [
            (window, late_offset) for window, late_offset in self.late if late_offset != offset
        ]

    def some_held(self, data: st.DataObject) -> tuple[Window, int] | None:
        choices = [
            (window, offset) for window in self.windows for offset in self.held[window.number]
        ]
        return data.draw(st.sampled_from(choices)) if choices else None

    @rule(data=st.data())
    def one_is_acknowledged(self, data: st.DataObject) -> None:
        chosen = self.some_held(data)
        if chosen is not None:
            self.acknowledge(*chosen)

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def one_is_acknowledged_out_of_time(self, data: st.DataObject) -> None:
        window, offset = data.draw(st.sampled_from(self.late))
        self.acknowledge(window, offset)

    def acknowledge(self, window: Window, offset: int) -> None:
        assert self.dispatcher.ack(window, TARGET, offset)
        self.settle(offset, "acked")
        assert not self.dispatcher.ack(window, TARGET, offset), "acknowledged twice"

    @rule(data=st.data(), wait_ms=st.none() | st.integers(0, 100))
    def one_fails(self, data: st.DataObject, wait_ms: int | None) -> None:
        chosen = self.some_held(data)
        if chosen is not None:
            assert self.dispatcher.nack(chosen[0], TARGET, chosen[1], self.now_ms, wait_ms=wait_ms)
            self.held[chosen[0].number].remove(chosen[1])
            is_last = self.attempts[chosen[1]] > self.retry.max_retries
            assert ((TARGET, chosen[1]) in self.dispatcher.given_up) == is_last
            self.check_given_up()

    @rule(data=st.data())
    def one_is_rejected(self, data: st.DataObject) -> None:
        chosen = self.some_held(data)
        if chosen is not None:
            assert self.dispatcher.reject(chosen[0], TARGET, chosen[1], "bad", "")
            self.held[chosen[0].number].remove(chosen[1])
            assert (TARGET, chosen[1]) in self.dispatcher.given_up

    @rule(passed_ms=st.integers(1, 150))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.dispatcher.tick(self.now_ms)
        in_flight = self.dispatcher.cursors[TARGET].in_flight
        for window in self.windows:
            mine = self.held[window.number]
            self.held[window.number] = [at for at in mine if in_flight[at].phase is Phase.SENT]
            self.late += [
                (window, at) for at in mine if in_flight[at].phase in (Phase.READY, Phase.WAITING)
            ]
        self.check_given_up()

    @precondition(lambda self: self.windows)
    @rule(data=st.data())
    def somebody_vanishes(self, data: st.DataObject) -> None:
        window = data.draw(st.sampled_from(self.windows))
        self.windows.remove(window)
        self.dispatcher.leave(window, self.now_ms)
        for offset in self.held.pop(window.number)[1:]:  # The first may have been the reason.
            self.attempts[offset] -= 1
        self.late = [(other, at) for other, at in self.late if other is not window]
        self.check_given_up()
        if not self.windows and data.draw(st.booleans()):
            self.dispatcher.suspend()
            self.sent = []  # What was not sent is read again.

    @rule()
    def dead_letters_are_written(self) -> None:
        for in_flight in list(self.dispatcher.given_up.values()):
            self.marks.add(in_flight.offset)
            assert self.dispatcher.dead_letter_written(in_flight)
            assert not self.dispatcher.dead_letter_written(in_flight)
            self.settle(in_flight.offset, "dead_letter_written")

    @rule()
    def the_cursor_is_kept(self) -> None:
        self.kept = self.dispatcher.cursors[TARGET].value()
        self.kept_settled = dict(self.settled)
        unsettled = {delivery.offset for delivery in self.kept.unsettled}
        covered = {
            offset
            for offset in self.for_good()
            if offset < self.kept.next_offset and offset not in unsettled
        }
        # After a restart the cursor may stand before dead letters: their marks stay.
        assert set(self.for_good()) - covered <= self.marks
        self.marks -= covered

    @rule(is_clean=st.booleans())
    def the_broker_restarts(self, is_clean: bool) -> None:
        """What was kept is what was written last."""
        if is_clean:
            self.the_cursor_is_kept()
        dead_letter_written = dict.fromkeys(self.marks, "dead_letter_written")
        self.settled = {**self.kept_settled, **dead_letter_written}
        self.dispatcher = self.fresh(Cursor.restore(TARGET, self.kept, frozenset(self.marks)))
        self.attempts = {delivery.offset: delivery.attempts for delivery in self.kept.unsettled}
        self.windows, self.held, self.late, self.sent = [], {}, [], []

    # -- what must hold --------------------------------------------------------------------------

    def settle(self, offset: int, how: str) -> None:
        assert offset not in self.settled, "settled twice"
        self.settled[offset] = how
        for held in self.held.values():
            if offset in held:
                held.remove(offset)
        self.late = [(window, at) for window, at in self.late if at != offset]

    def note_ended(self) -> None:
        """What is settled without anybody having said so has expired, or was dropped."""
        cursor = self.dispatcher.cursors[TARGET]
        for offset in range(cursor.next_offset):
            if offset in self.settled or not self.is_ours(offset) or not cursor.is_settled(offset):
                continue
            is_expired = self.ends.get(offset, NEVER_MS) <= self.now_ms
            assert is_expired or self.flow.overflow is not Overflow.BLOCK, "a record was lost"
            self.settle(offset, "expired" if is_expired else "dropped")

    def for_good(self) -> list[int]:
        """What is settled for every reader of the log: of what has expired no reader hears."""
        return [offset for offset, how in self.settled.items() if how != "expired"]

    def check_given_up(self) -> None:
        for in_flight in self.dispatcher.cursors[TARGET].in_flight.values():
            if in_flight.phase in (Phase.READY, Phase.WAITING):
                assert in_flight.attempts <= self.retry.max_retries, "it should be given up"
        for (_, offset), in_flight in self.dispatcher.given_up.items():
            assert in_flight.attempts > self.retry.max_retries or in_flight.reason == "bad"
            assert offset not in self.settled

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "dispatcher"):
            return
        cursor = self.dispatcher.cursors[TARGET]
        for offset in range(cursor.floor):
            assert not self.is_ours(offset) or offset in self.settled
        for offset in self.for_good():
            assert cursor.is_settled(offset)

    @invariant()
    def the_books_add_up(self) -> None:
        if not hasattr(self, "dispatcher"):
            return
        in_flight = self.dispatcher.cursors[TARGET].in_flight.values()
        assert self.dispatcher.ready_count == sum(entry.phase is Phase.READY for entry in in_flight)
        assert self.dispatcher._unsettled == len(in_flight)
        assert self.dispatcher._bytes == sum(entry.size for entry in in_flight)
        for window in self.windows:
            mine = [record for record in in_flight if record.holder == window.number]
            assert window.in_flight_count == sum(entry.phase is Phase.SENT for entry in mine)

    def teardown(self) -> None:
        """Let a patient member finish it all."""
        if not hasattr(self, "dispatcher"):
            return
        self.windows = self.dispatcher.windows
        if not self.windows:
            self.somebody_joins()
        for _ in range(10 * self.log_end + 100):
            self.the_log_is_read()
            self.dead_letters_are_written()
            for window in self.windows:
                window.is_open = True
            for window, share in self.dispatcher.assign(self.now_ms):
                self.dispatcher.sent(window, share)
                for in_flight in share:
                    assert self.dispatcher.ack(window, TARGET, in_flight.offset)
                    self.settle(in_flight.offset, "acked")
            self.note_ended()
            self.now_ms += 101
            self.dispatcher.tick(self.now_ms)
        self.dead_letters_are_written()
        assert set(self.settled) == {at for at in range(self.log_end) if self.is_ours(at)}


TestDelivery = Delivery.TestCase
TestDelivery.settings = settings(max_examples=sized(100), stateful_step_count=40, deadline=None)
