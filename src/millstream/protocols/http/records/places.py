"""Reads the places that users name: an offset, a time, an age, `earliest`, `latest`."""

import re
from http import HTTPStatus
from typing import NamedTuple

from millstream.protocols.http.problems import HttpProblem

_AGE = re.compile(r"(\d{1,12})\s*(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?"
    r"\s*(Z|[+-]\d\d:?\d\d)?"
)


class Place(NamedTuple):
    """One of these is there; neither: `earliest` or `latest`."""

    word: str = ""
    offset: int | None = None
    timestamp_ms: int | None = None


def parse_place(text: str, now_ms: int, name: str) -> Place:
    """`1200`, `2026-11-17T10:00:00Z`, `15m` (so long ago), `earliest`, `latest`; raise 400."""
    text = text.strip()
    if text in {"earliest", "latest"}:
        return Place(text)
    if text.isdigit() and len(text) <= 19:
        return Place(offset=int(text))
    if text.startswith("@") and text[1:].isdigit() and len(text) <= 20:
        return Place(timestamp_ms=int(text[1:]))
    if match := _AGE.fullmatch(text):
        return Place(timestamp_ms=max(0, now_ms - int(match[1]) * _UNITS_MS[match[2]]))
    if match := _TIME.fullmatch(text):
        return Place(timestamp_ms=_milliseconds(match))
    raise HttpProblem(
        HTTPStatus.BAD_REQUEST,
        "invalid_request",
        f"{name} = {text[:60]!r}: expected an offset, a time such as 2026-11-17T10:00:00Z, "
        "an age such as 15m, @ and milliseconds, earliest or latest",
        fields=(name,),
    )


def _milliseconds(match: "re.Match[str]") -> int:
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    # Days from a date of the Gregorian calendar, counted from March so that February is last.
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    days = era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    seconds = (days - 719_468) * 86_400
    seconds += int(match[4] or 0) * 3600 + int(match[5] or 0) * 60 + int(match[6] or 0)
    zone = match[8]
    if zone and zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        seconds -= (1 if zone[0] == "+" else -1) * (hours * 3600 + minutes * 60)
    return seconds * 1000 + int((match[7] or "0").ljust(3, "0")[:3])
