"""Finding records: the small language of the search line, and what it matches.

Owns the query. Pure. Plain text is looked for in key, value and headers, whatever its case;
`key:`, `value:` or `header:` in front narrows it, and `/…/` makes it a regular expression.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millstream.client import Message

PARTS = ("key", "value", "header")
HINT = "text, key:text, value:text, header:text, or /regular expression/"


@dataclass(frozen=True, slots=True)
class Query:
    """A search: its pattern, and the part to search; an empty `part` is every part."""

    text: str
    part: str
    pattern: re.Pattern[str]

    def matches(self, record: Message) -> bool:
        return any(self.pattern.search(text) for text in self._texts(record))

    def covers(self, part: str) -> bool:
        """Whether the query searches this part."""
        return self.part in ("", part)

    def _texts(self, record: Message) -> Iterator[str]:
        if self.covers("key"):
            yield _text(record.key)
        if self.covers("value"):
            yield _text(record.value)
        if self.covers("header"):
            for name, value in record.headers:
                yield f"{name}={_text(value)}"


def parse_query(text: str) -> Query:
    """Read what was typed; `ValueError` says what is wrong with it."""
    part, colon, condition = text.partition(":")
    if colon and part in PARTS:
        sought = condition.strip()
    else:
        part, sought = "", text.strip()
    if not sought:
        raise ValueError(f"Type what to look for: {HINT}.")
    is_regex = len(sought) > 2 and sought[0] == sought[-1] == "/"
    try:
        pattern = re.compile(sought[1:-1] if is_regex else re.escape(sought), re.IGNORECASE)
    except re.error as problem:
        raise ValueError(f"The regular expression is not right: {problem}.") from None
    return Query(text, part, pattern)


def find(records: Sequence[Message], query: Query, *, start: int, step: int) -> int | None:
    """The index of the next match from `start` on, upwards or downwards."""
    assert step in (-1, 1)
    stop = len(records) if step > 0 else -1
    indexes = range(max(start, 0) if step > 0 else min(start, len(records) - 1), stop, step)
    return next((index for index in indexes if query.matches(records[index])), None)


# A key or value is bytes here: the explorer reads with no serde.
def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode(errors="backslashreplace")
