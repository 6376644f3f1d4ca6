"""The desk alone: in which order records come again, when they end, what is held and how long."""

from millstream.codec.records import Record
from millstream.engine.push.chunked import bundles
from millstream.engine.push.cursor import ERRORS_KEPT_MAX, SENT_HELD_MAX, Cursor, size_of
from millstream.engine.push.deadlines import SPARE
from millstream.engine.push.dispatcher import Bounds, Desk
from millstream.engine.push.window import Seat
from millstream.internal_topics.deliveries import (
    AckMode,
    CursorValue,
    FlowPolicy,
    Overflow,
    RetryPolicy,
    Unsettled,
    encode_value,
)
from millstream.model import TopicPartition

TARGET = TopicPartition("orders", 0)
FOR_EVER = RetryPolicy(max_retries=-1, ack_timeout_ms=1_000)


def record(offset: int, **fields: object) -> Record:
    return Record(offset, 0, None, b"v", **fields)  # type: ignore[arg-type]


def open_desk(
    flow: FlowPolicy | None = None, *, retry: RetryPolicy = FOR_EVER, unsettled_max: int = 20_000
) -> tuple[Desk, Seat]:
    desk = Desk(AckMode.EXPLICIT, retry, Bounds(unsettled_max, 2**26), lambda: 0.5)
    desk.cursors[TARGET] = Cursor(TARGET, 0)
    return desk, desk.join(1, flow or FlowPolicy(), 0)


def offsets_sent(desk: Desk, now_ms: int) -> list[int]:
    return [one.offset for _, share in desk.assign(now_ms) for one in share]


def test_what_failed_comes_again_in_the_order_of_the_log() -> None:
    desk, seat = open_desk(FlowPolicy(window=6))
    for offset in range(8):
        desk.offer(TARGET, record(offset), "orders")
    assert offsets_sent(desk, 0) == [0, 1, 2, 3, 4, 5]

    for offset in (2, 0, 5, 1):
        assert desk.nack(seat, TARGET, offset, 0)

    assert offsets_sent(desk, 0) == [0, 1, 2, 5]


def test_what_a_member_left_behind_goes_before_what_failed_later() -> None:
    desk, seat = open_desk(FlowPolicy(window=4))
    other = desk.join(2, FlowPolicy(window=4), 0)
    for offset in range(10):
        desk.offer(TARGET, record(offset), "orders")
    desk.assign(0)

    assert desk.nack(other, TARGET, 7, 0)
    assert desk.nack(other, TARGET, 3, 0)
    desk.leave(seat, 0)

    assert offsets_sent(desk, 0) == [0, 2]
    desk.join(3, FlowPolicy(), 0)
    assert offsets_sent(desk, 0) == [3, 4, 6, 7, 8, 9]


def test_a_record_that_kills_its_members_takes_no_others_with_it() -> None:
    desk, _ = open_desk(retry=RetryPolicy(max_retries=2))
    for offset in range(10):
        desk.offer(TARGET, record(offset), "orders")
    for number in range(2, 5):
        assert len(offsets_sent(desk, 0)) == 10
        desk.leave(desk.seats[0], 0)
        desk.join(number, FlowPolicy(), 0)

    assert [offset for _, offset in desk.burials] == [0]
    assert desk.burials[TARGET, 0].attempts == 3
    assert offsets_sent(desk, 0) == list(range(1, 10))


def test_a_record_whose_time_is_over_is_sent_to_nobody() -> None:
    desk, seat = open_desk(FlowPolicy(window=1))
    desk.offer(TARGET, record(0), "orders")
    desk.offer(TARGET, record(1), "orders", ends_ms=500)
    desk.offer(TARGET, record(2), "orders", ends_ms=501)
    assert offsets_sent(desk, 0) == [0]

    assert desk.ack(seat, TARGET, 0)

    assert offsets_sent(desk, 500) == [2]
    assert desk.cursors[TARGET].floor == 2
    assert desk.dropped == 0


def test_a_record_whose_time_is_over_does_not_come_again() -> None:
    desk, seat = open_desk()
    desk.offer(TARGET, record(0), "orders", ends_ms=500)
    assert offsets_sent(desk, 0) == [0]

    assert desk.nack(seat, TARGET, 0, 0, wait_ms=600)
    desk.tick(600)

    assert offsets_sent(desk, 600) == []
    assert desk.cursors[TARGET].floor == 1


def test_what_is_dropped_is_not_held() -> None:
    desk, _ = open_desk(FlowPolicy(window=1, buffer=3, overflow=Overflow.DROP))
    for offset in range(1_000):
        desk.offer(TARGET, record(offset), "orders")

    assert desk.dropped == 997
    assert len(desk._ready._fresh) == 3
    assert offsets_sent(desk, 0) == [0]


def test_what_is_shed_is_not_held() -> None:
    desk, _ = open_desk(FlowPolicy(window=1, buffer=3, overflow=Overflow.SHED))
    for offset in range(1_000):
        desk.offer(TARGET, record(offset), "orders")

    assert desk.dropped == 997
    assert len(desk._ready._fresh) == 3
    assert offsets_sent(desk, 0) == [997]


def test_what_is_acknowledged_while_it_waits_for_a_retry_is_not_held() -> None:
    desk, seat = open_desk()
    for offset in range(1_000):
        desk.offer(TARGET, record(offset), "orders")
        desk.assign(0)
        assert desk.nack(seat, TARGET, offset, 0, wait_ms=3_600_000)
        assert desk.ack(seat, TARGET, offset)

    assert len(desk._deadlines._waiting) <= SPARE + 3


def test_one_that_is_slow_does_not_hold_those_that_were_sent_with_it() -> None:
    desk, seat = open_desk(FlowPolicy(window=10_000, buffer=10_000))
    for offset in range(1_000):
        desk.offer(TARGET, record(offset), "orders")
    desk.assign(0)

    for offset in range(1, 1_000):
        assert desk.ack(seat, TARGET, offset)

    (sending,) = desk._deadlines._sendings
    assert len(sending.items) <= SENT_HELD_MAX
    desk.tick(1_000)
    assert offsets_sent(desk, 1_000) == [0]


def test_headers_take_room_as_values_do() -> None:
    desk = Desk(AckMode.EXPLICIT, FOR_EVER, Bounds(100, 10_000), lambda: 0.5)
    desk.cursors[TARGET] = Cursor(TARGET, 0)
    desk.join(1, FlowPolicy(), 0)

    large = record(0, headers=(("trace", b"x" * 10_000),))
    desk.offer(TARGET, large, "orders", size_of(large))

    assert not desk.has_room


def test_a_hundred_thousand_acknowledged_behind_one_that_is_stuck_cost_next_to_nothing() -> None:
    desk, seat = open_desk(FlowPolicy(window=1_000), retry=RetryPolicy(ack_timeout_ms=10**9))
    for offset in range(100_001):
        desk.offer(TARGET, record(offset), "orders")
        desk.assign(0)
        assert offset == 0 or desk.ack(seat, TARGET, offset)

    cursor = desk.cursors[TARGET]
    assert (cursor.floor, cursor.next_offset, cursor.unsettled_count) == (0, 100_001, 1)
    assert len(encode_value(cursor.value())) < 100
    assert len(desk._deadlines._sendings) <= SPARE + 3
    assert len(desk._ready._fresh) == 0


def test_no_more_than_the_limit_is_ever_unsettled() -> None:
    desk, _ = open_desk(FlowPolicy(window=100_000, buffer=100_000), unsettled_max=20_000)
    offset = 0
    while desk.has_room:
        desk.offer(TARGET, record(offset), "orders")
        desk.assign(0)
        offset += 1

    assert offset == 20_000
    assert len(encode_value(desk.cursors[TARGET].value())) < 20_000 * 20


def test_errors_are_kept_as_far_as_there_is_room_for_them() -> None:
    desk, seat = open_desk(FlowPolicy(window=20_000, buffer=20_000))
    for offset in range(2_000):
        desk.offer(TARGET, record(offset), "orders")
    desk.assign(0)
    for offset in range(2_000):
        assert desk.reject(seat, TARGET, offset, "r" * 10_000, "e" * 10_000)

    value = desk.cursors[TARGET].value()

    assert sum(len(one.error) for one in value.unsettled) <= ERRORS_KEPT_MAX
    assert value.unsettled[0].error == "e" * 1_000
    assert value.unsettled[-1].error == ""
    assert value.unsettled[-1].reason == "r" * 100


def test_records_that_a_log_has_lost_are_nobodys() -> None:
    value = CursorValue(next_offset=9, unsettled=(Unsettled(2, 1), Unsettled(7, 1)))
    desk, seat = open_desk()
    desk.cursors[TARGET] = Cursor.restore(TARGET, value)
    for offset in range(2, 6):
        desk.offer(TARGET, record(offset), "orders")
    desk.assign(0)

    desk.cut(TARGET, 4)

    for offset in (4, 5):
        desk.offer(TARGET, record(offset), "orders")
    assert offsets_sent(desk, 0) == [4, 5]
    assert seat.in_flight == 3
    assert desk.cursors[TARGET].value() == CursorValue(next_offset=4, unsettled=(Unsettled(2, 1),))


def test_of_a_cursor_that_is_cut_below_its_floor_nothing_is_left() -> None:
    value = CursorValue(next_offset=9, unsettled=(Unsettled(5, 1),))
    desk, _ = open_desk()
    desk.cursors[TARGET] = Cursor.restore(TARGET, value, frozenset({6, 20}))

    desk.cut(TARGET, 3)

    assert desk.cursors[TARGET].value() == CursorValue(next_offset=3)
    desk.offer(TARGET, record(3), "orders")
    assert offsets_sent(desk, 0) == [3]


def test_a_dead_letter_of_a_partition_that_went_settles_nothing() -> None:
    desk, seat = open_desk()
    desk.offer(TARGET, record(0), "orders")
    desk.assign(0)
    assert desk.reject(seat, TARGET, 0, "bad", "")
    ((_, old),) = desk.burials.items()
    desk.forget(TARGET)
    desk.cursors[TARGET] = Cursor(TARGET, 0)
    desk.offer(TARGET, record(0), "orders")
    desk.assign(0)
    assert desk.reject(seat, TARGET, 0, "bad", "")

    assert not desk.buried(old)

    ((_, new),) = desk.burials.items()
    assert new is not old
    assert desk.buried(new)
    assert desk.cursors[TARGET].floor == 1


def test_bundles_keep_within_both_bounds() -> None:
    assert list(bundles([], len, count_max=2, bytes_max=5)) == []
    words = ["a", "b", "c", "dddd", "ee", "ffffffff", "g"]
    assert list(bundles(words, len, count_max=2, bytes_max=5)) == [
        ["a", "b"],
        ["c", "dddd"],
        ["ee"],
        ["ffffffff"],
        ["g"],
    ]
