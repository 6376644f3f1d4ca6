"""PULL and REPLAY: reading what is stored, without subscriptions and acknowledgements.

Owns how far a connection has pulled each subject, and the order of a replay over many topics: by
time. The one thing to know: what one answer may hold is bounded in messages and in bytes; a PULL
gives less then and says so, a REPLAY that had to be cut ends with an error.
"""

import asyncio
from typing import NamedTuple, assert_never

from millstream.codec.records import Record
from millstream.engine.delivery.records import CHUNK_RECORDS_MAX, Chunk, read_records
from millstream.engine.reading import AtTime, Earliest, LastRecords, Place
from millstream.engine.sequences import place_of
from millstream.engine.subjects import Pattern, subject_of
from millstream.errors import OffsetOutOfRange, RequestError, UnknownTopic
from millstream.model import INTERNAL_TOPICS, Offset, Session, TopicPartition
from millstream.protocols.flux import replies
from millstream.protocols.flux.commands import (
    Pull,
    Replay,
    ReplayFirst,
    ReplayFrom,
    ReplayLast,
    ReplayOne,
    ReplayTime,
)
from millstream.protocols.flux.context import Services
from millstream.protocols.flux.messages import Messages
from millstream.protocols.flux.metering import Meter
from millstream.protocols.flux.replies import Reply

PULL_SID = b"pull"
REPLAY_SID = b"replay"
ANSWER_BYTES_MAX = 8 * 2**20  # Of values; at least one message is sent, however large.
LAST_LOOKED_AT = 16  # Of the last records some may be markers, which nobody sees.


class Stored(NamedTuple):
    target: TopicPartition
    record: Record


class Found(NamedTuple):
    stored: list[Stored]
    is_cut: bool = False  # There is more that would have been too much.


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
        self._pulled: dict[str, dict[TopicPartition, Offset]] = {}  # By subject: what comes next.

    async def pull(self, command: Pull) -> Reply:
        """Answer with stored messages that this connection has not pulled yet."""
        if command.count > self._count_max:
            return [replies.error("invalid count")]
        try:
            pattern = Pattern.parse(command.subject)
            found = await self._pull(pattern, self._cursors(command.subject), command.count)
        except RequestError as problem:
            return [replies.refusal(problem)]
        spelled = self._spelled(found, PULL_SID)
        return [spelled, replies.ok(str(len(found)))]

    async def replay(self, command: Replay) -> Reply:
        try:
            found = await self._replay(command)
        except RequestError as problem:
            return [replies.refusal(problem)]
        if found is None:
            return [replies.error("there is no such message")]
        spelled = self._spelled(found.stored, REPLAY_SID)
        if found.is_cut:
            return [spelled, replies.error(f"cut after {len(found.stored)} messages")]
        return [spelled, replies.OK]

    def _spelled(self, stored: list[Stored], sid: bytes) -> bytes:
        spelled = self._messages.spell_records(stored, sid)
        self._meter.read(len(spelled))
        return spelled

    # -- pull --------------------------------------------------------------------------------------

    def _cursors(self, subject: str) -> dict[TopicPartition, Offset]:
        cursors = self._pulled.get(subject)
        if cursors is None:
            if len(self._pulled) >= self._subjects_max:
                del self._pulled[next(iter(self._pulled))]
            cursors = self._pulled[subject] = {}
        return cursors

    async def _pull(
        self, pattern: Pattern, cursors: dict[TopicPartition, Offset], count: int
    ) -> list[Stored]:
        found: list[Stored] = []
        room = ANSWER_BYTES_MAX
        for target in self._targets(pattern):
            while len(found) < count and room > 0:
                chunk = await self._read(target, cursors.get(target, 0))
                for record in chunk.records:
                    cursors[target] = record.offset + 1
                    if pattern.matches(subject_of(target.topic, record.headers)):
                        found.append(Stored(target, record))
                        room -= len(record.value or b"")
                        if len(found) == count or room <= 0:
                            return found
                cursors[target] = chunk.next_offset
                if chunk.next_offset >= chunk.end_offset:
                    break
        return found

    # -- replay ------------------------------------------------------------------------------------

    async def _replay(self, command: Replay) -> Found | None:
        match command:
            case ReplayOne(sequence):
                found = await self._from(sequence, 1)
                return found if found and _begins_with(found, sequence) else None
            case ReplayFrom(sequence, count):
                return await self._from(sequence, min(count, self._count_max))
            case ReplayFirst(count):
                return await self._merged(Earliest(), min(count, self._count_max))
            case ReplayTime(timestamp_ms, count):
                return await self._merged(AtTime(timestamp_ms), min(count, self._count_max))
            case ReplayLast():
                return await self._last()
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
        for target in self._targets():
            at = await self._services.partitions.find(self._session, target, start)
            if at is not None:
                found = await self._along(target, at.offset, count)
                best, was_cut = _bounded(sorted(best + found.stored, key=_age), count)
                is_cut = is_cut or was_cut or found.is_cut
        return Found(best, is_cut and len(best) < count)

    async def _last(self) -> Found:
        newest: list[Stored] = []
        for target in self._targets():
            tail = LastRecords(LAST_LOOKED_AT)
            at = await self._services.partitions.find(self._session, target, tail)
            if at is not None:
                found = await self._along(target, at.offset, LAST_LOOKED_AT)
                newest = sorted(newest + found.stored[-1:], key=_age)[-1:]
        return Found(newest)

    # -- parts -------------------------------------------------------------------------------------

    def _targets(self, pattern: Pattern | None = None) -> list[TopicPartition]:
        """The partitions where such messages may be. A view would only show them twice."""
        return [
            TopicPartition(topic.name, partition)
            for topic in self._services.topics.list(self._session)
            if topic.name not in INTERNAL_TOPICS and not topic.is_view
            if pattern is None or pattern.may_be_in(topic.name)
            for partition in range(topic.partition_count)
        ]

    async def _along(self, target: TopicPartition, offset: Offset, count: int) -> Found:
        """Read on from an offset, as far as one answer goes."""
        stored: list[Stored] = []
        while True:
            chunk = await self._read(target, offset, count - len(stored))
            stored += [Stored(target, record) for record in chunk.records]
            offset = chunk.next_offset
            found = Found(*_bounded(stored, count))
            if found.is_cut or len(stored) >= count or offset >= chunk.end_offset:
                return found

    async def _read(
        self, target: TopicPartition, offset: Offset, count_max: int = CHUNK_RECORDS_MAX
    ) -> Chunk:
        """Read on, from the start of the log if what came next is not there any more."""
        partitions, session = self._services.partitions, self._session
        await asyncio.sleep(0)  # What is in memory is read without a wait: let others have a turn.
        try:
            return await read_records(partitions, session, target, offset, count_max=count_max)
        except OffsetOutOfRange as problem:
            start = problem.start_offset
        return await read_records(partitions, session, target, start, count_max=count_max)


def _begins_with(found: Found, sequence: int) -> bool:
    """Whether it is that very message: one that is gone has others behind it."""
    place = place_of(sequence)
    return (
        bool(found.stored) and place is not None and (found.stored[0].record.offset == place.offset)
    )


def _bounded(stored: list[Stored], count: int) -> tuple[list[Stored], bool]:
    """As many as an answer may hold, and whether bytes were the reason for leaving some out."""
    size = 0
    for index, (_, record) in enumerate(stored[:count]):
        size += len(record.value or b"")
        if size > ANSWER_BYTES_MAX and index:
            return stored[:index], True
    return stored[:count], False


def _age(stored: Stored) -> tuple[int, TopicPartition, Offset]:
    return stored.record.timestamp, stored.target, stored.record.offset
