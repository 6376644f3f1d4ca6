"""Dead letters as operators see them: list, count, replay one, redrive many, purge.

Owns the state of a dead letter: waiting or redriven. The log itself cannot say that, so the state
is stored as the cursor of a reader with a reserved name, see `redriven`.

Invariant: a redrive is committed batch by batch, so it can stop anywhere, by a crash too, and be
repeated: it continues with the letters that still wait, and redrives none twice.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from msgspec import Struct

from millstream.codec.records import Record
from millstream.control.catalog import Catalog, Topic
from millstream.engine.dead_letters.records import Origin, origin_of, revived
from millstream.engine.dead_letters.redriven import RedrivenLetters, redrive_name
from millstream.engine.dead_letters.writer import LETTER_BATCH_RECORDS_MAX, DeadLetterWriter
from millstream.engine.filters.filter import Filter, parse
from millstream.engine.gate import Gate, Operation, topic_resource
from millstream.engine.ledgers.shards import Shards
from millstream.engine.partitions.service import Partitions
from millstream.engine.partitions.slices import Earliest, Latest
from millstream.engine.publish.subjects import is_dead_topic
from millstream.engine.push.records import read_records
from millstream.engine.push.shard import DeliveryShard, find_open
from millstream.engine.runtime.background import BackgroundTasks
from millstream.errors import (
    InvalidRequest,
    OffsetOutOfRange,
    Overloaded,
    UnknownTopic,
)
from millstream.errors.deliveries import UnknownDeadLetter
from millstream.internal_topics.deliveries import DeadLetterIntent
from millstream.model import Offset, Session, TopicPartition
from millstream.names import DLQ_TOPIC_SUFFIX
from millstream.ports import Clock

LISTED_MAX = 10_000  # Dead letters in one answer.
# Of the letters in one answer, which has two at least: callers ask for one more than they show.
LISTED_BYTES_MAX = 16 * 2**20
LOOKED_AT_MAX = 10_000  # Dead letters that one page of a search reads.
COUNTED_MAX = 100_000  # Dead letters read to count them.


class DeadLetter(NamedTuple):
    target: TopicPartition  # Of the dead-letter topic.
    record: Record  # Key and value of the original; its timestamp is when it was given up.
    origin: Origin

    @property
    def size(self) -> int:
        key, value, headers = self.record.key, self.record.value, self.record.headers
        named = sum(len(name) + len(content or b"") for name, content in headers)
        # Twice: an answer repeats the origin headers as fields.
        return len(key or b"") + len(value or b"") + 2 * named


class LetterPlace(NamedTuple):
    """Letters are listed by partition, then by offset."""

    partition: int
    offset: Offset


class LetterPage(NamedTuple):
    letters: Sequence[DeadLetter]
    next_after: LetterPlace | None  # None: there are no more.


class DeadLetterStatistics(NamedTuple):
    topic: str
    waiting: int
    by_reason: Mapping[str, int]
    by_group: Mapping[str, int]
    oldest_ms: int | None
    newest_ms: int | None
    is_complete: bool  # False: there are more than `COUNTED_MAX`.


class RedrivePlan(Struct, frozen=True, kw_only=True):
    """Which dead letters are redriven, where to, and how fast."""

    filter: str | None = None  # In the language of `engine.filters`, over the dead letters.
    group: str | None = None  # Only letters that this subscription gave up.
    to: str | None = None  # Instead of the topic that each came from.
    rate: float | None = None  # Records a second.
    count_max: int | None = None
    is_dry_run: bool = False  # Only count.


class Redriven(NamedTuple):
    sent: int  # In a dry run: would be sent.
    skipped: int  # Not selected by the plan, or not a dead letter.


class DeadLetters:
    def __init__(
        self,
        gate: Gate,
        catalog: Catalog,
        partitions: Partitions,
        shards: Shards[DeliveryShard],
        dead_letter_writer: DeadLetterWriter,
        background: BackgroundTasks,
        *,
        clock: Clock,
    ) -> None:
        self._gate = gate
        self._catalog = catalog
        self._partitions = partitions
        self._shards = shards
        self._dead_letter_writer = dead_letter_writer
        self._background = background
        self._clock = clock
        self._busy: set[str] = set()  # Dead-letter topics with a redrive in progress.
        self._begun: dict[str, asyncio.Future[Offset]] = {}  # The last step of each topic.

    async def list(
        self, session: Session, topic: str, *, count_max: int = 100
    ) -> "Sequence[DeadLetter]":
        """The waiting dead letters of a topic, oldest first in each partition.

        The topic may be the dead-letter topic or the one that the letters came from. Empty if it
        does not exist.
        """
        return (await self.page(session, topic, count_max=count_max)).letters

    async def page(
        self,
        session: Session,
        topic: str,
        *,
        count_max: int,
        after: LetterPlace | None = None,
        takes: Callable[[DeadLetter], bool] | None = None,
    ) -> LetterPage:
        """The waiting dead letters past a place that `takes` lets through.

        A page ends early where it has looked at many letters, or holds many bytes.
        """
        name = dead_topic_of(topic)
        self._gate.admit(session, Operation.READ, topic_resource(name))
        letters: list[DeadLetter] = []
        count_max = min(count_max, LISTED_MAX)
        size = looked_at = 0
        place = after
        async for letter in self._waiting(session, name, after):
            is_full = len(letters) >= count_max or looked_at >= LOOKED_AT_MAX
            if is_full or (size > LISTED_BYTES_MAX and len(letters) > 1):
                return LetterPage(letters, place)
            looked_at += 1
            place = LetterPlace(letter.target.partition, letter.record.offset)
            if takes is None or takes(letter):
                letters.append(letter)
                size += letter.size
        return LetterPage(letters, None)

    async def statistics(self, session: Session, topic: str) -> DeadLetterStatistics:
        """Count the waiting dead letters of a topic, by reason and by group."""
        name = dead_topic_of(topic)
        self._gate.admit(session, Operation.READ, topic_resource(name))
        reasons: Counter[str] = Counter()
        groups: Counter[str] = Counter()
        times: Sequence[int] = ()
        is_complete = True
        async for letter in self._waiting(session, name):
            if reasons.total() >= COUNTED_MAX:
                is_complete = False
                break
            reasons[letter.origin.reason] += 1
            groups[letter.origin.group] += 1
            time_ms = letter.record.timestamp
            times = (min(*times, time_ms), max(*times, time_ms)) if times else (time_ms, time_ms)
        oldest_ms, newest_ms = times or (None, None)
        return DeadLetterStatistics(
            name, reasons.total(), dict(reasons), dict(groups), oldest_ms, newest_ms, is_complete
        )

    async def replay(
        self, session: Session, place: TopicPartition, offset: Offset, *, to: str | None = None
    ) -> tuple[TopicPartition, Offset]:
        """Redrive one dead letter, once; return its new partition and offset."""
        name = dead_topic_of(place.topic)
        self._gate.admit(session, Operation.READ, topic_resource(name))
        target = TopicPartition(name, place.partition)
        async with self._turn(name):
            topic = self._find(name, target)
            redriven = await self._redriven_letters(topic)
            if redriven.offsets(topic.log(target.partition)).has(offset):
                raise UnknownDeadLetter(f"{target}@{offset}")
            letter = await self._read(session, target, offset)
            destination = self._destination(session, letter.origin, to)
            sent_to = await self._step(redriven, topic, destination, [letter], least=0)
            details = {"records": 1, "offset": offset, "to": str(destination)}
            self._gate.note("dlq.replay", session, topic_resource(name), details)
            return destination, sent_to

    async def redrive(self, session: Session, topic: str, plan: RedrivePlan) -> Redriven:
        """Redrive the letters that the plan selects, of those that wait at this moment.

        A record that fails again meanwhile is a new dead letter, for the next redrive.
        """
        name = dead_topic_of(topic)
        self._gate.admit(session, Operation.READ, topic_resource(name))
        where = None if plan.filter is None else parse(plan.filter)
        if plan.rate is not None and plan.rate <= 0:
            raise InvalidRequest(f"a rate of {plan.rate} records a second sends nothing")
        async with self._turn(name):
            sent = skipped = 0
            run: Sequence[DeadLetter] = ()
            destination: TopicPartition | None = None
            firsts: dict[TopicPartition, Offset] = {}  # No letter waits before them.
            async for letter in self._waiting(session, name):
                firsts.setdefault(letter.target, letter.record.offset)
                if plan.count_max is not None and sent + len(run) >= plan.count_max:
                    break
                if not _is_selected(letter, where, plan):
                    skipped += 1
                    continue
                try:
                    its_destination = self._destination(session, letter.origin, plan.to)
                except UnknownTopic:
                    skipped += 1  # Its topic is deleted: only `plan.to` can redrive it.
                    continue
                is_other = its_destination != destination or (
                    bool(run) and run[0].target != letter.target
                )
                if is_other or self._is_full((*run, letter), its_destination, plan.rate):
                    sent += await self._send_run(run, destination, plan, firsts)
                    run = ()
                run, destination = (*run, letter), its_destination
            sent += await self._send_run(run, destination, plan, firsts)
            details = {"records": sent, "skipped": skipped, "to": plan.to or ""}
            self._gate.note("dlq.replay", session, topic_resource(name), details)
            return Redriven(sent, skipped)

    async def purge(self, session: Session, topic: str) -> int:
        """Delete every dead letter of a topic, redriven ones too; return how many."""
        name = dead_topic_of(topic)
        self._gate.admit(session, Operation.DELETE_RECORDS, topic_resource(name))
        count = 0
        for target in self._targets(name):
            before = await self._partitions.find(session, target, Earliest())
            end = await self._partitions.find(session, target, Latest())
            assert before is not None
            assert end is not None
            start = self._partitions.delete_records(session, target, end.offset)
            count += start - before.offset
            dead_topic = self._catalog.find(name)
            redriven, log_id = (
                await self._redriven_letters(dead_topic),
                dead_topic.log(target.partition),
            )
            redriven_offsets = redriven.offsets(log_id)
            if redriven_offsets.marks or redriven_offsets.skipped:
                await redriven.tidy(log_id, start)
        self._gate.note("dlq.purge", session, topic_resource(name), {"records": count})
        return count

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """Allow one redrive of a topic at a time: two would send the same letters."""
        if name in self._busy:
            raise Overloaded(f"dead letters of {name} are being sent back already")
        self._busy.add(name)
        try:
            begun = self._begun.get(name)
            if begun is not None:
                await asyncio.wait({begun})  # A step whose caller was cancelled is still running.
            yield
        finally:
            self._busy.discard(name)

    # -- what waits ------------------------------------------------------------------------------

    def _targets(self, name: str) -> "Sequence[TopicPartition]":
        try:
            topic = self._catalog.find(name)
        except UnknownTopic:
            return ()
        return [TopicPartition(name, at) for at in range(topic.partition_count)]

    def _find(self, name: str, target: TopicPartition) -> Topic:
        try:
            topic = self._catalog.find(name)
            topic.log(target.partition)
        except UnknownTopic:
            raise UnknownDeadLetter(target) from None
        return topic

    async def _waiting(
        self, session: Session, name: str, after: LetterPlace | None = None
    ) -> AsyncIterator[DeadLetter]:
        """Every waiting dead letter past a place, as of the moment it is read."""
        first = LetterPlace(0, -1) if after is None else after
        for target in self._targets(name)[first.partition :]:
            topic = self._catalog.find(name)
            redriven, log_id = await self._redriven_letters(topic), topic.log(target.partition)
            start = await self._partitions.find(session, target, Earliest())
            end = await self._partitions.find(session, target, Latest())
            assert start is not None
            assert end is not None
            offset = max(start.offset, redriven.offsets(log_id).first_waiting)
            if target.partition == first.partition:
                offset = max(offset, first.offset + 1)
            while offset < end.offset:
                try:
                    chunk = await read_records(self._partitions, session, target, offset)
                except OffsetOutOfRange as problem:
                    offset = max(offset + 1, problem.start_offset)  # Purged meanwhile.
                    continue
                redriven_offsets = redriven.offsets(log_id)
                for record in chunk.records:
                    origin = origin_of(record)
                    if origin is not None and not redriven_offsets.has(record.offset):
                        yield DeadLetter(target, record, origin)
                if chunk.next_offset <= offset:
                    break
                offset = chunk.next_offset

    async def _read(self, session: Session, target: TopicPartition, offset: Offset) -> DeadLetter:
        with suppress(OffsetOutOfRange):
            chunk = await read_records(self._partitions, session, target, offset, count_max=1)
            for record in chunk.records:
                origin = origin_of(record)
                if record.offset == offset and origin is not None:
                    return DeadLetter(target, record, origin)
        raise UnknownDeadLetter(f"{target}@{offset}")

    async def _redriven_letters(self, topic: Topic) -> RedrivenLetters:
        name = redrive_name(topic)
        return RedrivenLetters(name, await find_open(self._shards, name))

    # -- sending back ----------------------------------------------------------------------------

    def _destination(self, session: Session, origin: Origin, to: str | None) -> TopicPartition:
        name = to or origin.target.topic
        self._gate.admit(session, Operation.APPEND, topic_resource(name))
        topic = self._catalog.find(name)
        topic.check_writable()
        return TopicPartition(name, origin.target.partition % topic.partition_count)

    def _is_full(
        self, run: Sequence[DeadLetter], destination: TopicPartition, rate: float | None
    ) -> bool:
        """Whether the run is too large for a batch; a batch holds one second of the rate."""
        count_max = (
            LETTER_BATCH_RECORDS_MAX if rate is None else min(LETTER_BATCH_RECORDS_MAX, int(rate))
        )
        size = sum(letter.size for letter in run)
        return len(run) > max(1, count_max) or size > self._dead_letter_writer.bytes_max(
            destination.topic
        )

    async def _send_run(
        self,
        run: Sequence[DeadLetter],
        destination: TopicPartition | None,
        plan: RedrivePlan,
        firsts: Mapping[TopicPartition, Offset],
    ) -> int:
        if not run or destination is None or plan.is_dry_run:
            return len(run)
        target = run[0].target
        topic = self._catalog.find(target.topic)
        await self._step(
            await self._redriven_letters(topic), topic, destination, run, least=firsts[target]
        )
        if plan.rate is not None:
            await asyncio.sleep(len(run) / plan.rate)
        return len(run)

    async def _step(
        self,
        redriven: RedrivenLetters,
        topic: Topic,
        destination: TopicPartition,
        letters: Sequence[DeadLetter],
        *,
        least: Offset,
    ) -> Offset:
        """Redrive some letters in a background task, which finishes even if the caller is
        cancelled. No other letter of the partition waits before `least`."""
        done = self._background.begin(self._send_back(redriven, topic, destination, letters, least))
        self._begun[topic.name] = done
        return await asyncio.shield(done)

    async def _send_back(
        self,
        redriven: RedrivenLetters,
        topic: Topic,
        destination: TopicPartition,
        letters: Sequence[DeadLetter],
        least: Offset,
    ) -> Offset:
        """Append the original records to `destination`, and mark the letters as redriven."""
        log_id = topic.log(letters[0].target.partition)
        redriven.check_room(log_id)
        intents = [
            DeadLetterIntent(
                name=redriven.name,
                topic_id=log_id.topic_id,
                topic=topic.name,
                partition=log_id.partition,
                offset=letter.record.offset,
                is_redrive=True,
            )
            for letter in letters
        ]
        now_ms = self._clock.now_ms()
        records = [revived(letter.record, now_ms) for letter in letters]
        target = self._catalog.find(destination.topic).log(destination.partition)
        self._dead_letter_writer.check_size(target, records)
        offset = await self._dead_letter_writer.append_once(
            redriven.shard, target, intents, records
        )
        await redriven.shard.wait_committed(redriven.name)
        await redriven.tidy(log_id, least)
        return offset


def dead_topic_of(topic: str) -> str:
    """The dead-letter topic of a topic; itself if it is one."""
    return topic if is_dead_topic(topic) else topic + DLQ_TOPIC_SUFFIX


def _is_selected(letter: DeadLetter, where: Filter | None, plan: RedrivePlan) -> bool:
    if plan.group is not None and letter.origin.group != plan.group:
        return False
    return where is None or where.matches(letter.record, topic=letter.origin.target.topic)
