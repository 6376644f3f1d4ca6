"""Parses flags: pairs, places in a log, times and spans of time.

Owns the small languages of the flags and their error messages. Pure: nothing here talks to a
broker.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from millstream.client import StartPoint

_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

key_option = click.option(
    "--key",
    "key_reference",
    default="",
    metavar="REFERENCE",
    help="Where the root key of encrypted data is, such as file:root.key.  [as configured]",
)


class OffsetRange(NamedTuple):
    """The start of a read, and the first offset that is not read; a negative start counts back."""

    start: "StartPoint"
    until: int | None


def read_range(ctx: click.Context, param: click.Parameter, text: str) -> OffsetRange:
    """For a flag that takes a place, the last N records, or two offsets with a colon."""
    if offsets := re.fullmatch(r"(\d*):(\d+)", text, re.ASCII):
        return OffsetRange(int(offsets[1]) if offsets[1] else "earliest", int(offsets[2]))
    if re.fullmatch(r"-\d+", text, re.ASCII):
        return OffsetRange(int(text), None)
    start = read_place(ctx, param, text)
    assert start is not None
    return OffsetRange(start, None)


def read_place(ctx: click.Context, param: click.Parameter, text: str | None) -> "StartPoint | None":
    """For a flag that takes a place: what it means, or misuse."""
    if text is None:
        return None
    try:
        return parse_place(text, now=datetime.now(UTC))
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not earliest, latest, an offset, a time such as 2026-05-01T12:00:00Z, "
            "or an age such as 15m."
        ) from None


def parse_place(text: str, *, now: datetime) -> "StartPoint":
    """Read a place; `ValueError` if it is none. A time without a zone is local time."""
    if text in ("earliest", "beginning", "start"):  # As kcat and rpk call it.
        return "earliest"
    if text in ("latest", "end"):
        return "latest"
    if text.isdecimal():
        return int(text)
    age = parse_span(text)
    return datetime.fromisoformat(text) if age is None else now - age


def read_span(ctx: click.Context, param: click.Parameter, text: str | None) -> timedelta | None:
    """For a flag that takes a span of time."""
    if text is None:
        return None
    try:
        span = parse_span(text)
    except OverflowError:
        span = None
    if span is None:
        raise click.BadParameter(f"{text!r} is not a span such as 500ms, 5s, 15m, 1h or 2d.")
    return span


def parse_span(text: str) -> timedelta | None:
    """Read a whole number and its unit; None if it is none, `OverflowError` if it is ages."""
    match = re.fullmatch(r"(\d+)(ms|[smhd])", text, re.ASCII)
    return None if match is None else timedelta(**{_UNITS[match[2]]: int(match[1])})


def read_time(ctx: click.Context, param: click.Parameter, text: str | None) -> datetime | None:
    """For a flag that takes a time. One without a zone is local time."""
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time such as 2026-05-01T12:00:00Z; without a zone it is local."
        ) from None


def pairs(texts: Iterable[str], flag: str) -> dict[str, str]:
    """Read `KEY=VALUE` pairs; the last of a key wins."""
    return dict(ordered_pairs(texts, flag))


def ordered_pairs(texts: Iterable[str], flag: str) -> list[tuple[str, str]]:
    """Read `KEY=VALUE` pairs, of which a key may have several."""
    parsed = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{flag} takes KEY=VALUE, not {text!r}.")
        parsed.append((key, value))
    return parsed


def unescape(text: str) -> str:
    r"""Read `\n`, `\t` and their kin, as in the format of a record."""
    return re.sub(r"\\[ntr0\\]", lambda match: _ESCAPES[match[0]], text)
