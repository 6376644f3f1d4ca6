"""Subjects and wildcards: which pattern matches which subject, one by one or all at once.

Owns the two spellings, NATS's (`orders.*.created`, `orders.>`) and MQTT's (`sensors/+/temp`,
`sensors/#`), the trie that finds every pattern of a subject, and where a record's subject stands.
Pure. `>` stands for one token or more, `#` for any number, also none; both
only at the end. A wildcard is a whole token: in dot style `a*` is just a name, in slash style,
where MQTT forbids it, it is refused.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from millstream.errors.deliveries import InvalidSubject
from millstream.names import DLQ_SUBJECT_PREFIX, DLQ_TOPIC_SUFFIX, SUBJECT_HEADER

SUBJECT_LENGTH_MAX = 1_024
MATCHES_KEPT_MAX = 4_096  # Subjects whose matches a trie remembers.

T = TypeVar("T")

_Headers = tuple[tuple[str, bytes | None], ...]


class _Wild(NamedTuple):
    """How a style spells its wildcards."""

    separator: str
    any_token: str
    tail: str
    tail_least: int  # How many tokens `tail` stands for at least.


class Style(Enum):
    DOT = _Wild(".", "*", ">", 1)
    SLASH = _Wild("/", "+", "#", 0)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern; a subject without wildcards is a pattern that matches itself.

    Made by `parse`. `tokens` are those before the tail, where a None stands for any one token.
    """

    text: str
    style: Style = Style.DOT
    tokens: tuple[str | None, ...] = field(default=(), compare=False)
    has_tail: bool = field(default=False, compare=False)

    @staticmethod
    def parse(text: str, style: Style = Style.DOT) -> "Pattern":
        """Read a pattern, or raise `InvalidSubject`."""
        wild = style.value
        _check_text(text)
        parts = text.split(wild.separator)
        has_tail = parts[-1] == wild.tail
        if has_tail:
            parts.pop()
        if wild.tail in parts:
            raise InvalidSubject(text, f"{wild.tail!r} must come last")
        if style is Style.DOT and "" in parts:
            raise InvalidSubject(text, "a token is empty")
        if style is Style.SLASH:
            _check_levels(text, parts)
        tokens = tuple(None if part == wild.any_token else part for part in parts)
        return Pattern(text, style, tokens, has_tail)

    @property
    def is_literal(self) -> bool:
        """Whether it matches one subject only, its own text."""
        return not self.has_tail and None not in self.tokens

    def matches(self, subject: str) -> bool:
        if subject == self.text:
            return True  # Its own text matches every pattern, and most have no wildcards.
        wild = self.style.value
        tokens = subject.split(wild.separator)
        least = len(self.tokens) + (wild.tail_least if self.has_tail else 0)
        if len(tokens) < least or (not self.has_tail and len(tokens) > least):
            return False
        return all(
            mine is None or mine == theirs
            for mine, theirs in zip(self.tokens, tokens, strict=False)
        )

    def may_be_in(self, topic: str) -> bool:
        """Whether a topic of that name could hold a record whose subject matches.

        A subject is kept in the topic of its first token; a record without a subject has its
        topic's name; a dead letter has its old subject behind `DLQ.`.
        """
        if not self.tokens:
            return True
        first = self.tokens[0]
        if first is None:
            return True
        is_dead = topic.endswith(DLQ_TOPIC_SUFFIX) and first + "." == DLQ_SUBJECT_PREFIX
        return is_dead or first in (topic, topic.partition(".")[0])


def check_subject(text: str) -> str:
    """Return `text` if something can be published under it in dot style, else `InvalidSubject`."""
    pattern = Pattern.parse(text)
    if not pattern.is_literal:
        raise InvalidSubject(text, "wildcards are for subscriptions only")
    return text


def topic_of(subject: str) -> str:
    """The topic that a subject's records are kept in: its first token."""
    return subject.partition(".")[0]


def subject_of(topic: str, headers: _Headers) -> str:
    """The subject of a record: what its header says, else the name of its topic."""
    for name, value in headers:
        if name == SUBJECT_HEADER and value:
            return value.decode("utf-8", "replace")
    return topic


def is_dead_topic(topic: str) -> bool:
    """Whether the topic holds dead letters, by its name."""
    return topic.endswith(DLQ_TOPIC_SUFFIX) or topic + "." == DLQ_SUBJECT_PREFIX


class SubjectTrie(Generic[T]):
    """Items by pattern; `match` finds all whose pattern matches, each once, oldest token first.

    An item may stand under several patterns. Matches are cached until a pattern is added
    or removed, because subjects repeat.
    """

    def __init__(self) -> None:
        self._roots: dict[Style, _Node[T]] = {style: _Node() for style in Style}
        self._counts: dict[Style, int] = dict.fromkeys(Style, 0)
        self._known: dict[str, tuple[T, ...]] = {}

    def __len__(self) -> int:
        """How many items there are, each counted once for each of its patterns."""
        return sum(self._counts.values())

    def add(self, pattern: Pattern, item: T) -> None:
        node = self._roots[pattern.style]
        for token in pattern.tokens:
            node = node.child(token)
        items = node.tail if pattern.has_tail else node.here
        if item not in items:
            self._counts[pattern.style] += 1
            items[item] = None
            self._known.clear()

    def remove(self, pattern: Pattern, item: T) -> bool:
        """Take an item from under one pattern; say whether it was there."""
        node = self._roots[pattern.style]
        path: list[tuple[_Node[T], str | None]] = []
        for token in pattern.tokens:
            following = node.find(token)
            if following is None:
                return False
            path.append((node, token))
            node = following
        items = node.tail if pattern.has_tail else node.here
        if item not in items:
            return False
        del items[item]
        self._counts[pattern.style] -= 1
        self._known.clear()
        for parent, token in reversed(path):
            if node:
                break
            parent.drop(token)
            node = parent
        return True

    def match(self, subject: str) -> tuple[T, ...]:
        known = self._known.get(subject)
        if known is None:
            if len(self._known) >= MATCHES_KEPT_MAX:
                self._known.clear()
            known = self._known[subject] = self._match(subject)
        return known

    def _match(self, subject: str) -> tuple[T, ...]:
        matches: dict[T, None] = {}
        for style, root in self._roots.items():
            if self._counts[style]:
                wild = style.value
                root.collect(subject.split(wild.separator), wild.tail_least, matches)
        return tuple(matches)


class _Node(Generic[T]):
    """The node of a row of tokens: patterns that end here, or with a tail wildcard here."""

    __slots__ = ("any", "children", "here", "tail")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.any: _Node[T] | None = None
        self.here: dict[T, None] = {}
        self.tail: dict[T, None] = {}

    def __bool__(self) -> bool:
        return bool(self.here or self.tail or self.children) or self.any is not None

    def find(self, token: str | None) -> "_Node[T] | None":
        return self.any if token is None else self.children.get(token)

    def child(self, token: str | None) -> "_Node[T]":
        node = self.find(token)
        if node is None:
            node = _Node()
            if token is None:
                self.any = node
            else:
                self.children[token] = node
        return node

    def drop(self, token: str | None) -> None:
        if token is None:
            self.any = None
        else:
            del self.children[token]

    def collect(self, tokens: list[str], tail_least: int, matches: dict[T, None]) -> None:
        """Add all items that match, token by token: no node is visited twice."""
        nodes = [self]
        for at, token in enumerate(tokens):
            following = []
            for node in nodes:
                if len(tokens) - at >= tail_least:
                    matches.update(node.tail)
                if token in node.children:
                    following.append(node.children[token])
                if node.any is not None:
                    following.append(node.any)
            nodes = following
        for node in nodes:
            matches.update(node.here)
            if tail_least == 0:
                matches.update(node.tail)


def _check_text(text: str) -> None:
    if not 1 <= len(text) <= SUBJECT_LENGTH_MAX:
        raise InvalidSubject(text, f"1 to {SUBJECT_LENGTH_MAX} characters are expected")
    if any(char.isspace() or not char.isprintable() for char in text):
        raise InvalidSubject(text, "it has white space or control characters")


def _check_levels(text: str, levels: list[str]) -> None:
    wild = Style.SLASH.value
    for level in levels:
        if level != wild.any_token and (wild.any_token in level or wild.tail in level):
            raise InvalidSubject(text, f"a wildcard must be a whole level, not in {level!r}")
