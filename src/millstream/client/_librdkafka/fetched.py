"""Records fetched ahead of their reader, bounded by what one fetch brings.

Owns their order and which of them may be handed out: none of a paused partition. Pure; librdkafka's
messages are looked at for their place only.
"""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.client.models import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message as Raw


class Fetched:
    def __init__(self) -> None:
        self._ready: deque[Raw] = deque()
        self._held: dict[TopicPartition, deque[Raw]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._ready

    def add(self, raw: "Raw") -> None:
        """Put a record behind the others of its partition."""
        held = self._held.get(place_of(raw)) if self._held else None
        (self._ready if held is None else held).append(raw)

    def pop(self) -> "Raw | None":
        return self._ready.popleft() if self._ready else None

    def put_back(self, raw: "Raw") -> None:
        """Have a record that was popped before all others again."""
        self._ready.appendleft(raw)

    def pause(self, places: Iterable[TopicPartition]) -> None:
        for at in places:
            self._held.setdefault(at, deque())
        ready: deque[Raw] = deque()
        for raw in self._ready:
            self._held.get(place_of(raw), ready).append(raw)
        self._ready = ready

    def resume(self, places: Iterable[TopicPartition]) -> None:
        for at in places:
            self._ready.extend(self._held.pop(at, ()))

    def drop(self, places: Iterable[TopicPartition]) -> None:
        """Forget the records of these partitions. A pause stays."""
        chosen = set(places)
        self._ready = deque(raw for raw in self._ready if place_of(raw) not in chosen)
        for at in chosen & set(self._held):
            self._held[at].clear()


def place_of(raw: "Raw") -> TopicPartition:
    topic, partition = raw.topic(), raw.partition()
    assert topic is not None
    assert partition is not None
    return TopicPartition(topic, partition)
