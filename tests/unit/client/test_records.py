"""Headers and times of records; what no broker carries out yet is refused."""

from datetime import UTC, datetime, timedelta

import pytest

from millstream.client.errors import NotSupported, Refused
from millstream.client.records import header_list, refuse_filter, refuse_unserved, timestamp_ms


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


@pytest.mark.parametrize("name", ["ms-delay-ms", "ms-deliver-at", "ms-ttl-ms", "ms-message-id"])
def test_reserved_headers_are_refused(name: str) -> None:
    with pytest.raises(NotSupported, match=f"header {name} is not supported"):
        header_list({name: "1"})


def test_delay_ttl_message_id_and_filter_are_refused() -> None:
    with pytest.raises(NotSupported, match="delay= is not supported"):
        refuse_unserved(delay=timedelta(seconds=1))
    with pytest.raises(NotSupported, match="ttl= is not supported"):
        refuse_unserved(ttl=0)
    with pytest.raises(NotSupported, match="message_id= is not supported"):
        refuse_unserved(message_id="")
    with pytest.raises(NotSupported, match="filter= is not supported"):
        refuse_filter("kg > 5")
    refuse_unserved()
    refuse_filter(None)


def test_a_time_is_a_datetime_or_milliseconds() -> None:
    assert timestamp_ms(datetime(2026, 1, 2, tzinfo=UTC)) == 1_767_312_000_000
    assert timestamp_ms(5) == 5
    assert timestamp_ms(None) == 0
    with pytest.raises(Refused, match="after 1970"):
        timestamp_ms(-1)
