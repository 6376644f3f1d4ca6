"""Reads dates and times of ISO 8601 as whole numbers since 1970 UTC. Pure: asks no clock."""

import re

_INSTANT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?"
    r"\s*(Z|[+-]\d\d:?\d\d)?"
)
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def microseconds_of(text: str) -> int | None:
    """`2026-11-17T10:00:00.250+01:00` and shorter; UTC without a zone. None for another text."""
    match = _INSTANT.fullmatch(text)
    if match is None:
        return None
    days = _days(int(match[1]), int(match[2]), int(match[3]))
    hour, minute, second = int(match[4] or 0), int(match[5] or 0), int(match[6] or 0)
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second
    zone = match[8]
    if zone and zone != "Z":
        seconds -= (1 if zone[0] == "+" else -1) * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
    return seconds * 1_000_000 + int((match[7] or "0").ljust(6, "0")[:6])


def days_of(text: str) -> int | None:
    """The days to a date such as `2026-11-17`; None for another text."""
    match = _INSTANT.fullmatch(text)
    if match is None or match[4] is not None or match[8] is not None:
        return None
    return _days(int(match[1]), int(match[2]), int(match[3]))


def _days(year: int, month: int, day: int) -> int | None:
    if not (1 <= month <= 12 and 1 <= day <= _MONTH_DAYS[month - 1]):
        return None
    if (month, day) == (2, 29) and (year % 4 or (year % 100 == 0 and year % 400)):
        return None
    # Of the Gregorian calendar, counted from March so that February is last.
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    days = era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return days - 719_468
