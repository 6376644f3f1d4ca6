"""Writes records to dead-letter topics, and back from them, each exactly once.

Owns the choice of the log that a record goes to, and the retries; the `ExactlyOnceWriter` of a
shard guarantees that the record arrives once.

Invariant: an intent holds all that is needed to build the same record again, so a write that a
crash cut short is finished before any member is sent the record.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from millstream.codec.batch import read_header, verify_batch
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_range
from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.engine.dead_letters.records import dead_letter, lost_letter, raw_record, revived
from millstream.engine.ledgers.shards import REPLICAS, Shards
from millstream.engine.produce.unpacking import Unpacking
from millstream.engine.push.cursor import InFlight
from millstream.engine.push.dispatcher import UNREADABLE
from millstream.engine.push.shard import DeliveryShard, find_open, mark, unmark
from millstream.engine.push.subscription import Subscription
from millstream.engine.runtime.backoff import Backoff
from millstream.engine.runtime.chunked import chunked
from millstream.engine.topic_defaults import TopicDefaults
from millstream.engine.topics import Topics
from millstream.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    NotLeader,
    RequestError,
    StorageError,
    TopicExists,
    UnknownTopic,
)
from millstream.internal_topics.deliveries import DeadLetterIntent, decode_intent, encode_intent
from millstream.model import SYSTEM_SESSION, LogId, Offset
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

_log = logging.getLogger(__name__)

LETTER_BATCH_RECORDS_MAX = 100
LETTER_BATCH_BYTES_MAX = 2**20  # A single larger record makes a batch of its own.
LETTER_BYTES = 1_000  # Estimated size of a dead letter without its record and error.


class FailedRecord(NamedTuple):
    """A record that becomes a dead letter, and the intent that says so."""

    in_flight: InFlight
    intent: DeadLetterIntent


class DeadLetterWriter:
    def __init__(
        self,
        catalog: Catalog,
        hub: Hub,
        topics: Topics,
        shards: Shards[DeliveryShard],
        unpacking: Unpacking,
        *,
        config: Config,
        defaults: TopicDefaults,
        clock: Clock,
    ) -> None:
        """`topics` creates dead-letter topics on behalf of the broker: its gate must admit it."""
        self._catalog = catalog
        self._hub = hub
        self._topics = topics
        self._shards = shards
        self._unpacking = unpacking
        self._config = config
        self._defaults = defaults
        self._clock = clock

    def prepare(
        self, subscription: Subscription, failed: Sequence[InFlight]
    ) -> list[list[FailedRecord]]:
        """Return the intents for records of one partition, in batches. The intents are built now
        because the topic may be deleted before a batch is written."""
        failed_records = [
            FailedRecord(in_flight, self._intent_of(subscription, in_flight))
            for in_flight in failed
        ]
        topic = _dead_topic(subscription, failed_records[0].intent)
        return list(
            chunked(
                failed_records,
                lambda failed: failed.in_flight.size + LETTER_BYTES + 4 * len(failed.intent.error),
                count_max=LETTER_BATCH_RECORDS_MAX,
                bytes_max=self.bytes_max(topic),
            )
        )

    async def write(
        self, subscription: Subscription, batches: Sequence[Sequence[FailedRecord]]
    ) -> None:
        """Write dead letters of one partition and retry until they are written; until then the
        records are not settled."""
        for failed_records in batches:
            topic = _dead_topic(subscription, failed_records[0].intent)
            backoff = Backoff()
            while not await self._is_written(subscription, topic, failed_records):
                if subscription.shard is not None and subscription.shard.is_gone:
                    return  # The next leader of the shard starts from the stored cursor.
                await backoff.wait()
            useless = [
                intent
                for in_flight, intent in failed_records
                if not subscription.dead_letter_written(in_flight)
            ]
            if useless and subscription.shard is not None:
                self._unmark(subscription.shard, useless)

    async def finish(self, shard: DeliveryShard) -> None:
        """Finish the writes that a crash cut short, and release the names that they held."""
        unfinished = {
            target: [decode_intent(data) for data in ids]
            for target, ids in shard.writer.unfinished.items()
        }

        async def finish_one(target: LogId, intents: Sequence[DeadLetterIntent]) -> None:
            backoff = Backoff()
            while not (shard.is_gone or await self._is_finished(shard, target, intents)):
                await backoff.wait()
            del unfinished[target]
            shard.held = frozenset(
                intent.name for intents in unfinished.values() for intent in intents
            )

        async with asyncio.TaskGroup() as group:
            for target, intents in list(unfinished.items()):
                group.create_task(finish_one(target, intents))

    async def append_once(
        self,
        shard: DeliveryShard,
        target: LogId,
        intents: Sequence[DeadLetterIntent],
        letters: Sequence[Record],
    ) -> Offset:
        """Append `letters` to `target` once, with the marks that settle their records; return the
        offset of the first."""
        ids = [encode_intent(intent) for intent in intents]
        done = [mark(intent.settled) for intent in intents if intent.name]
        return await shard.writer.write(target, ids, letters, done=done)

    def bytes_max(self, topic: str) -> int:
        """Largest batch for a topic, which need not exist yet."""
        settings = self._defaults.settings
        with suppress(UnknownTopic):
            settings = self._catalog.find(topic).settings(settings)
        return min(LETTER_BATCH_BYTES_MAX, settings.segment_bytes)

    def check_size(self, target: LogId, letters: Sequence[Record]) -> None:
        """Raise `BatchTooLarge` for records that the log would never accept. Runs before the intent
        is written: an intent that cannot be finished blocks all later ones for that log."""
        replica = self._hub.get(target)
        if replica is None:
            return
        numbered = [letter._replace(offset=at) for at, letter in enumerate(letters)]
        size, size_max = len(encode_batch(numbered)), replica.log.settings.segment_bytes
        if size > size_max:
            raise BatchTooLarge(size, size_max)

    # -- parts -----------------------------------------------------------------------------------

    async def _is_finished(
        self, shard: DeliveryShard, target: LogId, intents: Sequence[DeadLetterIntent]
    ) -> bool:
        try:
            letters = [self._letter(intent, await self._read_back(intent)) for intent in intents]
            with suppress(UnknownTopic):  # The topic was deleted, and the intent with it.
                await self.append_once(shard, target, intents, letters)
            # The marks must be in `stored` before the names are released.
            await shard.wait_committed("*")
        except (RequestError, StorageError) as problem:
            _log.warning(
                "could not finish writing dead letters target=%s problem=%s", target, problem
            )
            return False
        return True

    async def _is_written(
        self, subscription: Subscription, topic: str, failed_records: Sequence[FailedRecord]
    ) -> bool:
        now_ms = self._clock.now_ms()
        intents = [failed.intent for failed in failed_records]
        letters = [
            dead_letter(failed.in_flight.record, failed.intent, now_ms) for failed in failed_records
        ]
        try:
            target = await self._dead_log(topic, intents[0].partition)
            self.check_size(target, letters)
            shard = await self._keeper(subscription, topic)
            await self.append_once(shard, target, intents, letters)
        except RequestError as problem:
            _log.warning(
                "could not write dead letters, retrying count=%d topic=%s problem=%s",
                len(intents),
                topic,
                problem,
            )
            return False
        return True

    async def _keeper(self, subscription: Subscription, topic: str) -> DeliveryShard:
        """The shard that keeps the intents. Those of a subscription that is not stored may be kept
        by any shard of this node."""
        if subscription.home is not None:
            return subscription.home
        for shard in self._shards:
            if shard.is_loaded and shard.is_open:
                return shard
        return await find_open(self._shards, topic)

    async def _dead_log(self, name: str, partition: int) -> LogId:
        """Log of the dead letters of a partition; creates the topic if it does not exist."""
        try:
            topic = self._catalog.find(name)
        except UnknownTopic:
            try:
                replicas = min(REPLICAS, self._topics.machine_count, self._topics.default_replicas)
                topic = await self._topics.create(SYSTEM_SESSION, name, replicas=replicas)
            except TopicExists:
                topic = self._catalog.find(name)
        topic.check_writable()
        return topic.log(partition % topic.partition_count)

    def _unmark(self, shard: DeliveryShard, intents: Sequence[DeadLetterIntent]) -> None:
        """Remove the marks of records whose partition is gone."""
        try:
            shard.write([unmark(intent.name, intent.log, intent.offset) for intent in intents])
        except RequestError as problem:
            _log.warning("could not remove marks count=%d problem=%s", len(intents), problem)

    def _letter(self, intent: DeadLetterIntent, record: Record | None) -> Record:
        now_ms = self._clock.now_ms()
        if record is None:
            return lost_letter(intent, now_ms)
        if intent.is_redrive:
            return revived(record, now_ms)
        return dead_letter(record, intent, now_ms)

    async def _read_back(self, intent: DeadLetterIntent) -> Record | None:
        """The record as stored in its log; None if it is gone for good: its topic was deleted, or
        it lies before the log start.

        Raises a `RequestError` or a `StorageError` if the log cannot be read now: it is damaged, or
        not open yet.
        """
        replica, offset = self._origin(intent), intent.offset
        if replica is None or offset < replica.log.start_offset:
            return None
        end_offset = replica.log.end_offset
        if offset >= end_offset:
            if not (replica.is_leader and replica.is_ready):
                raise NotLeader(intent.log, replica.leader)
            return None
        batch_slice = replica.log.read(offset, bytes_max=1, end_offset=end_offset)
        if batch_slice is None:
            return None
        data = batch_slice.read()
        header = read_header(data)
        read = partial(
            decode_range, data, 0, offset, 1, decompressed_bytes_max=self._unpacking.bytes_max
        )
        try:
            if intent.reason == UNREADABLE:
                raise InvalidBatch(intent.error)
            is_packed = header.codec is not Codec.NONE
            size = header.size
            records = await self._unpacking.run(read, packed_bytes=size) if is_packed else read()
        except (CorruptBatch, InvalidBatch, BatchTooLarge):
            verify_batch(data)  # Raises for a damaged batch: damage is not copied.
            raw = data[: header.size]
            return raw_record(raw, offset, header.last_offset, header.max_timestamp)
        return next((record for record in records if record.offset == offset), None)

    def _origin(self, intent: DeadLetterIntent) -> Replica | None:
        """The replica that holds the record; None if the topic was deleted."""
        try:
            return self._hub.find(intent.log)
        except UnknownTopic:
            with suppress(UnknownTopic):
                self._catalog.find_id(intent.topic_id)
                raise NotLeader(intent.log, None) from None
            return None

    def _intent_of(self, subscription: Subscription, in_flight: InFlight) -> DeadLetterIntent:
        log_id = subscription.logs[in_flight.target]
        try:
            # For a view, the topic behind it: a redrive can write there.
            topic = self._catalog.find_id(log_id.topic_id).name
        except UnknownTopic:
            topic = in_flight.target.topic
        return DeadLetterIntent(
            name=subscription.name if subscription.shard is not None else "",
            topic_id=log_id.topic_id,
            topic=topic,
            partition=in_flight.target.partition,
            offset=in_flight.offset,
            attempts=in_flight.attempts,
            reason=in_flight.reason,
            error=in_flight.error,
            prefix=subscription.spec.retry.dead_subject_prefix,
            group=subscription.name,
        )


def _dead_topic(subscription: Subscription, intent: DeadLetterIntent) -> str:
    template = subscription.spec.retry.dead_letter_topic
    assert template is not None
    return template.replace("{topic}", intent.topic)
