"""What of handling records needs no broker: waits, headers of dead letters, their ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client import BadData, Refused, Reject, RetryPolicy, TopicPartition
from millstream.client.handling import error_text, letter_headers, message_id

TOLD = {"topic": "orders", "offset": "7"}


def test_waits_grow_up_to_the_longest() -> None:
    policy = RetryPolicy(delay_s=1, multiplier=3, delay_s_max=10, jitter=0)

    assert [policy.wait_s(retry, 0.3) for retry in (1, 2, 3, 4, 10_000)] == [1, 3, 9, 10, 10]
    assert RetryPolicy(multiplier=100, jitter=0).wait_s(2**40, 0.3) == 60


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 100))
def test_jitter_stays_in_its_bounds(jitter: float, luck: float, retry: int) -> None:
    policy = RetryPolicy(delay_s=2, multiplier=1, jitter=jitter)

    assert 2 * (1 - jitter) - 1e-9 <= policy.wait_s(retry, luck) <= 2 * (1 + jitter) + 1e-9


@pytest.mark.parametrize(
    "bad",
    [
        {"max_retries": -1},
        {"delay_s": -0.1},
        {"delay_s": 61},
        {"multiplier": 0.5},
        {"multiplier": 1e300},
        {"multiplier": float("nan")},
        {"jitter": 1.5},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(Refused, match=next(iter(bad))):
        RetryPolicy(**bad)  # type: ignore[arg-type]  # Whole numbers are floats.


def test_a_dead_letter_keeps_its_headers_and_says_where_it_comes_from() -> None:
    own = [("a", b"\xff"), ("a", None), ("ms-ttl-ms", b"1"), ("ms-message-id", b"mine")]

    headers = letter_headers([*own, ("ms-dlq-topic", b"of an earlier life")], TOLD)

    assert headers == [
        ("a", b"\xff"),
        ("a", None),
        ("ms-subject", b"DLQ.orders"),
        ("ms-dlq-topic", b"orders"),
        ("ms-dlq-offset", b"7"),
    ]


def test_the_subject_of_a_record_is_kept_aside() -> None:
    headers = letter_headers([("ms-subject", b"orders.eu")], TOLD)

    assert ("ms-subject", b"DLQ.orders.eu") in headers
    assert headers[-1] == ("ms-dlq-subject", b"orders.eu")


def test_a_record_has_one_id_for_each_group() -> None:
    at = TopicPartition("orders", 3)

    assert message_id("billing", at, 7) == b"billing/orders/3/7"
    long = [message_id(f"{at}" * 100, TopicPartition("orders", part), 7) for part in (1, 2)]
    assert len({*long}) == 2
    assert max(map(len, long)) <= 256


def test_an_error_says_its_kind_and_not_too_much() -> None:
    assert error_text(ValueError("boom")) == "ValueError: boom"
    assert error_text(KeyError()) == "KeyError"
    assert error_text(Reject("no such customer")) == "no such customer"
    assert error_text(BadData("x" * 10_000)).startswith("BadData: xxx")
    assert len(error_text(BadData("x" * 10_000))) == 1_000
