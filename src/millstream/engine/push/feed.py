"""Reads one partition for all subscriptions that receive its records.

Sources at the end of the log (live) share one reader, which decodes a record once and finds the
subscriptions for its subject in a trie; a source that is behind reads for itself until it has
caught up.

Invariant: a live source whose dispatcher is full falls behind at the record that did not fit, so a
slow subscription delays no other and misses no record.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, islice

from millstream.codec.lifetime import NEVER_MS, Lifetime, lifetime_of
from millstream.codec.records import Record
from millstream.engine.publish.subjects import SubjectTrie, subject_of
from millstream.engine.push.cursor import size_of
from millstream.engine.push.records import Chunk, Unreadable
from millstream.engine.push.subscription import Source, Subscription
from millstream.engine.push.values import Delivered, DeliveredRun
from millstream.engine.runtime.alarms import loop_ms
from millstream.engine.runtime.backoff import Backoff
from millstream.errors import Denied, OffsetOutOfRange, RequestError
from millstream.model import Offset, Session, TopicPartition
from millstream.ports import Clock
from millstream.replication.replica import Replica

_log = logging.getLogger(__name__)

# Of one chunk that goes past the queues: so many joins of its bytes take a few milliseconds.
SOURCES_PASSED_MAX = 64
SUBJECTS_PASSED_MAX = 64
RETRY_MS_MAX = 1_000  # Longest wait between two attempts to read after a failure.

Read = Callable[[Session, TopicPartition, Offset], Awaitable[Chunk]]


class Feed:
    def __init__(self, target: TopicPartition, replica: Replica | None, clock: Clock) -> None:
        """Without a replica here, the partition is read through its leader only."""
        self.target = target
        self.replica = replica
        self.position: Offset = 0  # Of all live sources; meaningless without any.
        self._live: dict[Source, None] = {}
        self._listeners: SubjectTrie[Source] = SubjectTrie()
        self._behind: dict[Source, None] = {}
        self._clock = clock
        self.retry_at_ms = 0  # After a failed read: the next attempt, by the loop's clock.
        self._backoff = Backoff(longest_ms=RETRY_MS_MAX)
        self._last_wait_ms = 0
        self._lifetime: Lifetime | None = None  # Of the records, as of this step.
        self._loop_behind_ms = 0  # Wall clock minus the loop's clock.

    def __bool__(self) -> bool:
        """Whether any source reads here."""
        return bool(self._live or self._behind)

    @property
    def is_elsewhere(self) -> bool:
        """Whether another node leads the partition: each read is a call."""
        return self.replica is None or not self.replica.is_leader

    def add(self, source: Source) -> None:
        self._behind[source] = None

    def remove(self, source: Source) -> None:
        if source in self._live:
            self._fall_behind(source, source.cursor.next_offset)
        self._behind.pop(source, None)

    def failed(self, problem: RequestError) -> int:
        """Reading failed; return how long to wait. The first times it may be an election."""
        wait_ms = self._backoff.next_ms()
        # Warned of once, when the waits are as long as they get.
        has_lasted = wait_ms == RETRY_MS_MAX and self._last_wait_ms < wait_ms
        level = logging.WARNING if has_lasted else logging.DEBUG
        _log.log(level, "cannot read target=%s problem=%s", self.target, problem)
        self._last_wait_ms = wait_ms
        self.retry_at_ms = loop_ms() + wait_ms
        return wait_ms

    def worked(self) -> None:
        self._backoff.reset()
        self._last_wait_ms = 0

    async def step(self, read: Read, touched: dict[Subscription, None]) -> bool:
        """Read once for all subscriptions that have room; return whether there is more to read.

        Adds subscriptions that got records to `touched`. Raises the error of a failed read.
        """
        has_more = False
        # Without a replica the leader alone leaves out what has expired.
        self._lifetime = None if self.replica is None else lifetime_of(self.replica.log.settings)
        self._loop_behind_ms = self._clock.now_ms() - loop_ms()
        for source in list(self._behind):
            if source.subscription.dispatcher.has_room and source in self._behind:
                has_more |= await self._catch_up(source, read, touched)
        if self._live:
            has_more |= await self._go_on(read, touched)
        return has_more

    def _ends_ms(self, record: Record) -> int:
        """When a record that is read in this step expires, by the loop's clock."""
        lifetime = self._lifetime
        return NEVER_MS if lifetime is None else lifetime.ends_ms(record) - self._loop_behind_ms

    # -- at the end of the log -------------------------------------------------------------------

    async def _go_on(self, read: Read, touched: dict[Subscription, None]) -> bool:
        first = next(iter(self._live))
        # Each read uses the next source's session, so a revoked right is noticed.
        self._live[first] = self._live.pop(first)
        try:
            chunk = await read(first.subscription.session, self.target, self.position)
        except OffsetOutOfRange as problem:
            if self.position < problem.start_offset:  # Retention was faster.
                self.position = problem.start_offset
                return True
            for source in list(self._live):
                self._fall_behind(source, self.position)
            return True
        except Denied as refusal:
            self._refuse(first, refusal)
            return bool(self)
        if chunk.unreadable is not None and chunk.unreadable.offset >= self.position:
            self._give_up(chunk.unreadable, touched)
        # The others were read by another turn meanwhile.
        records = [record for record in chunk.records if record.offset >= self.position]
        passed = self._pass_on(records, touched)
        is_done = passed.issuperset(self._live)
        for record in () if is_done else records:
            subject = subject_of(self.target.topic, record.headers)
            listeners = self._listeners.match(subject)
            if not listeners:
                continue
            size, ends_ms = size_of(record), self._ends_ms(record)
            for source in listeners:
                if source in passed:
                    continue
                if source.subscription.dispatcher.has_room:
                    source.offer(record, subject, size, ends_ms)
                    touched[source.subscription] = None
                else:
                    self._fall_behind(source, record.offset)
        self.position = max(self.position, chunk.next_offset)
        return self.position < chunk.end_offset and bool(self._live)

    def _pass_on(self, records: Sequence[Record], touched: dict[Subscription, None]) -> set[Source]:
        """Send records to the sources that queue nothing; return those that are done with them.

        Sources of the same records share one run, and with it the work of encoding it.
        """
        passed: set[Source] = set()
        if self._lifetime is not None:
            return passed  # They may expire while they wait.
        by_subject: dict[str, list[Delivered]] = {}
        for record in records:
            subject = subject_of(self.target.topic, record.headers)
            delivered = Delivered(self.target, record, subject, 1)
            by_subject.setdefault(subject, []).append(delivered)
        if not by_subject or len(by_subject) > SUBJECTS_PASSED_MAX:
            return passed
        subjects_of: dict[Source, list[str]] = {}
        for subject in by_subject:
            for source in self._listeners.match(subject):
                subjects_of.setdefault(source, []).append(subject)
        runs: dict[tuple[str, ...], DeliveredRun] = {}
        for source in islice(subjects_of, SOURCES_PASSED_MAX):
            subjects = tuple(subjects_of[source])
            run = runs.get(subjects)
            if run is None:
                run = runs[subjects] = _run([by_subject[subject] for subject in subjects])
            if source.subscription.pass_on(self.target, run):
                passed.add(source)
                touched[source.subscription] = None
        return passed

    def _give_up(self, batch: Unreadable, touched: dict[Subscription, None]) -> None:
        for source in list(self._live):
            if source.subscription.dispatcher.has_room:
                source.give_up(batch)
                touched[source.subscription] = None
            else:
                self._fall_behind(source, batch.offset)

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
        try:
            # Reads with its own session even where another source has read: it may have
            # fewer rights.
            chunk = source.ahead or await read(
                subscription.session, self.target, cursor.next_offset
            )
        except OffsetOutOfRange as problem:
            if cursor.next_offset < problem.start_offset:
                cursor.move_on(problem.start_offset)
            elif source in self._behind:
                self._cut(source, problem.end_offset)
            return True
        except Denied as refusal:
            self._refuse(source, refusal)
            return False
        if source not in self._behind:
            return False  # It went while the log was read.
        touched[subscription] = None
        if not self.is_elsewhere and self.replica is not None:
            end_offset = self.replica.log.end_offset
            if cursor.known_end_offset > end_offset:
                self._cut(source, end_offset)
        return self._take(source, chunk)

    def _take(self, source: Source, chunk: Chunk) -> bool:
        """Offer records until the dispatcher is full; return whether there is more to read."""
        cursor, subscription = source.cursor, source.subscription
        source.ahead = None
        if chunk.unreadable is not None and chunk.unreadable.offset >= cursor.next_offset:
            source.give_up(chunk.unreadable)
        matches: dict[str, bool] = {}  # By subject: few subjects, many records.
        for at, record in enumerate(chunk.records):
            if not subscription.dispatcher.has_room:
                cursor.move_on(record.offset)
                source.ahead = chunk._replace(records=chunk.records[at:])
                return False
            subject = subject_of(self.target.topic, record.headers)
            if subject not in matches:
                matches[subject] = subscription.pattern.matches(subject)
            if matches[subject]:
                source.offer(record, subject, size_of(record), self._ends_ms(record))
        cursor.move_on(chunk.next_offset)
        if cursor.next_offset < chunk.end_offset:
            return True
        if not self._live:
            self.position = cursor.next_offset
        if cursor.next_offset != self.position:
            return True  # The live sources are at another offset; they get here after this step.
        self._go_live(source)
        return False

    def _cut(self, source: Source, end_offset: Offset) -> None:
        """The log is shorter than it was: a crash lost records that were not synced."""
        name = source.subscription.name
        _log.warning(
            "a log was cut target=%s end=%d subscription=%s", self.target, end_offset, name
        )
        source.ahead = None
        source.subscription.dispatcher.cut(self.target, end_offset)

    def _refuse(self, source: Source, refusal: Denied) -> None:
        """The right to read was revoked: remove the source until the client subscribes again."""
        _log.info("stopped delivering subscription=%s %s", source.subscription.name, refusal)
        self.remove(source)


def _run(parts: list[list[Delivered]]) -> DeliveredRun:
    """Records of several subjects in the order of their offsets."""
    if len(parts) == 1:
        return DeliveredRun(parts[0])
    return DeliveredRun(sorted(chain(*parts), key=lambda delivered: delivered.record.offset))
