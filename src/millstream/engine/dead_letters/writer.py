"""Records handed over to the dead letters, or back from them, each exactly once.

Owns which log a record goes to and what is tried again; the `Courier` of a shard owns that it
arrives once. The one thing to know: the id of a hand-over says all that must be known to build the
same record again, so that a crash in the middle is finished before anybody is sent the record.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from millstream.codec.batch import read_header, verify
from millstream.codec.compression import Codec
from millstream.codec.excerpt import read_some
from millstream.codec.records import Record, build
from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.engine.dead_letters.records import dead_letter, lost_letter, raw_record, revived
from millstream.engine.ledgers.shards import BROKER, REPLICAS, Shards
from millstream.engine.produce.unpacking import Unpacking
from millstream.engine.push.chunked import bundles
from millstream.engine.push.cursor import Pending
from millstream.engine.push.dispatcher import UNREADABLE
from millstream.engine.push.shard import DeliveryShard, find_open, mark, unmark
from millstream.engine.push.subscription import Subscription
from millstream.engine.runtime.backoff import Backoff
from millstream.engine.topic_defaults import TopicDefaults
from millstream.engine.topics import Topics
from millstream.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    RequestError,
    StorageError,
    TopicExists,
    UnknownTopic,
)
from millstream.internal_topics.deliveries import HandOver, decode_hand_over, encode_hand_over
from millstream.model import LogId, Offset
from millstream.ports import Clock
from millstream.replication.hub import Hub

log = logging.getLogger(__name__)

HAND_OVER_RECORDS_MAX = 100  # In one batch,
HAND_OVER_BYTES_MAX = 2**20  # and what they hold, but one at least.
LETTER_BYTES = 1_000  # What a dead letter holds besides its record and the error, about.


class Burial(NamedTuple):
    """A record on its way to the dead letters."""

    pending: Pending
    told: HandOver


class HandOvers:
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

    def prepare(self, subscription: Subscription, failed: Sequence[Pending]) -> list[list[Burial]]:
        """What is to be told of records of one partition, in batches. Their topic may be gone by
        the time that it is their turn."""
        burials = [Burial(pending, self._told(subscription, pending)) for pending in failed]
        topic = _dead_topic(subscription, burials[0].told)
        return list(
            bundles(
                burials,
                lambda one: one.pending.size + LETTER_BYTES + 4 * len(one.told.error),
                count_max=HAND_OVER_RECORDS_MAX,
                bytes_max=self.bytes_max(topic),
            )
        )

    async def bury(self, subscription: Subscription, batches: Sequence[Sequence[Burial]]) -> None:
        """Write dead letters of one partition, trying until it is done: until then the records are
        not settled."""
        for burials in batches:
            topic = _dead_topic(subscription, burials[0].told)
            backoff = Backoff()
            while not await self._buried(subscription, topic, burials):
                if subscription.shard is not None and subscription.shard.is_gone:
                    return  # Whoever leads it next begins where the cursor was kept.
                await backoff.wait()
            useless = [told for pending, told in burials if not subscription.buried(pending)]
            if useless and subscription.shard is not None:
                self._unmark(subscription.shard, useless)

    async def finish(self, shard: DeliveryShard) -> None:
        """Carry to its end what a crash cut short, and let go of the names that it held."""
        left = {
            target: [decode_hand_over(one) for one in ids]
            for target, ids in shard.courier.unfinished.items()
        }

        async def finish_one(target: LogId, told: Sequence[HandOver]) -> None:
            backoff = Backoff()
            while not (shard.is_gone or await self._is_finished(shard, target, told)):
                await backoff.wait()
            del left[target]
            shard.held = frozenset(one.name for each in left.values() for one in each)

        async with asyncio.TaskGroup() as group:
            for target, told in list(left.items()):
                group.create_task(finish_one(target, told))

    async def carry(
        self,
        shard: DeliveryShard,
        target: LogId,
        told: Sequence[HandOver],
        letters: Sequence[Record],
    ) -> Offset:
        """Append these there once, with the marks that say so; return where they begin."""
        ids = [encode_hand_over(one) for one in told]
        done = [mark(one.settled) for one in told if one.name]
        return await shard.courier.carry(target, ids, letters, done=done)

    def bytes_max(self, topic: str) -> int:
        """What a batch may hold that goes to a topic, which need not be there yet."""
        settings = self._defaults.settings
        with suppress(UnknownTopic):
            settings = self._catalog.find(topic).settings(settings)
        return min(HAND_OVER_BYTES_MAX, settings.segment_bytes)

    def check_size(self, target: LogId, letters: Sequence[Record]) -> None:
        """Raise `BatchTooLarge` for what the log would never take, before anything is intended:
        all that goes there would have to wait for it."""
        replica = self._hub.replicas.get(target)
        if replica is None:
            return
        numbered = [letter._replace(offset=at) for at, letter in enumerate(letters)]
        size, size_max = len(build(numbered)), replica.log.records.settings.segment_bytes
        if size > size_max:
            raise BatchTooLarge(size, size_max)

    # -- parts -----------------------------------------------------------------------------------

    async def _is_finished(
        self, shard: DeliveryShard, target: LogId, told: Sequence[HandOver]
    ) -> bool:
        try:
            letters = [self._letter(one, await self._read_back(one)) for one in told]
            with suppress(UnknownTopic):  # It ended with its topic.
                await self.carry(shard, target, told, letters)
            # What was settled just now must be seen by whoever asks.
            await shard.settle("*")
        except (RequestError, StorageError) as problem:
            log.warning("could not finish a hand-over target=%s problem=%s", target, problem)
            return False
        return True

    async def _buried(
        self, subscription: Subscription, topic: str, burials: Sequence[Burial]
    ) -> bool:
        now_ms = self._clock.now_ms()
        told = [one.told for one in burials]
        letters = [dead_letter(one.pending.record, one.told, now_ms) for one in burials]
        try:
            target = await self._dead_log(topic, told[0].partition)
            self.check_size(target, letters)
            shard = subscription.shard or await find_open(self._shards, topic)
            await self.carry(shard, target, told, letters)
        except RequestError as problem:
            log.warning(
                "kept records that should be dead letters count=%d topic=%s problem=%s",
                len(told),
                topic,
                problem,
            )
            return False
        return True

    async def _dead_log(self, name: str, partition: int) -> LogId:
        """The log for dead letters of a partition, created if there is none."""
        try:
            topic = self._catalog.find(name)
        except UnknownTopic:
            try:
                replicas = min(REPLICAS, len(self._config.voters), self._config.default_replicas)
                topic = await self._topics.create(BROKER, name, replicas=replicas)
            except TopicExists:
                topic = self._catalog.find(name)
        topic.check_writable()
        return topic.log(partition % topic.partition_count)

    def _unmark(self, shard: DeliveryShard, told: Sequence[HandOver]) -> None:
        """Their partition is gone: nobody needs to be told that they are settled there."""
        try:
            shard.write([unmark(one.name, one.log, one.offset) for one in told])
        except RequestError as problem:
            log.warning("could not forget marks count=%d problem=%s", len(told), problem)

    def _letter(self, told: HandOver, record: Record | None) -> Record:
        now_ms = self._clock.now_ms()
        if record is None:
            return lost_letter(told, now_ms)
        if told.revives:
            return revived(record, now_ms)
        return dead_letter(record, told, now_ms)

    async def _read_back(self, told: HandOver) -> Record | None:
        """A record as it is in its log; None if it is gone."""
        replica, offset = self._hub.replicas.get(told.log), told.offset
        if replica is None or not (
            replica.log.start_offset <= offset < replica.log.records.end_offset
        ):
            return None
        found = replica.log.records.read(
            offset, bytes_max=1, end_offset=replica.log.records.end_offset
        )
        if found is None:
            return None
        data = found.read()
        header = read_header(data)
        read = partial(
            read_some, data, 0, offset, 1, decompressed_bytes_max=self._unpacking.bytes_max
        )
        try:
            if told.reason == UNREADABLE:
                raise InvalidBatch(told.error)
            is_packed = header.codec is not Codec.NONE
            size = header.size
            records = await self._unpacking.run(read, packed_bytes=size) if is_packed else read()
        except (CorruptBatch, InvalidBatch, BatchTooLarge):
            verify(data)  # Damage is not copied.
            raw = data[: header.size]
            return raw_record(raw, offset, header.last_offset, header.max_timestamp)
        return next((record for record in records if record.offset == offset), None)

    def _told(self, subscription: Subscription, pending: Pending) -> HandOver:
        log_id = subscription.logs[pending.target]
        try:
            # Of a view, the topic that it shows: there it can be sent back to.
            topic = self._catalog.find_id(log_id.topic_id).name
        except UnknownTopic:
            topic = pending.target.topic
        return HandOver(
            name=subscription.name if subscription.shard is not None else "",
            topic_id=log_id.topic_id,
            topic=topic,
            partition=pending.target.partition,
            offset=pending.offset,
            attempts=pending.attempts,
            reason=pending.reason,
            error=pending.error,
            prefix=subscription.spec.retry.dead_subject_prefix,
            group=subscription.name,
        )


def _dead_topic(subscription: Subscription, told: HandOver) -> str:
    template = subscription.spec.retry.dead_letter_topic
    assert template is not None
    return template.replace("{topic}", told.topic)
