"""Delayed records as users see them while they wait: list, look at, cancel.

Owns nothing but the questions; the records are `deferred_shard`'s. They are delayed by sending them
with a header, see `queue_headers`.
"""

import asyncio
from typing import NamedTuple

from millstream.codec.records import Record
from millstream.control.catalog import Catalog
from millstream.control.deferred import id_text, read_id
from millstream.control.deferred_pending import Due
from millstream.engine.deduplication import Windows
from millstream.engine.deferred_shard import DeferredShard
from millstream.engine.deferred_shards import DeferredShards
from millstream.engine.gate import Gate, Operation, topic_resource
from millstream.errors import CoordinatorUnavailable, StorageError, StorageUnavailable
from millstream.errors.deferred import UnknownDeferred
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


class Deferred:
    def __init__(
        self, gate: Gate, catalog: Catalog, shards: DeferredShards, windows: Windows
    ) -> None:
        self._gate = gate
        self._catalog = catalog
        self._shards = shards
        self._windows = windows

    async def list(
        self, session: Session, topic: str, *, after: str | None = None, count: int = LISTED_MAX
    ) -> Page:
        """The delayed records of a topic in the order of their arrival, behind the one `after`."""
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(topic))
        shard = await self._shard(topic)
        if shard is None:
            return Page([], None)
        count = min(count, LISTED_MAX)
        number: Offset = -1 if after is None else _number(after, topic)
        found: list[Delayed] = []
        for some in shard.pending.after(number):
            for due in some:
                if not self._is_of(topic, shard, due):
                    continue
                if len(found) == count:
                    return Page(found, found[-1].id if found else after)
                found.append(_delayed(topic, shard, due))
            await asyncio.sleep(0)
        return Page(found, None)

    async def describe(self, session: Session, name: str) -> tuple[Delayed, Record]:
        """A delayed record by its id, and what will be delivered."""
        topic = _topic(name)
        self._gate.admit(session, Operation.READ, topic_resource(topic))
        shard, due = await self._find(topic, name)
        try:
            slip, payload = shard.describe(due)
        except StorageError as problem:
            raise StorageUnavailable(str(problem)) from problem
        record = Record(-1, slip.due_ms, payload.key, payload.value, payload.headers)
        return _delayed(topic, shard, due), record

    async def cancel(self, session: Session, name: str) -> Delayed:
        """Have a delayed record never delivered; raises `UnknownDeferred` if that is too late.

        Its message id, if it had one, may be used again.
        """
        topic = _topic(name)
        self._gate.admit(session, Operation.DELETE_RECORDS, topic_resource(topic))
        shard, due = await self._find(topic, name)
        message_id = shard.message_id(due.number)
        shard.cancel(due.number)
        self._windows.forget(shard.targets[due.place].topic_id, message_id)
        await shard.settle()
        return _delayed(topic, shard, due)

    # -- parts -----------------------------------------------------------------------------------

    async def _find(self, topic: str, name: str) -> tuple[DeferredShard, Due]:
        shard = await self._shard(topic)
        due = None if shard is None else shard.pending.find(_number(name, topic))
        if shard is None or due is None or not self._is_of(topic, shard, due):
            raise UnknownDeferred(name)
        return shard, due

    async def _shard(self, topic: str) -> DeferredShard | None:
        """Where the topic's delayed records are; None if there never were any, anywhere."""
        self._catalog.find(topic)
        await self._shards.known(topic)
        try:
            return self._shards.find_now(topic)
        except CoordinatorUnavailable:
            return None

    def _is_of(self, topic: str, shard: DeferredShard, due: Due) -> bool:
        return shard.targets[due.place].topic_id == self._catalog.find(topic).topic_id


def _delayed(topic: str, shard: DeferredShard, due: Due) -> Delayed:
    target = TopicPartition(topic, shard.targets[due.place].partition)
    return Delayed(id_text(topic, due.number), target, due.due_ms)


def _topic(name: str) -> str:
    found = read_id(name)
    if found is None:
        raise UnknownDeferred(name)
    return found[0]


def _number(name: str, topic: str) -> Offset:
    found = read_id(name)
    if found is None or found[0] != topic:
        raise UnknownDeferred(name)
    return found[1]
