"""Reads the places that users name: an offset, a time, an age, `earliest`, `latest`."""

import re
from http import HTTPStatus
from typing import NamedTuple

from millstream.instants import microseconds_of
from millstream.protocols.http.problems import HttpProblem

_AGE = re.compile(r"(\d{1,12})\s*(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


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
    if (micros := microseconds_of(text)) is not None:
        return Place(timestamp_ms=micros // 1000)
    raise HttpProblem(
        HTTPStatus.BAD_REQUEST,
        "invalid_request",
        f"{name} = {text[:60]!r}: expected an offset, a time such as 2026-11-17T10:00:00Z, "
        "an age such as 15m, @ and milliseconds, earliest or latest",
        fields=(name,),
    )
