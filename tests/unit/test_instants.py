"""Dates and times as texts, against Python's own reader."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.instants import days_of, microseconds_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda each: timezone(timedelta(minutes=each)))


@given(st.datetimes(EPOCH.replace(year=1000, tzinfo=None), timezones=ZONES))
def test_instants_are_those_of_python(at: datetime) -> None:
    assert microseconds_of(at.isoformat()) == (at - EPOCH) // timedelta(microseconds=1)


@given(st.dates(date(1000, 1, 1)))
def test_days_are_those_of_python(day: date) -> None:
    assert days_of(day.isoformat()) == (day - EPOCH.date()).days


@pytest.mark.parametrize(
    "text", ["", "2026", "2026-13-01", "2026-02-30", "2025-02-29", "2026-01-01T24:00", "1900-02-29"]
)
def test_another_text_is_none(text: str) -> None:
    assert microseconds_of(text) is None
    assert days_of(text) is None


def test_a_date_with_a_time_is_no_date() -> None:
    assert days_of("2026-11-17T10:00") is None
    assert microseconds_of("2026-11-17") == days_of("2026-11-17") * 86_400_000_000  # type: ignore[operator]
