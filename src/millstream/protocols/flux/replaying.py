"""PULL and REPLAY: read stored records, without subscriptions and acknowledgements.

Owns how far a connection has pulled each subject, and the order of a replay over many topics: by
time. Invariant: an answer is bounded in messages and in bytes; a PULL gives less then and says so,
a REPLAY that had to be cut ends with an error.
"""

import asyncio
from functools import partial
from typing import NamedTuple, TypeAlias, assert_never

from millstream.codec.records import Record
from millstream.engine.partitions.slices import AtTime, Earliest, LastRecords, Place
from millstream.engine.publish.sequence_numbers import place_of
from millstream.engine.publish.subjects import Pattern, subject_of
from millstream.engine.push.records import CHUNK_RECORDS_MAX, Chunk, read_records
from millstream.errors import OffsetOutOfRange, RequestError, UnknownTopic
from millstream.model import LogId, Offset, Session, TopicPartition
from millstream.names import INTERNAL_TOPICS
from millstream.protocols.flux.context import Services
from millstream.protocols.flux.messages import Messages
from millstream.protocols.flux.metering import Meter
from millstream.protocols.flux.wire import replies
from millstream.protocols.flux.wire.commands import (
    Pull,
    Replay,
    ReplayFirst,
    ReplayFrom,
    ReplayLast,
    ReplayOne,
    ReplayTime,
)
from millstream.protocols.flux.wire.replies import Reply

PULL_SID = b"pull"
REPLAY_SID = b"replay"
ANSWER_BYTES_MAX = 8 * 2**20  # Of values; at least one message is sent, however large.
TAIL_LOOKED_AT = (
    16  # More than were asked for: some records may be markers, which readers do not see.
)
TAIL_GROWTH = 8
EVERYTHING = Pattern.parse(">")

# The next offset by log: a topic that is created again under its name has other logs.
_Cursors: TypeAlias = dict[LogId, Offset]


class Stored(NamedTuple):
    target: TopicPartition
    record: Record


class Found(NamedTuple):
    stored: list[Stored]
    is_cut: bool = False  # More messages were left out for their size.


class Replays:
    def __init__(
        self, services: Services, session: Session, messages: Messages, meter: Meter
    ) -> None:
        self._services = services
        self._session = session
        self._messages = messages
        self._meter = meter
        self._count_max = services.config.flux.replay_count_max
        self._subjects_max = services.config.flux.subscriptions_max
        self._pulled: dict[str, _Cursors] = {}  # By subject.

    async def pull(self, command: Pull) -> Reply:
        """Answer with stored messages that this connection has not pulled yet."""
        count = min(command.count, self._count_max)
        try:
            pattern = Pattern.parse(command.subject)
            pulled = await self._pull(pattern, self._cursors(command.subject), count)
        except RequestError as problem:
            return [replies.refusal(problem)]
        encoded = self._encoded(pulled, PULL_SID)
        return [encoded, replies.ok(str(len(pulled)))]

    async def replay(self, command: Replay) -> Reply:
        try:
            replayed = await self._replay(command)
        except RequestError as problem:
            return [replies.refusal(problem)]
        if replayed is None:
            return [replies.error("there is no such message")]
        encoded = self._encoded(replayed.stored, REPLAY_SID)
        if replayed.is_cut:
            return [encoded, replies.error(f"cut after {len(replayed.stored)} messages")]
        return [encoded, replies.OK]

    def _encoded(self, stored: list[Stored], sid: bytes) -> bytes:
        encoded = self._messages.encode_records(stored, sid)
        self._meter.read(len(encoded))
        return encoded

    # -- pull --------------------------------------------------------------------------------------

    def _cursors(self, subject: str) -> _Cursors:
        cursors = self._pulled.get(subject)
        if cursors is None:
            if len(self._pulled) >= self._subjects_max:
                del self._pulled[next(iter(self._pulled))]
            cursors = self._pulled[subject] = {}
        return cursors

    async def _pull(self, pattern: Pattern, cursors: _Cursors, count: int) -> list[Stored]:
        stored: list[Stored] = []
        room = ANSWER_BYTES_MAX
        logs = self._logs(pattern)
        for gone in cursors.keys() - logs.values():
            del cursors[gone]
        for target, log_id in logs.items():
            while len(stored) < count and room > 0:
                chunk = await self._read(target, cursors.get(log_id, 0))
                for record in chunk.records:
                    cursors[log_id] = record.offset + 1
                    if pattern.matches(subject_of(target.topic, record.headers)):
                        stored.append(Stored(target, record))
                        room -= len(record.value or b"")
                        if len(stored) == count or room <= 0:
                            return stored
                cursors[log_id] = chunk.next_offset
                if chunk.next_offset >= chunk.end_offset:
                    break
        return stored

    # -- replay ------------------------------------------------------------------------------------

    async def _replay(self, command: Replay) -> Found | None:
        match command:
            case ReplayOne(sequence):
                first = await self._from(sequence, 1)
                return first if first and _begins_with(first, sequence) else None
            case ReplayFrom(sequence, count):
                return await self._from(sequence, min(count, self._count_max))
            case ReplayFirst(count):
                return await self._merged(Earliest(), min(count, self._count_max))
            case ReplayTime(timestamp_ms, count):
                return await self._merged(AtTime(timestamp_ms), min(count, self._count_max))
            case ReplayLast(count):
                return await self._last(min(count, self._count_max))
            case _:
                assert_never(command)

    async def _from(self, sequence: int, count: int) -> Found | None:
        place = place_of(sequence)
        if place is None:
            return None
        try:
            topic = self._services.topics.describe_number(self._session, place.topic_number)
            topic.log(place.partition)
        except UnknownTopic:
            return None
        return await self._along(TopicPartition(topic.name, place.partition), place.offset, count)

    async def _merged(self, start: Place, count: int) -> Found:
        """The first `count` messages of all topics from there on, in the order of time."""
        best: list[Stored] = []
        is_cut = False
        for target in self._logs():
            at = await self._services.partitions.find(self._session, target, start)
            if at is not None:
                of_partition = await self._along(target, at.offset, count)
                best, was_cut = _bounded(sorted(best + of_partition.stored, key=_age), count)
                is_cut = is_cut or was_cut or of_partition.is_cut
        return Found(best, is_cut and len(best) < count)

    async def _last(self, count: int) -> Found:
        """The last `count` messages of all topics, in the order of time."""
        newest: list[Stored] = []
        is_cut = False
        for target in self._logs():
            tail = await self._tail(target, count)
            newest, was_cut = _bounded_end(sorted(newest + tail.stored, key=_age), count)
            is_cut = is_cut or was_cut or tail.is_cut
        return Found(newest, is_cut and len(newest) < count)

    async def _tail(self, target: TopicPartition, count: int) -> Found:
        """The last messages of a partition, looking further back where records are markers or
        expired."""
        find = partial(self._services.partitions.find, self._session, target)
        first, looked_at = await find(Earliest()), count + TAIL_LOOKED_AT
        while True:
            at = await find(LastRecords(looked_at))
            if at is None or first is None:
                return Found([])
            of_partition = await self._to_the_end(target, at.offset, count)
            if (
                of_partition.is_cut
                or len(of_partition.stored) >= count
                or at.offset <= first.offset
            ):
                return of_partition
            looked_at *= TAIL_GROWTH

    async def _to_the_end(self, target: TopicPartition, offset: Offset, count: int) -> Found:
        """The last messages from an offset on; of those that come meanwhile some may be there."""
        chunk = await self._read(target, offset)
        end_offset = chunk.end_offset
        newest = _newest(target, Found([]), chunk, count)
        while chunk.next_offset < end_offset:
            chunk = await self._read(target, chunk.next_offset)
            newest = _newest(target, newest, chunk, count)
        return newest

    # -- parts -------------------------------------------------------------------------------------

    def _logs(self, pattern: Pattern = EVERYTHING) -> dict[TopicPartition, LogId]:
        """The partitions where such messages may be. A view would only show them twice."""
        return {
            TopicPartition(topic.name, partition): topic.log(partition)
            for topic in self._services.topics.list(self._session)
            if topic.name not in INTERNAL_TOPICS and not topic.is_view
            if pattern.may_be_in(topic.name)
            for partition in range(topic.partition_count)
        }

    async def _along(self, target: TopicPartition, offset: Offset, count: int) -> Found:
        """Read on from an offset, as far as one answer goes."""
        stored: list[Stored] = []
        while True:
            chunk = await self._read(target, offset, count - len(stored))
            stored += [Stored(target, record) for record in chunk.records]
            offset = chunk.next_offset
            bounded = Found(*_bounded(stored, count))
            if bounded.is_cut or len(stored) >= count or offset >= chunk.end_offset:
                return bounded

    async def _read(
        self, target: TopicPartition, offset: Offset, count_max: int = CHUNK_RECORDS_MAX
    ) -> Chunk:
        """Read on, from the start of the log if the next records are gone."""
        partitions, session = self._services.partitions, self._session
        await asyncio.sleep(0)  # Cached bytes are read without a wait: yield to other tasks.
        try:
            return await read_records(partitions, session, target, offset, count_max=count_max)
        except OffsetOutOfRange as problem:
            start = problem.start_offset
        return await read_records(partitions, session, target, start, count_max=count_max)


def _begins_with(stored: Found, sequence: int) -> bool:
    """Whether it is that very message: one that is gone has others behind it."""
    place = place_of(sequence)
    return (
        bool(stored.stored)
        and place is not None
        and (stored.stored[0].record.offset == place.offset)
    )


def _bounded(stored: list[Stored], count: int) -> tuple[list[Stored], bool]:
    """As many as an answer may hold, and whether bytes were the reason for leaving some out."""
    size = 0
    for index, (_, record) in enumerate(stored[:count]):
        size += len(record.value or b"")
        if size > ANSWER_BYTES_MAX and index:
            return stored[:index], True
    return stored[:count], False


def _newest(target: TopicPartition, before: Found, chunk: Chunk, count: int) -> Found:
    stored = before.stored + [Stored(target, record) for record in chunk.records]
    newest, is_cut = _bounded_end(stored, count)
    return Found(newest, before.is_cut or is_cut)


def _bounded_end(stored: list[Stored], count: int) -> tuple[list[Stored], bool]:
    """The last ones, as many as an answer may hold."""
    kept, is_cut = _bounded(stored[: -count - 1 : -1], count)
    return kept[::-1], is_cut


def _age(stored: Stored) -> tuple[int, TopicPartition, Offset]:
    return stored.record.timestamp, stored.target, stored.record.offset
