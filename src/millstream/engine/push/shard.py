"""Durable subscriptions of one partition of the deliveries topic, while this node leads it.

Owns what is written about them: specifications, cursors, and intents of dead letters.

Invariant: a subscription is not opened (`held`) until every dead letter of its records whose write
a crash cut short is written, so no member is sent a record that is also a dead letter.
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

_log = logging.getLogger(__name__)

DELIVERIES_SETTINGS = {
    "cleanup_policy": "compact",
    "segment_bytes": str(16 * 2**20),
    # Every fold starts at the start of this log: tombstones need not be kept long.
    "delete_retention_ms": "60000",
}
LOADING_WAIT_MS = 5  # Between two checks of a shard that is loading.
_SET = b"\x01"  # Any value but null.


class DeliveryShard(Shard):
    def __init__(self, replica: Replica, context: WriterContext) -> None:
        self.stored = DeliveriesState()
        self.is_open = False
        self.held: frozenset[str] = frozenset()  # Names with intents that a crash cut short.
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
        """Commit a new subscription with its start cursors."""
        entries = [Entry(encode_key(SubscriptionKey(name)), encode_value(value))]
        entries += [cursor_entry(name, at, cursor) for at, cursor in cursors.items()]
        # Marks left by a deleted subscription of the same name whose last dead letters were
        # still being written.
        entries += self._unmarks(name)
        await self.ledger.propose(entries)

    async def delete(self, name: str) -> None:
        """Commit the deletion of a subscription, its cursors and marks."""
        entries = [Entry(encode_key(SubscriptionKey(name)), None)]
        entries += [cursor_entry(name, at, None) for at in self.stored.cursors(name)]
        entries += self._unmarks(name)
        await self.ledger.propose(entries)

    def _unmarks(self, name: str) -> list[Entry]:
        marks = self.stored.settled(name)
        return [unmark(name, at, offset) for at, offsets in marks.items() for offset in offsets]

    def write(self, entries: Sequence[Entry]) -> None:
        """Append without waiting for the commit: what a crash loses is delivered again."""
        self.ledger.write(entries)

    async def wait_committed(self, name: str) -> None:
        """Wait until everything written so far is committed and in `stored`."""
        offset = self.ledger.written_offset
        await self._replica.committed(offset, None)
        if self.is_gone or self.ledger.applied_offset < offset:
            raise self._moved(name)  # This node no longer folds the log.

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
        self.held = frozenset(decode_intent(data).name for ids in unfinished for data in ids)
        if len(self.stored):
            _log.info(
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
    """The shard of a name, once it is open; the first call creates the topic."""
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
