"""The names under which topics are read through a filter.

`orders where key == 'mill-7'` is such a name: a topic's name, the mark, a filter. The broker
resolves it for each read and keeps nothing, so reading creates no topic. No topic's own name has a
blank in it, so there is no doubt which is which.

Older clients created a view for each topic and filter, with the name that `view_name` gives. These
automatic views can still be recognised, and go with their topic. Pure.
"""

import hashlib
from typing import NamedTuple

PREFIX = "view-of-"
DIGEST_LENGTH = 12
NAME_LENGTH_MAX = 249  # Of a topic.
FILTER_MARK = " where "
FILTER_LENGTH_MAX = 4_096  # As `engine.filter_text` takes it.
FILTERED_LENGTH_MAX = NAME_LENGTH_MAX + len(FILTER_MARK) + FILTER_LENGTH_MAX


class FilteredName(NamedTuple):
    topic: str
    where: str


def filtered_name(topic: str, where: str) -> str:
    """The name under which `topic` is read through the filter `where`."""
    return f"{topic}{FILTER_MARK}{where.strip()}"


def split_filtered(name: str) -> FilteredName | None:
    """The topic and the filter; None for the name of a topic."""
    topic, mark, where = name.partition(FILTER_MARK)
    if not mark or len(name) > FILTERED_LENGTH_MAX:
        return None
    return FilteredName(topic, where)


def is_automatic(name: str, *, of: str, where: str) -> bool:
    """Whether a view has the name that older clients gave to the one for this filter."""
    return name == view_name(of, where)


def view_name(topic: str, where: str) -> str:
    digest = hashlib.sha256(f"{topic}\n{where}".encode()).hexdigest()[:DIGEST_LENGTH]
    room = NAME_LENGTH_MAX - len(PREFIX) - 1 - DIGEST_LENGTH
    return f"{PREFIX}{topic[:room]}-{digest}"
