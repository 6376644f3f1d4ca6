"""Reading what people type: pairs, places in a log, times.

Owns the small languages of the flags and the sentence that says what they take. Pure: nothing here
talks to a broker.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from millstream.client import StartPoint

_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def read_place(ctx: click.Context, param: click.Parameter, text: str) -> "StartPoint":
    """For a flag that takes a place: what it means, or misuse."""
    try:
        return parse_place(text, now=datetime.now(UTC))
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not earliest, latest, an offset, a time such as 2026-05-01T12:00:00Z, "
            "or an age such as 15m."
        ) from None


def parse_place(text: str, *, now: datetime) -> "StartPoint":
    """Read a place; `ValueError` if it is none. A time without a zone is local time."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isdecimal():
        return int(text)
    if age := re.fullmatch(r"(\d+)([smhd])", text):
        return now - timedelta(**{_UNITS[age[2]]: int(age[1])})
    return datetime.fromisoformat(text)


def pairs(texts: Iterable[str], flag: str) -> dict[str, str]:
    """Read `KEY=VALUE` pairs; the last of a key wins."""
    return dict(ordered_pairs(texts, flag))


def ordered_pairs(texts: Iterable[str], flag: str) -> list[tuple[str, str]]:
    """Read `KEY=VALUE` pairs, of which a key may have several."""
    found = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{flag} takes KEY=VALUE, not {text!r}.")
        found.append((key, value))
    return found


def unescape(text: str) -> str:
    r"""Read `\n`, `\t` and their kin, as in the format of a record."""
    return re.sub(r"\\[ntr0\\]", lambda found: _ESCAPES[found[0]], text)
