"""Records handed over to the dead letters, or back from them, each exactly once.

Owns which log a record goes to and what is tried again; the `Courier` of a shard owns that it
arrives once. The one thing to know: the id of a hand-over says all that must be known to build the
same record again, so that a crash in the middle is finished before the shard opens.
"""

import logging
from collections.abc import Sequence

from millstream.codec.records import Record, records
from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.control.deliveries import HandOver, decode_hand_over, encode_hand_over
from millstream.engine.backoff import Backoff
from millstream.engine.delivery.cursor import Pending
from millstream.engine.delivery.letters import dead_letter, lost_letter, revived
from millstream.engine.delivery.records import DECOMPRESSED_BYTES_MAX
from millstream.engine.delivery.shard import DeliveryShard, find_open, mark
from millstream.engine.delivery.subscription import Subscription
from millstream.engine.shards import BROKER, REPLICAS, Shards
from millstream.engine.topics import Topics
from millstream.errors import RequestError, StorageError, TopicExists, UnknownTopic
from millstream.model import LogId, Offset
from millstream.ports import Clock
from millstream.replication.hub import Hub

log = logging.getLogger(__name__)

HAND_OVER_RECORDS_MAX = 100  # In one batch.


class HandOvers:
    def __init__(
        self,
        catalog: Catalog,
        hub: Hub,
        topics: Topics,
        shards: Shards[DeliveryShard],
        *,
        config: Config,
        clock: Clock,
    ) -> None:
        """`topics` creates dead-letter topics on behalf of the broker: its gate must admit it."""
        self._catalog = catalog
        self._hub = hub
        self._topics = topics
        self._shards = shards
        self._config = config
        self._clock = clock

    async def bury(self, subscription: Subscription, failed: Sequence[Pending]) -> None:
        """Write dead letters of one partition, trying until it is done: until then the records are
        not settled."""
        for at in range(0, len(failed), HAND_OVER_RECORDS_MAX):
            some = failed[at : at + HAND_OVER_RECORDS_MAX]
            told = [self._told(subscription, pending) for pending in some]
            template = subscription.spec.retry.dead_letter_topic
            assert template is not None
            topic = template.replace("{topic}", told[0].topic)
            backoff = Backoff()
            while not await self._buried(subscription, topic, told, some):
                if subscription.shard is not None and subscription.shard.is_gone:
                    return  # Whoever leads it next begins where the cursor was kept.
                await backoff.wait()
            for pending in some:
                subscription.buried(pending.target, pending.offset)

    async def finish(self, shard: DeliveryShard) -> None:
        """Carry to its end what a crash cut short, then open the shard."""
        backoff = Backoff()
        while shard.courier.unfinished and not shard.is_gone:
            for target, ids in shard.courier.unfinished.items():
                told = [decode_hand_over(one) for one in ids]
                try:
                    letters = [
                        self._letter(one, self._read_back(one.log, one.offset)) for one in told
                    ]
                    await self.carry(shard, target, told, letters)
                except UnknownTopic:
                    log.info("a hand-over ended with its topic target=%s", target)
                except (RequestError, StorageError) as problem:
                    log.warning("could not finish a hand-over problem=%s", problem)
                    await backoff.wait()
        shard.is_open = not shard.is_gone

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

    # -- parts -----------------------------------------------------------------------------------

    async def _buried(
        self,
        subscription: Subscription,
        topic: str,
        told: Sequence[HandOver],
        failed: Sequence[Pending],
    ) -> bool:
        now_ms = self._clock.now_ms()
        letters = [
            dead_letter(one.record, id_, now_ms) for one, id_ in zip(failed, told, strict=True)
        ]
        try:
            target = await self._dead_log(topic, told[0].partition)
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
        return topic.log(partition % topic.partition_count)

    def _letter(self, told: HandOver, record: Record | None) -> Record:
        now_ms = self._clock.now_ms()
        if record is None:
            return lost_letter(told, now_ms)
        if told.revives:
            return revived(record, now_ms)
        return dead_letter(record, told, now_ms)

    def _read_back(self, log_id: LogId, offset: Offset) -> Record | None:
        """A record as it is in its log; None if it is gone."""
        replica = self._hub.replicas.get(log_id)
        if replica is None or not (
            replica.log.start_offset <= offset < replica.log.records.end_offset
        ):
            return None
        found = replica.log.records.read(
            offset, bytes_max=1, end_offset=replica.log.records.end_offset
        )
        if found is None:
            return None
        for _, data in found.batches():
            for record in records(data, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
                if record.offset == offset:
                    return record
        return None

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
