"""Cuts lists into pages. A cursor names a place in the list's order, so it survives changes.

Names match as text that they contain, or as a pattern if there is a `*` in it.
"""

import fnmatch
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from millstream.protocols.http.problems import HttpProblem

T = TypeVar("T")

CURSOR_LENGTH_MAX = 2**20  # A place in each of 20,000 partitions.


# Any: a place is whatever orders the list: names, numbers or pairs of them.
def cursor_of(*place: Any) -> str:
    """The opaque text of a place."""
    return urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def place_of(cursor: str, *kinds: type) -> tuple[Any, ...] | None:
    """The place in a cursor, None for an empty one; raise 400 for text that is no cursor."""
    if not cursor:
        return None
    try:
        if len(cursor) > CURSOR_LENGTH_MAX:
            raise ValueError
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        place: tuple[Any, ...] = msgspec.json.decode(text, type=tuple[kinds])  # type: ignore[valid-type]
    except (ValueError, msgspec.MsgspecError):
        raise _no_cursor(cursor) from None
    return place


def _no_cursor(cursor: str) -> HttpProblem:
    return HttpProblem(
        HTTPStatus.BAD_REQUEST,
        "invalid_request",
        f"{cursor[:100]!r} is not a cursor of this list: take the `next` of a page",
        fields=("after",),
    )


def page(
    names: Sequence[T], key: Callable[[T], str], after: str, limit: int
) -> tuple[Sequence[T], str | None]:
    """A page of what is sorted by `key`, and the cursor of the next one."""
    return page_by(names, lambda name: (key(name),), (str,), after, limit)


# Any: names and numbers; `kinds` are their types.
def page_by(
    items: Sequence[T],
    key: Callable[[T], tuple[Any, ...]],
    kinds: tuple[type, ...],
    after: str,
    limit: int,
) -> tuple[Sequence[T], str | None]:
    """The same, of what several values order."""
    place = place_of(after, *kinds)
    start = 0 if place is None else bisect_right(items, place, key=key)
    chosen = items[start : start + limit]
    is_last = start + limit >= len(items)
    return chosen, None if is_last else cursor_of(*key(chosen[-1]))


def sorted_page(
    items: Sequence[T], order: str, after: str, limit: int
) -> tuple[Sequence[T], str | None]:
    """A page of items that have a `name`, by one of their fields; with `-` the largest first.

    A cursor holds the value and the name of the last item that was shown, and the order: an item
    whose value changes meanwhile may be shown twice or not at all, others are shown once.
    """
    field, is_descending = order.removeprefix("-"), order.startswith("-")
    place = place_of(after, str, Any, str)
    if place is not None and place[0] != order:
        raise HttpProblem(
            HTTPStatus.BAD_REQUEST,
            "invalid_request",
            f"after is of a page with sort={place[0][:60]}",
            fields=("after",),
        )

    # Any: names and numbers.
    def key(item: T) -> tuple[Any, str]:
        return getattr(item, field), getattr(item, "name")  # noqa: B009

    ordered = sorted(items, key=key, reverse=is_descending)
    if place is not None:
        last = (place[1], place[2])
        try:
            ordered = [
                item
                for item in ordered
                if (key(item) < last if is_descending else key(item) > last)
            ]
        except TypeError:
            raise _no_cursor(after) from None
    more = len(ordered) > limit
    return ordered[:limit], cursor_of(order, *key(ordered[limit - 1])) if more else None


def name_filter(pattern: str) -> Callable[[str], bool]:
    """Whether a name fits: it contains the text, or matches a pattern with `*`."""
    if not pattern:
        return lambda name: True
    if "*" in pattern:
        matches = re.compile(fnmatch.translate(pattern)).match
        return lambda name: matches(name) is not None
    return lambda name: pattern in name
