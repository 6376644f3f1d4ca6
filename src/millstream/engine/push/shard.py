"""Durable subscriptions of one partition of the deliveries topic, as long as this node leads it.

Owns what is written about them: specifications, cursors, and what is on its way to the dead
letters. The one thing to know: a subscription is held until every hand-over of its records that a
crash cut short has been carried to its end, so nobody finds a record that is half a dead letter.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence

from millstream.codec.records import Record
from millstream.engine.ledgers.exactly_once import ExactlyOnceWriter, WriterContext
from millstream.engine.ledgers.ledger import Entry
from millstream.engine.ledgers.shards import Shard, Shards
from millstream.errors import CoordinatorLoading
from millstream.internal_topics.deliveries import (
    CursorKey,
    CursorValue,
    DeliveriesState,
    SettledKey,
    SubscriptionKey,
    SubscriptionValue,
    decode_intent,
    encode_key,
    encode_value,
)
from millstream.internal_topics.outbound_sequences import decode_key as sequence_key
from millstream.internal_topics.outbound_sequences import decode_sequence
from millstream.model import LogId, Offset
from millstream.replication.replica import Replica

log = logging.getLogger(__name__)

DELIVERIES_SETTINGS = {
    "cleanup_policy": "compact",
    "segment_bytes": str(16 * 2**20),
    # Whoever folds this log begins at its start: a tombstone need not outlive what it is for.
    "delete_retention_ms": "60000",
}
LOADING_WAIT_MS = 5  # Between looks at a shard that is loading.
_SET = b"\x01"  # Any value but null.


class DeliveryShard(Shard):
    def __init__(self, replica: Replica, context: WriterContext) -> None:
        self.stored = DeliveriesState()
        self.is_open = False
        self.held: frozenset[str] = frozenset()  # Names with hand-overs that a crash cut short.
        super().__init__(replica, context.clock)
        self.writer = ExactlyOnceWriter(self.ledger, context, check_id=decode_intent)

    def check_open(self, name: str) -> None:
        if self.is_gone:
            raise self._moved(name)
        if not self.is_open or name in self.held:
            raise CoordinatorLoading(name)

    async def define(
        self, name: str, value: SubscriptionValue, cursors: Mapping[LogId, CursorValue]
    ) -> None:
        """Have a subscription agreed on, with where it starts."""
        entries = [Entry(encode_key(SubscriptionKey(name)), encode_value(value))]
        entries += [cursor_entry(name, at, cursor) for at, cursor in cursors.items()]
        # Left by a namesake that was deleted while its last dead letters were being written.
        entries += self._unmarks(name)
        await self.ledger.propose(entries)

    async def delete(self, name: str) -> None:
        """Have it agreed on that nothing is known of a subscription any more."""
        entries = [Entry(encode_key(SubscriptionKey(name)), None)]
        entries += [cursor_entry(name, at, None) for at in self.stored.cursors(name)]
        entries += self._unmarks(name)
        await self.ledger.propose(entries)

    def _unmarks(self, name: str) -> list[Entry]:
        marks = self.stored.settled(name)
        return [unmark(name, at, offset) for at, offsets in marks.items() for offset in offsets]

    def write(self, entries: Sequence[Entry]) -> None:
        """Write without waiting: what is lost with a crash is delivered again."""
        self.ledger.write(entries)

    async def wait_committed(self, name: str) -> None:
        """Wait until all that was written so far is committed and in `stored`."""
        offset = self.ledger.written_offset
        await self._replica.committed(offset, None)
        if self.is_gone or self.ledger.applied_offset < offset:
            raise self._moved(name)  # Nobody folds here any more.

    # -- loading and forgetting ------------------------------------------------------------------

    def _apply(self, record: Record) -> None:
        if not self.writer.apply(record):
            self.stored.apply(record.key, record.value)

    def _check(self, entry: Entry) -> None:
        if sequence_key(entry.key) is None:
            DeliveriesState().apply(entry.key, entry.value)
        elif entry.value is not None:
            for intent in decode_sequence(entry.value).ids:
                decode_intent(intent)

    def _restore(self) -> Iterator[None]:
        yield from ()

    def _loaded(self) -> None:
        self.is_open = True
        unfinished = self.writer.unfinished.values()
        self.held = frozenset(decode_intent(one).name for ids in unfinished for one in ids)
        if len(self.stored):
            log.info(
                "loaded subscriptions=%d unfinished=%d log=%s skipped_records=%d",
                len(self.stored),
                len(self.writer.unfinished),
                self._replica.id,
                self.skipped_count,
            )

    def _folded(self) -> None:
        return

    def _close(self) -> None:
        self.is_open = False


def mark(key: SettledKey) -> Entry:
    return Entry(encode_key(key), _SET)


def unmark(name: str, at: LogId, offset: Offset) -> Entry:
    return Entry(encode_key(SettledKey(name, at.topic_id, at.partition, offset)), None)


async def find_open(shards: Shards[DeliveryShard], name: str) -> DeliveryShard:
    """The shard of a name, once it is open; whoever asks first creates the topic."""
    while True:
        try:
            shard = await shards.find(name)
            shard.check_open(name)
        except CoordinatorLoading:
            await asyncio.sleep(LOADING_WAIT_MS / 1000)
        else:
            return shard


def cursor_entry(name: str, at: LogId, value: CursorValue | None) -> Entry:
    key = encode_key(CursorKey(name, at.topic_id, at.partition))
    return Entry(key, None if value is None else encode_value(value))
