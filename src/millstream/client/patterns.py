"""Wildcards over topic names, in the two ways people write them.

A name is a row of levels, parted by `.` or `/`, which mean the same: Kafka's topic names have no
`/`, so `sensors/+/temp` finds the topic `sensors.kitchen.temp`. A wildcard stands for whole levels:

| wildcard | stands for                                             |
|----------|--------------------------------------------------------|
| `+`      | one level, which may be empty (as in MQTT)             |
| `*`      | one level, not empty (as in NATS)                      |
| `#`      | at the end: any further levels, or none (as in MQTT)   |
| `>`      | at the end: further levels, at least a character       |

A wildcard in front does not find the cluster's own topics, whose names begin with `__`. Pure.
"""

import re
from dataclasses import dataclass, field

from millstream.client.errors import Refused
from millstream.view_names import split_filtered

WILDCARDS = "+*#>"
_SEPARATOR = "[./]"
_LEVEL = re.compile(r"[a-zA-Z0-9_-]*", re.ASCII)
# Simple enough for every engine that gets to see them: POSIX, RE2 and Python's. The ones for the
# first level leave out `__`, without the lookahead that POSIX and RE2 do not have.
_FIRST = {
    "+": "(_?[^_./][^./]*|_)?",
    "*": "(_?[^_./][^./]*|_)",
    "#": "(_?[^_].*|_)?",
    ">": "(_?[^_].*|_)",
}
_LATER = {
    "+": f"{_SEPARATOR}[^./]*",
    "*": f"{_SEPARATOR}[^./]+",
    "#": f"({_SEPARATOR}.*)?",
    ">": f"{_SEPARATOR}.+",
}


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that was understood. `regex` is the same as a regular expression, anchored."""

    text: str
    regex: str = field(init=False)
    _compiled: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regex", _regex(self.text))
        object.__setattr__(self, "_compiled", re.compile(self.regex, re.ASCII))

    def matches(self, name: str) -> bool:
        return self._compiled.fullmatch(name) is not None


def is_pattern(text: str) -> bool:
    """Whether it has a wildcard. No topic name has one, so there is no doubt."""
    return any(wildcard in text for wildcard in WILDCARDS)


def is_regex(text: str) -> bool:
    """Whether it is a regular expression, which begins with `^` as in all Kafka clients."""
    return text.startswith("^")


def subscription(text: str) -> str:
    """librdkafka's subscription: a name as it is, a pattern as a regular expression."""
    if is_regex(text) or not is_pattern(text) or split_filtered(text) is not None:
        return text
    return Pattern(text).regex


def _regex(text: str) -> str:
    levels = re.split(_SEPARATOR, text)
    pieces = []
    for at, level in enumerate(levels):
        is_wildcard = level != "" and level in WILDCARDS
        if not is_wildcard:
            _check_literal(text, level)
        if is_wildcard and level in "#>" and at < len(levels) - 1:
            raise Refused(
                f"pattern {text!r}: {level} stands for all further levels, so nothing may follow"
            )
        if is_wildcard:
            pieces.append((_LATER if at else _FIRST)[level])
        else:
            pieces.append((_SEPARATOR if at else "") + level)
    return f"^{''.join(pieces)}$"


def _check_literal(text: str, level: str) -> None:
    if is_pattern(level):
        raise Refused(
            f"pattern {text!r}: a wildcard stands for a whole level, not for a part of {level!r}. "
            "For parts, use a regular expression, which begins with ^"
        )
    if _LEVEL.fullmatch(level) is None:
        raise Refused(f"pattern {text!r}: {level!r} has characters that no topic name has")
