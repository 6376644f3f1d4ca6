"""Checks the schemas of incoming batches, and rejects, removes or reports records that do not fit.

A batch whose schemas are known is checked at once; any other one waits in its partition's queue.
A record that goes to the dead letters is committed there before the remainder is written: after a
crash between the two its producer sends the batch again, and the dead letter may be there twice.
"""

import asyncio
import logging
from collections.abc import Mapping

from millstream.codec.batch import read_header
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_all
from millstream.control.catalog import Catalog
from millstream.cooperative import all_at_once, one_by_one
from millstream.engine.dead_letters.records import dead_letter
from millstream.engine.partitions.admission import SMALL_BYTES_MAX
from millstream.engine.produce.split import BatchSplitter, IncomingBatch
from millstream.engine.produce.unpacking import Unpacking
from millstream.engine.schemas.validation import RecordValidation
from millstream.engine.topics import Topics
from millstream.errors import InvalidRecords, TopicExists, UnknownTopic
from millstream.internal_topics.deliveries import DeadLetterIntent
from millstream.metrics import SCHEMA_CHECKS, Metrics
from millstream.model import SYSTEM_SESSION, LogId
from millstream.names import DLQ_TOPIC_SUFFIX
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.settings import SchemaAction

_log = logging.getLogger(__name__)

REASON = "schema"
NO_OFFSET = -1
NOW_RECORDS_MAX = 200  # Checked at once: a millisecond or two.
NOW_BYTES_MAX = 64 * 2**10
WARNING_INTERVAL_S = 10.0


class SchemaChecks:
    def __init__(
        self,
        validation: RecordValidation,
        catalog: Catalog,
        hub: Hub,
        topics: Topics,
        splitter: BatchSplitter,
        unpacking: Unpacking,
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`topics` creates topics of dead letters: its gate must admit the broker."""
        self._validation = validation
        self._catalog = catalog
        self._hub = hub
        self._topics = topics
        self._splitter = splitter
        self._unpacking = unpacking
        self._clock = clock
        self._metrics = metrics
        self._warned_s = -WARNING_INTERVAL_S

    def passes_now(self, incoming: IncomingBatch) -> bool:
        """Whether a batch is known to fit; False if that takes longer to find out.

        Raises `InvalidRecords` for a batch that is rejected.
        """
        header = incoming.header
        if (
            header.count > NOW_RECORDS_MAX
            or header.size > NOW_BYTES_MAX
            or header.codec.value
            or not header.count
        ):
            return False
        settings = incoming.replica.log.settings
        records = decode_all(incoming.data, decompressed_bytes_max=0)
        problems = self._validation.problems_now(incoming.target.topic, settings, records)
        if problems is None:
            return False
        if problems and settings.schema_validation_action is SchemaAction.DEAD_LETTER:
            return self._is_repeated(incoming)
        self._judge(incoming, problems)
        return True

    async def check(self, incoming: IncomingBatch) -> IncomingBatch | None:
        """The batch to write: as it is, or without records that went to the dead letters.

        None if nothing is left of it. Raises `InvalidRecords` if the batch is rejected.
        """
        if self._is_repeated(incoming) or not incoming.header.count:
            return incoming
        topic, settings = incoming.target.topic, incoming.replica.log.settings
        records = await self._decoded(incoming)
        await self._validation.prepare(topic, settings, records)
        problems = await one_by_one(self._validation.steps(topic, settings, records))
        by_dead_letter = settings.schema_validation_action is SchemaAction.DEAD_LETTER
        if not problems or not by_dead_letter or incoming.header.is_transactional:
            self._judge(incoming, problems)
            return incoming
        self._count(incoming, problems, "dead-letter")
        failed = {index: records[index] for index in problems}
        await self._write_letters(incoming, failed, problems)
        return await self._without(incoming, failed)

    # -- parts -----------------------------------------------------------------------------------

    @staticmethod
    def _is_repeated(incoming: IncomingBatch) -> bool:
        """A retry of an idempotent producer, which was checked when it first came."""
        return incoming.replica.log.producers.check(incoming.header) is not None

    async def _decoded(self, incoming: IncomingBatch) -> list[Record]:
        data, header = incoming.data, incoming.header
        bytes_max = self._unpacking.bytes_max
        if header.size <= SMALL_BYTES_MAX and not header.codec.value:
            return decode_all(data, decompressed_bytes_max=0)
        return await self._unpacking.run(
            lambda: decode_all(data, decompressed_bytes_max=bytes_max), packed_bytes=header.size
        )

    def _judge(self, incoming: IncomingBatch, problems: Mapping[int, str]) -> None:
        """Reject the batch, or let it pass and say so."""
        action = incoming.replica.log.settings.schema_validation_action
        if not problems or action is SchemaAction.WARN:
            self._count(incoming, problems, "warned")
            if problems:
                self._warn(incoming, problems)
            return
        self._count(incoming, problems, "rejected")
        first = min(problems)
        raise InvalidRecords(problems[first], sorted(problems))

    def _count(self, incoming: IncomingBatch, problems: Mapping[int, str], outcome: str) -> None:
        self._metrics.add(SCHEMA_CHECKS, incoming.header.count - len(problems), "passed")
        if problems:
            self._metrics.add(SCHEMA_CHECKS, len(problems), outcome)

    def _warn(self, incoming: IncomingBatch, problems: Mapping[int, str]) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._warned_s >= WARNING_INTERVAL_S:
            self._warned_s = now_s
            _log.warning(
                "records do not fit their schemas target=%s count=%d first=%s",
                incoming.target,
                len(problems),
                problems[min(problems)],
            )

    async def _without(
        self, incoming: IncomingBatch, failed: Mapping[int, Record]
    ) -> IncomingBatch | None:
        steps = self._splitter.remainder(incoming, failed.keys())
        if incoming.header.codec.value:
            size = incoming.header.size
            remainder = await self._unpacking.run(lambda: all_at_once(steps), packed_bytes=size)
        else:
            remainder = await one_by_one(steps)
        if remainder.data is None:
            return None
        return incoming._replace(data=remainder.data, header=read_header(remainder.data))

    async def _write_letters(
        self,
        incoming: IncomingBatch,
        failed: Mapping[int, Record],
        problems: Mapping[int, str],
    ) -> None:
        log_id = await self._dead_log(incoming)
        replica = self._hub.find(log_id)
        now_ms = self._clock.now_ms()
        letters = [
            dead_letter(record, self._intent(incoming, f"the record {problems[index]}"), now_ms)
            for index, record in failed.items()
        ]
        data = encode_batch([letter._replace(offset=at) for at, letter in enumerate(letters)])
        appended = replica.append(data, read_header(data))
        await replica.committed(appended.end_offset, None)

    def _intent(self, incoming: IncomingBatch, error: str) -> DeadLetterIntent:
        """Never stored: it names what stands in the headers of a dead letter."""
        return DeadLetterIntent(
            name="",
            topic_id=incoming.replica.id.topic_id,
            topic=incoming.target.topic,
            partition=incoming.target.partition,
            offset=NO_OFFSET,
            reason=REASON,
            error=error,
        )

    async def _dead_log(self, incoming: IncomingBatch) -> LogId:
        name = incoming.target.topic + DLQ_TOPIC_SUFFIX
        try:
            topic = self._catalog.find(name)
        except UnknownTopic:
            try:
                topic = await self._topics.create(SYSTEM_SESSION, name)
            except TopicExists:
                topic = self._catalog.find(name)
        topic.check_writable()
        log_id = topic.log(incoming.target.partition % topic.partition_count)
        await self._hub.opened([log_id])
        return log_id
