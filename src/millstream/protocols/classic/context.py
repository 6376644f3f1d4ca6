"""The services that a classic gateway calls, and the names of all subscribers.

A subscriber's name is taken as long as its connection lives, whichever connection asks.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.config import Config
from millstream.engine.access.users import Users
from millstream.engine.publish.publisher import Publisher
from millstream.engine.push import Deliveries
from millstream.engine.topics import Topics
from millstream.ports import Clock


class Name(NamedTuple):
    """A subscriber: its subscription and its name."""

    subscription: str
    subscriber: str


class Roster:
    """All subscribers, over all connections."""

    def __init__(self) -> None:
        self._topics: dict[Name, Sequence[str]] = {}
        self._joined: dict[str, Counter[str]] = {}  # Subscriptions, by topic.

    def __contains__(self, name: Name) -> bool:
        return name in self._topics

    def reached(self, topic: str) -> int:
        """How many subscriptions of the topic have a subscriber."""
        return len(self._joined.get(topic, ()))

    def enter(self, name: Name, topics: Sequence[str]) -> None:
        self._topics[name] = topics
        for topic in topics:
            self._joined.setdefault(topic, Counter())[name.subscription] += 1

    def leave(self, name: Name) -> None:
        for topic in self._topics.pop(name, ()):
            joined = self._joined[topic]
            joined[name.subscription] -= 1
            if not joined[name.subscription]:
                del joined[name.subscription]
            if not joined:
                del self._joined[topic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Shared by all connections of the classic listener."""

    config: Config
    clock: Clock
    topics: Topics
    publisher: Publisher
    users: Users
    deliveries: Deliveries
    roster: Roster = field(default_factory=Roster)
