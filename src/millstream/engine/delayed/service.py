"""Delayed records as users see them while they wait: list, describe, cancel.

Owns the access checks; the records are `delayed.shard`'s. They are delayed by sending them
with a header, see `produce.options`.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from millstream.codec.records import Record
from millstream.control.catalog import Catalog
from millstream.engine.delayed.due_heap import Due
from millstream.engine.delayed.scheduler import DelayedScheduler
from millstream.engine.delayed.shard import DelayedShard
from millstream.engine.gate import Gate, Operation, topic_resource
from millstream.engine.produce.message_ids import Windows
from millstream.errors import CoordinatorUnavailable, StorageError, StorageUnavailable, UnknownTopic
from millstream.errors.delayed import UnknownDelayedRecord
from millstream.internal_topics.delayed import id_text, read_id
from millstream.model import Offset, Session, TopicPartition

LISTED_MAX = 1_000  # In one answer.


class Delayed(NamedTuple):
    """A record that waits."""

    id: str
    target: TopicPartition
    due_ms: int


class Page(NamedTuple):
    delayed: list[Delayed]
    next_after: str | None  # Where the next page begins; None: there is none.


class DelayedRecords:
    def __init__(
        self, gate: Gate, catalog: Catalog, shards: DelayedScheduler, windows: Windows
    ) -> None:
        self._gate = gate
        self._catalog = catalog
        self._shards = shards
        self._windows = windows

    async def list(
        self,
        session: Session,
        topic: str | None = None,
        *,
        after: str | None = None,
        count: int = LISTED_MAX,
        due_before_ms: int | None = None,
    ) -> Page:
        """The delayed records of a topic in order of arrival, past the id `after`.

        Without a topic: those of all topics that the session may see, shard by shard.
        """
        resource = "topics" if topic is None else topic_resource(topic)
        self._gate.admit(session, Operation.DESCRIBE, resource)
        count = min(count, LISTED_MAX)
        listed: list[Delayed] = []
        async for shard, due, name in self._visible(session, topic, after):
            if due_before_ms is not None and due.due_ms >= due_before_ms:
                continue
            if len(listed) == count:
                return Page(listed, listed[-1].id if listed else after)
            listed.append(_delayed(name, shard, due))
        return Page(listed, None)

    async def count_by_due(
        self, session: Session, topic: str | None, edges_ms: Sequence[int]
    ) -> Sequence[int]:
        """How many are due before each of the ascending `edges_ms`, and past the last of them.

        Each is counted once, at the first edge that it is before. Without a topic: of all topics
        that the session may see.
        """
        resource = "topics" if topic is None else topic_resource(topic)
        self._gate.admit(session, Operation.DESCRIBE, resource)
        counts = [0] * (len(edges_ms) + 1)
        async for _, due, _ in self._visible(session, topic, None):
            counts[bisect_right(edges_ms, due.due_ms)] += 1
        return counts

    async def describe(self, session: Session, name: str) -> tuple[Delayed, Record]:
        """A delayed record by its id, and the record that will be delivered."""
        topic = _topic(name)
        self._gate.admit(session, Operation.READ, topic_resource(topic))
        shard, due = await self._find(topic, name)
        try:
            header, payload = shard.describe(due)
        except StorageError as problem:
            raise StorageUnavailable(str(problem)) from problem
        record = Record(-1, header.due_ms, payload.key, payload.value, payload.headers)
        return _delayed(topic, shard, due), record

    async def cancel(self, session: Session, name: str) -> Delayed:
        """Cancel a delayed record; raises `UnknownDelayedRecord` if that is too late.

        Its message id, if it had one, may be used again.
        """
        topic = _topic(name)
        self._gate.admit(session, Operation.DELETE_RECORDS, topic_resource(topic))
        shard, due = await self._find(topic, name)
        if shard.is_undecided(due):
            await shard.until_decided(due)
            shard, due = await self._find(topic, name)  # It may be delivered by now.
        message_id = shard.message_id(due.number)
        shard.cancel(due)
        self._windows.forget(shard.targets[due.place].topic_id, message_id)
        await shard.all_committed()
        self._gate.note("delayed.cancel", session, topic_resource(topic), {"record": name})
        return _delayed(topic, shard, due)

    # -- parts -----------------------------------------------------------------------------------

    async def _visible(
        self, session: Session, topic: str | None, after: str | None
    ) -> AsyncIterator[tuple[DelayedShard, Due, str]]:
        """The records that a listing may show, past the id `after`, with their topics."""
        for shard, number in await self._places(topic, after):
            for chunk in shard.due_heap.after(number):
                for due in chunk:
                    name = self._name(shard, due)
                    if name is not None and self._shows(session, topic, name):
                        yield shard, due, name
                await asyncio.sleep(0)

    async def _find(self, topic: str, name: str) -> tuple[DelayedShard, Due]:
        shard = await self._shard(topic)
        due = None if shard is None else shard.due_heap.find(_number(name, topic))
        if shard is None or due is None or self._name(shard, due) != topic:
            raise UnknownDelayedRecord(name)
        return shard, due

    async def _shard(self, topic: str) -> DelayedShard | None:
        """The shard of the topic's delayed records; None if `__deferred` does not exist."""
        self._catalog.find(topic)
        await self._shards.known(topic)
        try:
            return self._shards.find_now(topic)
        except CoordinatorUnavailable:
            return None

    async def _places(
        self, topic: str | None, after: str | None
    ) -> Sequence[tuple[DelayedShard, Offset]]:
        """The shards to list, and the number to start after in each."""
        first = None if after is None else topic or _topic(after)
        number: Offset = -1 if after is None or first is None else _number(after, first)
        if topic is not None:
            shard = await self._shard(topic)
            return [] if shard is None else [(shard, number)]
        shards = await self._shards.all_known()
        if first is None:
            return [(shard, -1) for shard in shards]
        begun = await self._shard(first)
        at = shards.index(begun) if begun in shards else 0
        return [(shard, number if shard is begun else -1) for shard in shards[at:]]

    def _name(self, shard: DelayedShard, due: Due) -> str | None:
        """The topic of a delayed record; None if it is deleted."""
        try:
            return self._catalog.find_id(shard.targets[due.place].topic_id).name
        except UnknownTopic:
            return None

    def _shows(self, session: Session, topic: str | None, name: str) -> bool:
        return self._gate.sees(session, topic_resource(name)) if topic is None else topic == name


def _delayed(topic: str, shard: DelayedShard, due: Due) -> Delayed:
    target = TopicPartition(topic, shard.targets[due.place].partition)
    return Delayed(id_text(topic, due.number), target, due.due_ms)


def _topic(name: str) -> str:
    parsed = read_id(name)
    if parsed is None:
        raise UnknownDelayedRecord(name)
    return parsed[0]


def _number(name: str, topic: str) -> Offset:
    parsed = read_id(name)
    if parsed is None or parsed[0] != topic:
        raise UnknownDelayedRecord(name)
    return parsed[1]
