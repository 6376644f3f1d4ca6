"""The dispatcher alone: order of redelivery, expiry, and what it holds for how long."""

from millstream.codec.records import Record
from millstream.engine.push.cursor import ERRORS_KEPT_MAX, SENT_HELD_MAX, Cursor, size_of
from millstream.engine.push.dispatcher import Bounds, Dispatcher
from millstream.engine.push.queues import SPARE
from millstream.engine.push.window import Window
from millstream.engine.runtime.chunked import chunked
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


def open_dispatcher(
    flow: FlowPolicy | None = None, *, retry: RetryPolicy = FOR_EVER, unsettled_max: int = 20_000
) -> tuple[Dispatcher, Window]:
    dispatcher = Dispatcher(AckMode.EXPLICIT, retry, Bounds(unsettled_max, 2**26), lambda: 0.5)
    dispatcher.cursors[TARGET] = Cursor(TARGET, 0)
    return dispatcher, dispatcher.join(1, flow or FlowPolicy(), 0)


def offsets_sent(dispatcher: Dispatcher, now_ms: int) -> list[int]:
    return [item.offset for _, share in dispatcher.assign(now_ms) for item in share]


def test_what_failed_comes_again_in_the_order_of_the_log() -> None:
    dispatcher, window = open_dispatcher(FlowPolicy(window=6))
    for offset in range(8):
        dispatcher.offer(TARGET, record(offset), "orders")
    assert offsets_sent(dispatcher, 0) == [0, 1, 2, 3, 4, 5]

    for offset in (2, 0, 5, 1):
        assert dispatcher.nack(window, TARGET, offset, 0)

    assert offsets_sent(dispatcher, 0) == [0, 1, 2, 5]


def test_what_a_member_left_behind_goes_before_what_failed_later() -> None:
    dispatcher, window = open_dispatcher(FlowPolicy(window=4))
    other = dispatcher.join(2, FlowPolicy(window=4), 0)
    for offset in range(10):
        dispatcher.offer(TARGET, record(offset), "orders")
    dispatcher.assign(0)

    assert dispatcher.nack(other, TARGET, 7, 0)
    assert dispatcher.nack(other, TARGET, 3, 0)
    dispatcher.leave(window, 0)

    assert offsets_sent(dispatcher, 0) == [0, 2]
    dispatcher.join(3, FlowPolicy(), 0)
    assert offsets_sent(dispatcher, 0) == [3, 4, 6, 7, 8, 9]


def test_a_record_that_kills_its_members_takes_no_others_with_it() -> None:
    dispatcher, _ = open_dispatcher(retry=RetryPolicy(max_retries=2))
    for offset in range(10):
        dispatcher.offer(TARGET, record(offset), "orders")
    for number in range(2, 5):
        assert len(offsets_sent(dispatcher, 0)) == 10
        dispatcher.leave(dispatcher.windows[0], 0)
        dispatcher.join(number, FlowPolicy(), 0)

    assert [offset for _, offset in dispatcher.given_up] == [0]
    assert dispatcher.given_up[TARGET, 0].attempts == 3
    assert offsets_sent(dispatcher, 0) == list(range(1, 10))


def test_an_expired_record_is_not_sent() -> None:
    dispatcher, window = open_dispatcher(FlowPolicy(window=1))
    dispatcher.offer(TARGET, record(0), "orders")
    dispatcher.offer(TARGET, record(1), "orders", ends_ms=500)
    dispatcher.offer(TARGET, record(2), "orders", ends_ms=501)
    assert offsets_sent(dispatcher, 0) == [0]

    assert dispatcher.ack(window, TARGET, 0)

    assert offsets_sent(dispatcher, 500) == [2]
    assert dispatcher.cursors[TARGET].floor == 2
    assert dispatcher.dropped == 0


def test_a_record_whose_time_is_over_does_not_come_again() -> None:
    dispatcher, window = open_dispatcher()
    dispatcher.offer(TARGET, record(0), "orders", ends_ms=500)
    assert offsets_sent(dispatcher, 0) == [0]

    assert dispatcher.nack(window, TARGET, 0, 0, wait_ms=600)
    dispatcher.tick(600)

    assert offsets_sent(dispatcher, 600) == []
    assert dispatcher.cursors[TARGET].floor == 1


def test_what_is_dropped_is_not_held() -> None:
    dispatcher, _ = open_dispatcher(FlowPolicy(window=1, buffer=3, overflow=Overflow.DROP))
    for offset in range(1_000):
        dispatcher.offer(TARGET, record(offset), "orders")

    assert dispatcher.dropped == 997
    assert len(dispatcher._ready._fresh) == 3
    assert offsets_sent(dispatcher, 0) == [0]


def test_what_is_shed_is_not_held() -> None:
    dispatcher, _ = open_dispatcher(FlowPolicy(window=1, buffer=3, overflow=Overflow.SHED))
    for offset in range(1_000):
        dispatcher.offer(TARGET, record(offset), "orders")

    assert dispatcher.dropped == 997
    assert len(dispatcher._ready._fresh) == 3
    assert offsets_sent(dispatcher, 0) == [997]


def test_what_is_acknowledged_while_it_waits_for_a_retry_is_not_held() -> None:
    dispatcher, window = open_dispatcher()
    for offset in range(1_000):
        dispatcher.offer(TARGET, record(offset), "orders")
        dispatcher.assign(0)
        assert dispatcher.nack(window, TARGET, offset, 0, wait_ms=3_600_000)
        assert dispatcher.ack(window, TARGET, offset)

    assert len(dispatcher._deadlines._waiting) <= SPARE + 3


def test_one_that_is_slow_does_not_hold_those_that_were_sent_with_it() -> None:
    dispatcher, window = open_dispatcher(FlowPolicy(window=10_000, buffer=10_000))
    for offset in range(1_000):
        dispatcher.offer(TARGET, record(offset), "orders")
    dispatcher.assign(0)

    for offset in range(1, 1_000):
        assert dispatcher.ack(window, TARGET, offset)

    (sending,) = dispatcher._deadlines._sendings
    assert len(sending.items) <= SENT_HELD_MAX
    dispatcher.tick(1_000)
    assert offsets_sent(dispatcher, 1_000) == [0]


def test_headers_take_room_as_values_do() -> None:
    dispatcher = Dispatcher(AckMode.EXPLICIT, FOR_EVER, Bounds(100, 10_000), lambda: 0.5)
    dispatcher.cursors[TARGET] = Cursor(TARGET, 0)
    dispatcher.join(1, FlowPolicy(), 0)

    large = record(0, headers=(("trace", b"x" * 10_000),))
    dispatcher.offer(TARGET, large, "orders", size_of(large))

    assert not dispatcher.has_room


def test_a_hundred_thousand_acknowledged_behind_one_that_is_stuck_cost_next_to_nothing() -> None:
    dispatcher, window = open_dispatcher(
        FlowPolicy(window=1_000), retry=RetryPolicy(ack_timeout_ms=10**9)
    )
    for offset in range(100_001):
        dispatcher.offer(TARGET, record(offset), "orders")
        dispatcher.assign(0)
        assert offset == 0 or dispatcher.ack(window, TARGET, offset)

    cursor = dispatcher.cursors[TARGET]
    assert (cursor.floor, cursor.next_offset, cursor.unsettled_count) == (0, 100_001, 1)
    assert len(encode_value(cursor.value())) < 100
    assert len(dispatcher._deadlines._sendings) <= SPARE + 3
    assert len(dispatcher._ready._fresh) == 0


def test_no_more_than_the_limit_is_ever_unsettled() -> None:
    dispatcher, _ = open_dispatcher(
        FlowPolicy(window=100_000, buffer=100_000), unsettled_max=20_000
    )
    offset = 0
    while dispatcher.has_room:
        dispatcher.offer(TARGET, record(offset), "orders")
        dispatcher.assign(0)
        offset += 1

    assert offset == 20_000
    assert len(encode_value(dispatcher.cursors[TARGET].value())) < 20_000 * 20


def test_errors_are_kept_as_far_as_there_is_room_for_them() -> None:
    dispatcher, window = open_dispatcher(FlowPolicy(window=20_000, buffer=20_000))
    for offset in range(2_000):
        dispatcher.offer(TARGET, record(offset), "orders")
    dispatcher.assign(0)
    for offset in range(2_000):
        assert dispatcher.reject(window, TARGET, offset, "r" * 10_000, "e" * 10_000)

    value = dispatcher.cursors[TARGET].value()

    assert sum(len(delivery.error) for delivery in value.unsettled) <= ERRORS_KEPT_MAX
    assert value.unsettled[0].error == "e" * 1_000
    assert value.unsettled[-1].error == ""
    assert value.unsettled[-1].reason == "r" * 100


def test_records_that_a_log_has_lost_are_dropped() -> None:
    value = CursorValue(next_offset=9, unsettled=(Unsettled(2, 1), Unsettled(7, 1)))
    dispatcher, window = open_dispatcher()
    dispatcher.cursors[TARGET] = Cursor.restore(TARGET, value)
    for offset in range(2, 6):
        dispatcher.offer(TARGET, record(offset), "orders")
    dispatcher.assign(0)

    dispatcher.cut(TARGET, 4)

    for offset in (4, 5):
        dispatcher.offer(TARGET, record(offset), "orders")
    assert offsets_sent(dispatcher, 0) == [4, 5]
    assert window.in_flight_count == 3
    assert dispatcher.cursors[TARGET].value() == CursorValue(
        next_offset=4, unsettled=(Unsettled(2, 1),)
    )


def test_of_a_cursor_that_is_cut_below_its_floor_nothing_is_left() -> None:
    value = CursorValue(next_offset=9, unsettled=(Unsettled(5, 1),))
    dispatcher, _ = open_dispatcher()
    dispatcher.cursors[TARGET] = Cursor.restore(TARGET, value, frozenset({6, 20}))

    dispatcher.cut(TARGET, 3)

    assert dispatcher.cursors[TARGET].value() == CursorValue(next_offset=3)
    dispatcher.offer(TARGET, record(3), "orders")
    assert offsets_sent(dispatcher, 0) == [3]


def test_a_dead_letter_of_a_partition_that_went_settles_nothing() -> None:
    dispatcher, window = open_dispatcher()
    dispatcher.offer(TARGET, record(0), "orders")
    dispatcher.assign(0)
    assert dispatcher.reject(window, TARGET, 0, "bad", "")
    ((_, old),) = dispatcher.given_up.items()
    dispatcher.forget(TARGET)
    dispatcher.cursors[TARGET] = Cursor(TARGET, 0)
    dispatcher.offer(TARGET, record(0), "orders")
    dispatcher.assign(0)
    assert dispatcher.reject(window, TARGET, 0, "bad", "")

    assert not dispatcher.dead_letter_written(old)

    ((_, new),) = dispatcher.given_up.items()
    assert new is not old
    assert dispatcher.dead_letter_written(new)
    assert dispatcher.cursors[TARGET].floor == 1


def test_bundles_keep_within_both_bounds() -> None:
    assert list(chunked([], len, count_max=2, bytes_max=5)) == []
    words = ["a", "b", "c", "dddd", "ee", "ffffffff", "g"]
    assert list(chunked(words, len, count_max=2, bytes_max=5)) == [
        ["a", "b"],
        ["c", "dddd"],
        ["ee"],
        ["ffffffff"],
        ["g"],
    ]
