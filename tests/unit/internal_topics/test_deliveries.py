"""What is kept of subscriptions, as a fold."""

from uuid import UUID

import pytest

from millstream.internal_topics.deliveries import (
    AckMode,
    CursorKey,
    CursorValue,
    DeadLetterIntent,
    DeliveriesState,
    FlowPolicy,
    RetryPolicy,
    SettledKey,
    SubscriptionKey,
    SubscriptionValue,
    Unsettled,
    decode_intent,
    encode_intent,
    encode_key,
    encode_value,
)
from millstream.model import LogId

LOG = LogId(UUID(int=7), 2)
CURSOR = CursorKey("billing", LOG.topic_id, LOG.partition)
VALUE = SubscriptionValue(
    pattern="orders.>",
    style="DOT",
    topics=(),
    start="latest",
    start_number=0,
    filter=None,
    acks=AckMode.EXPLICIT,
    created_ms=1,
    principal="test",
    retry=RetryPolicy(max_retries=7),
    flow=FlowPolicy(rate=2.5),
)


def test_the_newest_value_of_a_key_counts() -> None:
    state = DeliveriesState()
    state.apply(encode_key(SubscriptionKey("billing")), encode_value(VALUE))
    first = CursorValue(next_offset=3)
    second = CursorValue(next_offset=5, unsettled=(Unsettled(4, 2, "bad", "why"),))
    state.apply(encode_key(CURSOR), encode_value(first))
    state.apply(encode_key(CURSOR), encode_value(second))

    assert list(state) == ["billing"]
    assert state.find("billing") == VALUE
    assert state.cursors("billing") == {LOG: second}


def test_a_null_value_takes_a_key_away() -> None:
    state = DeliveriesState()
    mark = SettledKey("billing", LOG.topic_id, LOG.partition, 9)
    state.apply(encode_key(SubscriptionKey("billing")), encode_value(VALUE))
    state.apply(encode_key(CURSOR), encode_value(CursorValue(next_offset=3)))
    state.apply(encode_key(mark), b"\x01")
    assert state.settled("billing") == {LOG: frozenset({9})}

    for key in (SubscriptionKey("billing"), CURSOR, mark):
        state.apply(encode_key(key), None)

    assert len(state) == 0
    assert state.cursors("billing") == {}
    assert state.settled("billing") == {}


def test_what_is_not_ours_changes_nothing() -> None:
    state = DeliveriesState()
    for key, value in ((b"noise", b"noise"), (None, b"x"), (encode_key(CURSOR), b"noise")):
        with pytest.raises(ValueError):
            state.apply(key, value)

    assert state.cursors("billing") == {}


def test_keys_are_spelled_the_same_for_ever() -> None:
    assert encode_key(SubscriptionKey("a")).hex() == "9200a161"
    assert encode_key(CURSOR).hex() == "9401a762696c6c696e67c410" + "00" * 15 + "0702"
    mark = SettledKey("a", LOG.topic_id, 2, 300)
    assert encode_key(mark).hex() == "9502a161c410" + "00" * 15 + "0702cd012c"


def test_an_intent_holds_all_that_is_needed_to_write_the_record_again() -> None:
    intent = DeadLetterIntent(
        name="billing",
        topic_id=LOG.topic_id,
        topic="orders",
        partition=2,
        offset=5,
        attempts=3,
        reason="bad",
        error="why",
        prefix="DLQ.",
        group="billing",
    )

    assert decode_intent(encode_intent(intent)) == intent
    assert intent.settled == SettledKey("billing", LOG.topic_id, 2, 5)
    assert intent.log == LOG
