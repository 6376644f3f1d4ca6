"""Queues messages whose topic does not exist yet, in order, while the topic is created.

Owns one queue for each such topic, and the one task that creates topics.

Invariant: as long as a topic has a queue here, every message for it goes through the queue;
otherwise later ones would overtake.
"""

import asyncio
from collections import deque
from typing import Protocol

from millstream.config import Config
from millstream.engine.topics import Topics
from millstream.errors import Overloaded, RequestError, TopicExists
from millstream.model import Session


class Waiting(Protocol):
    """Messages of one caller for one topic."""

    @property
    def session(self) -> Session: ...

    @property
    def count(self) -> int: ...

    def go_on(self) -> None:
        """Called once the topic exists, or existed."""

    def refuse(self, problem: RequestError) -> None: ...


class MissingTopics:
    def __init__(self, topics: Topics, *, config: Config) -> None:
        self._topics = topics
        self._config = config
        self._queues: dict[str, deque[Waiting]] = {}
        self._count = 0
        self._uncreated: asyncio.Queue[str] = asyncio.Queue()  # As many as there are queues.

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues

    def wait(self, topic: str, messages: Waiting) -> None:
        """Keep messages until the topic is there; refuse those that are too many."""
        limit = self._config.limits.publish_waiting_max
        if self._count + messages.count > limit:
            messages.refuse(Overloaded(f"{limit} messages wait for their topics already"))
            return
        if topic not in self._queues:
            self._queues[topic] = deque()
            self._uncreated.put_nowait(topic)
        self._count += messages.count
        self._queues[topic].append(messages)

    async def run(self) -> None:
        """Create the missing topics, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._create(await self._uncreated.get()))

    async def _create(self, name: str) -> None:
        config, problem = self._config, None
        try:
            await self._topics.create(
                self._queues[name][0].session,
                name,
                partitions=config.default_partitions,
                replicas=None,
            )
        except TopicExists:
            pass
        except RequestError as refusal:
            problem = refusal
        for messages in self._queues.pop(name):
            self._count -= messages.count
            if problem is None:
                messages.go_on()
            else:
                messages.refuse(problem)
