"""Errors of filters, and of the views that use them."""

from collections.abc import Sequence

from millstream.errors import RequestError

NEAR_LENGTH = 20


class InvalidFilter(RequestError):
    """A filter that cannot be read. `place` is the index in the text where it goes wrong."""

    def __init__(self, text: str, place: int, reason: str) -> None:
        near = repr(text[place : place + NEAR_LENGTH]) if place < len(text) else "the end"
        super().__init__(f"filter, at character {place + 1} ({near}): {reason}")
        self.place = place


class ReadOnlyView(RequestError):
    """A view shows the records of another topic: write there."""

    def __init__(self, view: str, base: str) -> None:
        super().__init__(f"{view!r} is a view of {base!r} and has no records of its own")


class HasViews(RequestError):
    """The topic stays while views show its records."""

    def __init__(self, base: str, views: Sequence[str]) -> None:
        super().__init__(f"topic {base!r} is shown by {', '.join(views)}: delete these first")
