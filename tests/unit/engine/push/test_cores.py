"""The pure parts of delivery, each alone."""

from random import Random
from uuid import UUID

import pytest

from millstream.codec.records import Record
from millstream.engine.dead_letters.records import dead_letter, lost_letter, origin_of, revived
from millstream.engine.partitions.slices import (
    AtMaxTimestamp,
    AtTime,
    Earliest,
    LastRecords,
    Latest,
)
from millstream.engine.publish.subjects import Pattern, Style
from millstream.engine.push import AtOffset, SubscriptionSpec
from millstream.engine.push.cursor import TRANSITIONS, Cursor, Event, Phase
from millstream.engine.push.dispatcher import Bounds, Dispatcher
from millstream.engine.push.queues import delay_ms
from millstream.engine.push.specs import restored, stored
from millstream.engine.push.window import TokenBucket, Window
from millstream.internal_topics.deliveries import (
    AckMode,
    CursorValue,
    DeadLetterIntent,
    FlowPolicy,
    RetryPolicy,
    Unsettled,
)
from millstream.model import TopicPartition

TARGET = TopicPartition("orders", 0)


def record(offset: int) -> Record:
    return Record(offset, 0, None, b"v")


def intent(**changes: object) -> DeadLetterIntent:
    fields: dict[str, object] = {
        "name": "billing",
        "topic_id": UUID(int=1),
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "attempts": 3,
        "reason": "bad",
        "error": "why",
        "prefix": "DLQ.",
        "group": "billing",
    }
    return DeadLetterIntent(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("event", list(Event))
def test_a_record_moves_as_the_table_says(phase: Phase, event: Event) -> None:
    """Walks every pair: what is not in the table is our mistake, and what is leads somewhere."""
    if (phase, event) in TRANSITIONS:
        assert TRANSITIONS[phase, event] is not phase
    # Only what a member or the dead letters took ends a record, or a policy, or its time.
    if TRANSITIONS.get((phase, event), phase) is None:
        assert event in {Event.ACK, Event.DEAD_LETTERED, Event.DROP, Event.EXPIRE}


def test_every_phase_is_left_and_can_be_settled() -> None:
    for phase in Phase:
        reached, left = {phase}, [phase]
        ends = False
        while left:
            at = left.pop()
            for (before, _), after in TRANSITIONS.items():
                if before is at and after is None:
                    ends = True
                elif before is at and after is not None and after not in reached:
                    reached.add(after)
                    left.append(after)
        assert ends, phase


def test_what_was_never_sent_is_read_again_rather_than_kept() -> None:
    cursor = Cursor(TARGET, 0)
    for offset in range(5):
        cursor.take(record(offset), "orders")
    cursor.in_flight[1].attempts = 2
    cursor.settle(0)

    assert cursor.value() == CursorValue(next_offset=2, unsettled=(Unsettled(1, 2),))


def test_what_was_settled_behind_something_unsent_is_kept() -> None:
    cursor = Cursor(TARGET, 0)
    for offset in range(5):
        cursor.take(record(offset), "orders")
    cursor.settle(3)

    value = cursor.value()

    assert value.next_offset == 4
    assert [delivery.offset for delivery in value.unsettled] == [0, 1, 2]


def test_a_restored_cursor_takes_only_what_was_not_settled() -> None:
    value = CursorValue(next_offset=6, unsettled=(Unsettled(2, 1), Unsettled(4, 3, "bad", "why")))
    cursor = Cursor.restore(TARGET, value, frozenset({7}))
    assert cursor.next_offset == 2

    taken = {at: cursor.take(record(at), "orders") for at in range(2, 9)}

    assert {at for at, state in taken.items() if state is not None} == {2, 4, 6, 8}
    assert taken[2] is not None
    assert taken[2].attempts == 1
    assert taken[4] is not None
    assert taken[4].phase is Phase.GIVEN_UP
    assert taken[4].reason == "bad"


def test_a_restored_cursor_keeps_what_it_has_not_read_yet() -> None:
    value = CursorValue(next_offset=6, unsettled=(Unsettled(2, 1), Unsettled(4, 3, "bad", "why")))
    cursor = Cursor.restore(TARGET, value)

    assert cursor.value() == value
    cursor.take(record(2), "orders")
    assert cursor.value() == value


def test_records_that_retention_took_are_not_waited_for() -> None:
    value = CursorValue(next_offset=6, unsettled=(Unsettled(2, 1), Unsettled(4, 1)))
    cursor = Cursor.restore(TARGET, value)
    cursor.move_on(3)

    assert [delivery.offset for delivery in cursor.value().unsettled] == [4]


def test_a_mark_settles_what_the_cursor_calls_unsettled() -> None:
    value = CursorValue(next_offset=6, unsettled=(Unsettled(2, 1), Unsettled(4, 1)))
    cursor = Cursor.restore(TARGET, value, frozenset({2}))

    assert cursor.floor == 4
    assert cursor.is_settled(2)


def test_a_bucket_gives_what_its_rate_allows() -> None:
    bucket = TokenBucket(10, 5, 0)
    bucket.take(5)
    assert bucket.tokens(0) == 0
    assert bucket.whole_ms(0) == 101
    assert bucket.tokens(250) == pytest.approx(2.5)
    assert bucket.tokens(10_000) == 5
    assert bucket.tokens(0) == 5  # A clock that steps back takes nothing away.


def test_a_window_has_the_least_room_of_all_its_bounds() -> None:
    assert Window(1, FlowPolicy(window=3), 0).room(0) == 3
    assert Window(1, FlowPolicy(window=30, rate=1, burst=2), 0).room(0) == 2
    pulling = Window(1, FlowPolicy(is_pull=True), 0)
    assert pulling.room(0) == 0
    pulling.requested = 4
    assert pulling.room(0) == 4
    pulling.is_open = False
    assert pulling.room(0) == 0


def test_delays_grow_within_their_bounds() -> None:
    retry = RetryPolicy(retry_delay_ms=100, multiplier=2, retry_delay_ms_max=1_000, jitter=0)
    assert [delay_ms(retry, attempts, lambda: 0.5) for attempts in range(1, 7)] == [
        100,
        200,
        400,
        800,
        1_000,
        1_000,
    ]
    assert delay_ms(retry, 10**9, lambda: 0.5) == 1_000


def test_jitter_goes_both_ways_and_no_further() -> None:
    retry = RetryPolicy(retry_delay_ms=1_000, jitter=0.2)
    random = Random(3)
    delays = [delay_ms(retry, 1, random.random) for _ in range(1_000)]
    assert 800 <= min(delays) < 850
    assert 1_150 < max(delays) <= 1_200


def test_a_member_that_rejects_twice_is_told_once() -> None:
    dispatcher = Dispatcher(AckMode.EXPLICIT, RetryPolicy(), Bounds(10, 10_000), lambda: 0.5)
    dispatcher.cursors[TARGET] = Cursor(TARGET, 0)
    window = dispatcher.join(1, FlowPolicy(), 0)
    dispatcher.offer(TARGET, record(0), "orders")
    dispatcher.assign(0)

    assert dispatcher.reject(window, TARGET, 0, "bad", "x" * 5_000)
    assert not dispatcher.reject(window, TARGET, 0, "bad", "")
    assert not dispatcher.ack(window, TARGET, 0)
    assert len(dispatcher.given_up[TARGET, 0].error) == 1_000


def test_a_dead_letter_says_where_it_comes_from() -> None:
    headers = (("ms-ttl-ms", b"5"), ("trace", b"1"), ("ms-subject", b"orders.us"))
    letter = dead_letter(Record(7, 1_000, b"k", b"v", headers), intent(), 2_000)

    assert (letter.key, letter.value, letter.timestamp) == (b"k", b"v", 2_000)
    assert dict(letter.headers)["ms-subject"] == b"DLQ.orders.us"
    assert "ms-ttl-ms" not in dict(letter.headers)
    origin = origin_of(letter)
    assert origin == (TopicPartition("orders", 2), 7, "billing", 3, "bad", "why")
    assert revived(letter, 3_000).headers == (("trace", b"1"), ("ms-subject", b"orders.us"))


def test_a_record_without_a_subject_comes_back_without_one() -> None:
    letter = dead_letter(Record(7, 1_000, None, b"v"), intent(), 2_000)

    assert dict(letter.headers)["ms-subject"] == b"DLQ.orders"
    assert revived(letter, 3_000).headers == ()


def test_of_a_record_that_is_gone_its_origin_is_left() -> None:
    letter = lost_letter(intent(), 2_000)

    origin = origin_of(letter)
    assert origin is not None
    assert origin.offset == 7
    assert "gone" in origin.error


@pytest.mark.parametrize("headers", [(), (("ms-dlq-topic", b"x"),), (("ms-dlq-topic", None),)])
def test_what_does_not_say_where_it_comes_from_is_no_dead_letter(
    headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    assert origin_of(Record(0, 0, None, b"v", headers)) is None


@pytest.mark.parametrize(
    "start", [Earliest(), Latest(), AtTime(5), AtMaxTimestamp(), LastRecords(3), AtOffset(9)]
)
def test_a_specification_is_kept_as_it_was(start: object) -> None:
    spec = SubscriptionSpec(
        name="billing",
        pattern=Pattern.parse("a/+/#", Style.SLASH),
        topics=("orders", "payments"),
        start=start,  # type: ignore[arg-type]
        filter="value contains 'x'",
        acks=AckMode.ON_SEND,
        retry=RetryPolicy(max_retries=-1),
        flow=FlowPolicy(rate=1.5),
    )

    kept = restored("billing", stored(spec, principal="test", now_ms=1))

    assert kept == spec
    assert kept.pattern is not None
    assert kept.pattern.matches("a/b")
