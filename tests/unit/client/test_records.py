"""Headers and times of records, and what they ask the broker for."""

from datetime import UTC, datetime, timedelta

import pytest

from millstream.client.errors import Refused
from millstream.client.records import asks, header_list, queue_headers, timestamp_ms


def test_headers_keep_their_order_and_may_repeat() -> None:
    assert header_list([("a", "1"), ("b", None), ("a", b"\xff")]) == [
        ("a", b"1"),
        ("b", None),
        ("a", b"\xff"),
    ]
    assert header_list({"a": "grüße"}) == [("a", "grüße".encode())]
    assert header_list(None) == []


def test_a_header_of_another_type_is_refused() -> None:
    with pytest.raises(Refused, match="header 'a' is a int"):
        header_list({"a": 1})  # type: ignore[dict-item]


def test_a_delay_is_a_span_or_a_time() -> None:
    assert queue_headers(delay=1.5) == [("ms-delay-ms", b"1500")]
    assert queue_headers(delay=timedelta(minutes=1)) == [("ms-delay-ms", b"60000")]
    at = datetime(2026, 1, 2, tzinfo=UTC)
    assert queue_headers(delay=at) == [("ms-deliver-at", b"1767312000000")]
    with pytest.raises(Refused, match="delay is -1 s"):
        queue_headers(delay=-1)


def test_a_lifetime_and_an_identity_are_headers_as_well() -> None:
    assert queue_headers(ttl=0.25, message_id="a-1") == [
        ("ms-ttl-ms", b"250"),
        ("ms-message-id", b"a-1"),
    ]
    assert queue_headers() == []
    with pytest.raises(Refused, match="message_id is empty"):
        queue_headers(message_id="")


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("ms-delay-ms", "delay"),
        ("ms-deliver-at", "delay"),
        ("ms-ttl-ms", "ttl"),
        ("ms-message-id", "message_id"),
    ],
)
def test_a_reserved_header_asks_for_what_it_is_named_after(name: str, feature: str) -> None:
    assert asks([("a", b""), (name, b"1")]) == feature
    assert asks([("a", b"")]) is None


def test_a_time_is_a_datetime_or_milliseconds() -> None:
    assert timestamp_ms(datetime(2026, 1, 2, tzinfo=UTC)) == 1_767_312_000_000
    assert timestamp_ms(5) == 5
    assert timestamp_ms(None) == 0
    with pytest.raises(Refused, match="after 1970"):
        timestamp_ms(-1)
