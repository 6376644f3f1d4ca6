"""Reads the option subscribeSubjects: wildcards over subjects become topics and a filter.

Pure. Owns both notations, NATS's (`orders.*.created`, `orders.>`) and MQTT's (`mills/+/speed`,
`mills/#`), as the broker's other protocols have them. The broker itself filters by subject, through
a view, so records of other subjects are not sent.
"""

import re
from dataclasses import dataclass

from millstream.spark.errors import InvalidOption

OPTION = "subscribeSubjects"


@dataclass(frozen=True, slots=True)
class _Style:
    separator: str
    one_token: str
    any_tokens: str  # Only last.
    any_tokens_expression: str


_DOTS = _Style(".", "*", ">", r"\..*")
_SLASHES = _Style("/", "+", "#", r"(?:/.*)?")  # MQTT's stands for no token as well.


@dataclass(frozen=True, slots=True)
class Subjects:
    """The patterns of a query; each is all of a subject."""

    patterns: tuple[str, ...]

    def may_be_in(self, topic: str) -> bool:
        """Whether a topic of that name could hold a record whose subject matches.

        A subject is kept in the topic of its first token, and a record without a subject has the
        name of its topic.
        """
        firsts = {text.split(_style(text).separator)[0] for text in self.patterns}
        wild = {"*", ">", "+", "#"}
        return bool(firsts & (wild | {topic, topic.partition(".")[0]}))

    @property
    def where(self) -> str:
        """The broker's filter."""
        return " or ".join(_where(text) for text in self.patterns)


def subjects(text: str) -> Subjects:
    """Read a list with commas; raises `InvalidOption`."""
    patterns = tuple(
        dict.fromkeys(pattern for pattern in (part.strip() for part in text.split(",")) if pattern)
    )
    if not patterns:
        raise InvalidOption(f"{OPTION} is {text!r}, expected subjects: orders.*.created,bills.>")
    for pattern in patterns:
        _check(pattern)
    return Subjects(patterns)


def _style(text: str) -> _Style:
    return _SLASHES if "/" in text or text in ("+", "#") else _DOTS


def _check(text: str) -> None:
    style = _style(text)
    *before, _ = tokens = text.split(style.separator)
    if style.any_tokens in before:
        raise InvalidOption(f"{OPTION} has {text!r}: {style.any_tokens} must come last")
    if style is _DOTS and "" in tokens:
        raise InvalidOption(f"{OPTION} has {text!r}, which has an empty token")
    for token in tokens:
        if style is _SLASHES and len(token) > 1 and ("+" in token or "#" in token):
            raise InvalidOption(f"{OPTION} has {text!r}: a wildcard is all between two slashes")


def _where(text: str) -> str:
    style = _style(text)
    tokens = text.split(style.separator)
    has_any_tokens = tokens[-1] == style.any_tokens
    if has_any_tokens:
        tokens.pop()
    if not has_any_tokens and style.one_token not in tokens:
        return f"subject == {_quoted(text)}"
    separator = re.escape(style.separator)
    any_one = f"[^{separator}]*"
    expression = separator.join(any_one if t == style.one_token else re.escape(t) for t in tokens)
    if has_any_tokens:
        expression = expression + style.any_tokens_expression if tokens else ".*"
    return "subject ~ " + _quoted(rf"(?s)\A{expression}\z")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
