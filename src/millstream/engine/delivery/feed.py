"""Records of one partition on their way to all subscriptions that listen there.

Owns who reads where: those at the end of the log share one reader, which decodes a record once and
finds its listeners in a trie; those behind read for themselves until they have caught up. The one
thing to know: a live source whose desk is full falls behind at the record that did not fit, so a
slow subscription holds up nobody and misses nothing.
"""

import logging
from collections.abc import Awaitable, Callable

from millstream.engine.delivery.cursor import Cursor
from millstream.engine.delivery.records import Chunk
from millstream.engine.delivery.subscription import Source, Subscription
from millstream.engine.subjects import SubjectTrie, subject_of
from millstream.errors import Denied, OffsetOutOfRange
from millstream.model import LogId, Offset, Session, TopicPartition

log = logging.getLogger(__name__)

Read = Callable[[Session, TopicPartition, Offset], Awaitable[Chunk]]


class Feed:
    def __init__(self, target: TopicPartition, log_id: LogId) -> None:
        self.target = target
        self.log_id = log_id
        self.position: Offset = 0  # Where all live sources are; of no account without any.
        self._live: dict[Source, None] = {}
        self._listeners: SubjectTrie[Source] = SubjectTrie()
        self._behind: dict[Source, None] = {}

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return bool(self._live or self._behind)

    def add(self, source: Source) -> None:
        self._behind[source] = None

    def remove(self, source: Source) -> None:
        if source in self._live:
            self._fall_behind(source, source.cursor.next_offset)
        self._behind.pop(source, None)

    async def step(self, read: Read, touched: dict[Subscription, None]) -> bool:
        """Read once for everybody who has room; say whether there is more to read at once.

        Whoever got records is `touched`. Raises what stands in the way of reading.
        """
        has_more = False
        for source in list(self._behind):
            if source.subscription.desk.has_room and source in self._behind:
                has_more |= await self._catch_up(source, read, touched)
        if self._live:
            has_more |= await self._go_on(read, touched)
        return has_more

    # -- at the end of the log -------------------------------------------------------------------

    async def _go_on(self, read: Read, touched: dict[Subscription, None]) -> bool:
        first = next(iter(self._live))
        try:
            chunk = await read(first.subscription.session, self.target, self.position)
        except OffsetOutOfRange as problem:
            # Retention was faster; or the log is shorter than it was, and what comes is new.
            self.position = max(problem.start_offset, min(self.position, problem.end_offset))
            return True
        except Denied as refusal:
            self._refuse(first, refusal)
            return bool(self)
        for record in chunk.records:
            if record.offset < self.position:
                continue  # Read by another turn meanwhile.
            subject = subject_of(self.target.topic, record.headers)
            for source in self._listeners.match(subject):
                if source.subscription.desk.has_room:
                    source.offer(record, subject)
                    touched[source.subscription] = None
                else:
                    self._fall_behind(source, record.offset)
        self.position = max(self.position, chunk.next_offset)
        return self.position < chunk.end_offset and bool(self._live)

    def _go_live(self, source: Source) -> None:
        del self._behind[source]
        self._live[source] = None
        self._listeners.add(source.subscription.pattern, source)
        source.is_live = True

    def _fall_behind(self, source: Source, offset: Offset) -> None:
        del self._live[source]
        self._listeners.remove(source.subscription.pattern, source)
        source.is_live = False
        source.cursor.move_on(offset)
        self._behind[source] = None

    # -- behind ----------------------------------------------------------------------------------

    async def _catch_up(
        self, source: Source, read: Read, touched: dict[Subscription, None]
    ) -> bool:
        cursor, subscription = source.cursor, source.subscription
        if self._live and cursor.next_offset >= self.position:
            if cursor.next_offset == self.position:
                self._go_live(source)
            return False  # Else the others are on their way to where it is.
        try:
            chunk = source.ahead or await read(
                subscription.session, self.target, cursor.next_offset
            )
        except OffsetOutOfRange as problem:
            _move_into(cursor, problem)
            return True
        except Denied as refusal:
            self._refuse(source, refusal)
            return False
        if source not in self._behind:
            return False  # It went while the log was read.
        touched[subscription] = None
        return self._take(source, chunk)

    def _take(self, source: Source, chunk: Chunk) -> bool:
        """Take what there is room for; say whether there is more to read."""
        cursor, subscription = source.cursor, source.subscription
        source.ahead = None
        for at, record in enumerate(chunk.records):
            if not subscription.desk.has_room:
                cursor.move_on(record.offset)
                source.ahead = chunk._replace(records=chunk.records[at:])
                return False
            subject = subject_of(self.target.topic, record.headers)
            if subscription.pattern.matches(subject):
                source.offer(record, subject)
        cursor.move_on(chunk.next_offset)
        if cursor.next_offset < chunk.end_offset:
            return True
        if not self._live:
            self.position = cursor.next_offset
        if cursor.next_offset == self.position:
            self._go_live(source)
        return False

    def _refuse(self, source: Source, refusal: Denied) -> None:
        """Its rights were taken away: it reads here no more, until it subscribes again."""
        log.info("stopped delivering subscription=%s %s", source.subscription.name, refusal)
        self.remove(source)


def _move_into(cursor: Cursor, problem: OffsetOutOfRange) -> None:
    if cursor.next_offset < problem.start_offset:
        cursor.move_on(problem.start_offset)
    else:
        cursor.next_offset = problem.end_offset
