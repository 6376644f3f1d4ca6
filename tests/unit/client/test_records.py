"""Headers and times of records, and what they ask the broker for."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from millstream.client.errors import Refused
from millstream.client.records import (
    asks,
    header_list,
    is_delayed,
    queue_headers,
    timestamp_ms,
)


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


def test_a_time_long_ago_is_due_and_one_that_is_none_is_refused() -> None:
    assert queue_headers(delay=datetime(1960, 1, 1, tzinfo=UTC)) == [("ms-deliver-at", b"0")]
    with pytest.raises(Refused, match="no time"):
        queue_headers(delay=datetime(1, 1, 1))  # noqa: DTZ001 - local, and so before the first year


@pytest.mark.parametrize(
    "sent", [lambda odd: queue_headers(message_id=odd), lambda odd: header_list({"a": odd})]
)
def test_what_is_no_text_is_refused(sent: Callable[[str], object]) -> None:
    with pytest.raises(Refused, match="not a text"):
        sent("\udcff")


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


@pytest.mark.parametrize(
    ("name", "value", "waits"),
    [
        ("ms-delay-ms", b"1", True),
        ("ms-delay-ms", b"0", False),
        ("ms-delay-ms", b"soon", False),
        ("ms-delay-ms", None, False),
        ("ms-deliver-at", b"1001", True),
        ("ms-deliver-at", b"1000", False),
        ("ms-ttl-ms", b"5", False),
    ],
)
def test_a_record_is_delayed_if_it_asks_for_a_time_to_come(
    name: str, value: bytes | None, waits: bool
) -> None:
    assert is_delayed([("a", b"1"), (name, value)], now_ms=1_000) is waits


def test_a_time_is_a_datetime_or_milliseconds() -> None:
    assert timestamp_ms(datetime(2026, 1, 2, tzinfo=UTC)) == 1_767_312_000_000
    assert timestamp_ms(5) == 5
    assert timestamp_ms(None) == 0
    with pytest.raises(Refused, match="after 1970"):
        timestamp_ms(-1)
