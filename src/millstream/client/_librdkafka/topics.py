"""The topics that a consumer reads, by name, wildcard pattern or regular expression.

Owns the list, finds the topics that it matches, and where to begin. Names must exist; patterns may
match nothing yet.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from millstream.client.admin import Admin
from millstream.client.errors import Refused, no_topic
from millstream.client.models import StartPoint, TopicPartition, milliseconds
from millstream.client.patterns import is_regex, subscription
from millstream.view_names import split_filtered


@dataclass(frozen=True, slots=True)
class Wanted:
    texts: tuple[str, ...]
    subscriptions: list[str]

    @classmethod
    def parse(cls, topics: str | Iterable[str]) -> "Wanted":
        texts = (topics,) if isinstance(topics, str) else tuple(topics)
        if not texts or not all(texts):
            raise Refused("a consumer reads at least one topic, and every topic has a name")
        subscribed = cls(texts, [subscription(text) for text in texts])
        for text in subscribed.subscriptions:
            if is_regex(text):
                try:
                    re.compile(text)
                except re.error as problem:
                    raise Refused(f"regular expression {text!r}: {problem}") from None
        return subscribed

    def find(self, admin: Admin, *, timeout_s: float | None = None) -> list[TopicPartition]:
        """All partitions of all topics that this stands for; names must be there.

        With `timeout_s` it is a look in passing, which names that are gone do not spoil.
        """
        topics = admin.list_topics(with_internal=True, timeout_s=timeout_s)
        counts = {topic.name: topic.partition_count for topic in topics}
        names = {text for text in self.subscriptions if not is_regex(text)}
        for name in names:
            filtered = split_filtered(name)
            if filtered is not None and filtered.topic in counts:
                counts[name] = counts[filtered.topic]  # No list of topics has it.
        if timeout_s is None and names - set(counts):
            raise no_topic(min(names - set(counts)))
        regexes = [re.compile(text) for text in self.subscriptions if is_regex(text)]
        chosen = [name for name in counts if name in names or any(r.search(name) for r in regexes)]
        return [TopicPartition(name, at) for name in sorted(chosen) for at in range(counts[name])]

    def __str__(self) -> str:
        return ", ".join(self.texts)


def start_point(start: StartPoint | None, former: StartPoint | None) -> StartPoint:
    """The place to begin, by `start=` or by its former name `from_=`."""
    if start is not None and former is not None:
        raise Refused("start= and from_= are the same: give start= only")
    if start is None and former is None:
        return "earliest"
    return start if start is not None else former  # type: ignore[return-value]


def check_start(start: StartPoint) -> None:
    if isinstance(start, str) and start not in ("earliest", "latest"):
        raise Refused(f"start {start!r} is not known: earliest, latest, a datetime or an offset")
    if isinstance(start, int) and start < 0:
        raise Refused(f"the offset {start} is negative")
    if not isinstance(start, str | int) and milliseconds(start) < 0:
        raise Refused(f"the time {start} is before 1970")
