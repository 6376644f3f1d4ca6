"""Coordinates all groups of one offsets partition, while this node leads it.

Owns its live groups and what is written about them: restores, saves, answers, closes.

Invariant: an answer to a member waits until everything written before it is committed.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from millstream.codec.records import Record
from millstream.engine.groups.classic.membership import Membership
from millstream.engine.groups.classic.roster import Ticket
from millstream.engine.groups.classic.vocabulary import Answer, Effects, GroupState, Rules
from millstream.engine.groups.consumer.group import ConsumerGroup
from millstream.engine.groups.consumer.vocabulary import ConsumerRules, ConsumersState
from millstream.engine.groups.entries import (
    consumer_entries,
    consumer_tombstones,
    group_entry,
    group_tombstone,
)
from millstream.engine.groups.waiters import Waiters
from millstream.engine.ledgers.ledger import Entry
from millstream.engine.ledgers.shards import LOAD_RECORDS, Shard
from millstream.engine.runtime.alarms import Alarms, loop_ms
from millstream.errors import NotCoordinator, RequestError
from millstream.errors.groups import InconsistentProtocol
from millstream.internal_topics.groups import GroupsState, StoredGroup, check_readable
from millstream.model import NO_PRODUCER, Offset, Producer
from millstream.ports import Clock
from millstream.replication.replica import Replica

_log = logging.getLogger(__name__)

CONSUMER_PROTOCOL_TYPE = "consumer"  # Classic groups of consumers use it too.


class Group:
    """A live group: its members in memory, and how far in the log it was written about.

    A group has members of the classic kind, or `consumers`, never both.
    """

    __slots__ = (
        "alarm_ms",
        "consumers",
        "coordinator",
        "group_id",
        "membership",
        "written_offset",
    )

    def __init__(self, coordinator: "Coordinator", group_id: str, membership: Membership) -> None:
        self.coordinator = coordinator
        self.group_id = group_id
        self.membership = membership
        self.consumers: ConsumerGroup | None = None
        self.alarm_ms: int | None = None
        self.written_offset: Offset = 0

    @property
    def state(self) -> GroupState | ConsumersState:
        if self.consumers is None or self.is_dead:
            return self.membership.group.state
        return self.consumers.state

    @property
    def protocol_type(self) -> str:
        if self.consumers is not None:
            return CONSUMER_PROTOCOL_TYPE
        return self.membership.group.protocol_type or ""

    @property
    def is_dead(self) -> bool:
        return self.membership.group.state is GroupState.DEAD

    @property
    def is_empty(self) -> bool:
        return self.state in {GroupState.EMPTY, ConsumersState.EMPTY}

    @property
    def is_idle(self) -> bool:
        """Whether there are no members, and none that were asked to join again with an id."""
        return self.is_empty and not self.membership.group.pending

    @property
    def wake_ms(self) -> int | None:
        return self.membership.group.wake_ms if self.consumers is None else self.consumers.wake_ms

    @property
    def is_committed(self) -> bool:
        """Whether everything written about it is committed and applied."""
        return self.written_offset <= self.coordinator.ledger.applied_offset


class Coordinator(Shard):
    def __init__(
        self,
        replica: Replica,
        clock: Clock,
        rules: Rules,
        consumer_rules: Callable[[str], ConsumerRules],
        waiters: Waiters,
        alarms: Alarms[Group],
    ) -> None:
        self.stored = GroupsState()
        self.groups: dict[str, Group] = {}
        self._clock = clock
        self._rules = rules
        self._consumer_rules = consumer_rules
        self._waiters = waiters
        self._alarms = alarms
        # Answers that wait for what was written before them, in the order of those offsets.
        self._held: deque[tuple[Offset, str, Ticket, Answer]] = deque()
        super().__init__(replica, clock, transactions=self.stored)

    # -- groups ----------------------------------------------------------------------------------

    def open(self, group_id: str) -> Group:
        """The live group, created if there is none."""
        assert self.is_loaded
        group = self.groups.get(group_id)
        if group is None:
            group = Group(self, group_id, Membership(self._rules))
            self.groups[group_id] = group
        return group

    def find_stored(self, group_id: str) -> StoredGroup:
        """The committed state of a group; an empty one for an unknown group."""
        return self.stored.find(group_id) or StoredGroup()

    def apply_effects(self, group: Group, effects: Effects) -> None:
        """Save, then answer, what a step of the group's membership asks for."""
        answers = effects.answers
        if effects.must_save:
            try:
                self._save(group)
            except RequestError as problem:
                _log.warning("could not save group=%s problem=%s", group.group_id, problem)
                answers = [(ticket, problem) for ticket, _ in answers]
                answers += group.membership.unsaved(loop_ms()).answers
        for ticket, answer in answers:
            if group.is_committed:
                self._waiters.answer(ticket, answer)
            else:
                held = (self.ledger.written_offset, group.group_id, ticket, answer)
                self._held.append(held)
        self.set_alarm(group)

    def abandon(self, group: Group, ticket: Ticket) -> None:
        """Drop the ticket of a member whose connection closed before its answer."""
        if group.is_dead or group.consumers is not None:
            return
        self.apply_effects(group, group.membership.abandon(ticket, loop_ms()))
        self.drop_if_bare(group)

    def tick(self, group: Group) -> None:
        """Process the deadlines of a group whose alarm is due."""
        group.alarm_ms = None
        if group.is_dead:
            return
        if group.consumers is None:
            self.apply_effects(group, group.membership.tick(loop_ms()))
        else:
            self._tick_consumers(group, group.consumers)
        self.drop_if_bare(group)

    def set_alarm(self, group: Group) -> None:
        wake_ms = group.wake_ms
        if wake_ms is not None and (group.alarm_ms is None or wake_ms < group.alarm_ms):
            group.alarm_ms = wake_ms
            self._alarms.set(wake_ms, group)

    # -- the two kinds of groups -----------------------------------------------------------------

    def consumers_of(self, group: Group) -> ConsumerGroup:
        """The members of a consumer group; new ones, for a group that has no members at all.

        It becomes a consumer group when they are first saved.
        """
        assert group.consumers is not None or group.is_idle
        rules = self._consumer_rules(group.group_id)
        if group.consumers is None:
            return ConsumerGroup(group.group_id, rules)
        group.consumers.rules = rules
        return group.consumers

    def save_consumers(self, group: Group, consumers: ConsumerGroup) -> None:
        """Write what has changed. A failure is raised; the change is written the next time."""
        entries = consumer_entries(consumers, changed_ms=self._clock.now_ms())
        if group.consumers is None:
            entries.append(group_tombstone(group.group_id))
        if entries:
            self.write(group, entries)
            consumers.saved()
        group.consumers = consumers
        self.set_alarm(group)

    def make_classic(self, group: Group) -> None:
        """Admit classic members to a group that has no others."""
        if group.consumers is None:
            return
        if group.consumers.members:
            raise InconsistentProtocol("the members of the group use the consumer protocol")
        self.write(group, consumer_tombstones(group.consumers))
        group.consumers = None

    def _tick_consumers(self, group: Group, consumers: ConsumerGroup) -> None:
        gone = consumers.tick(loop_ms())
        if gone:
            _log.info("members timed out group=%s count=%d", group.group_id, len(gone))
        try:
            self.save_consumers(group, consumers)
        except RequestError as problem:
            _log.warning("could not save group=%s problem=%s", group.group_id, problem)
            self.set_alarm(group)

    # -- writing ---------------------------------------------------------------------------------

    async def propose(
        self, group: Group, entries: Sequence[Entry], *, producer: Producer = NO_PRODUCER
    ) -> None:
        """Write about a group; done when it is committed and applied."""
        self.write(group, entries, producer=producer)
        await self.ledger.outcome(group.written_offset)

    def write(
        self, group: Group, entries: Sequence[Entry], *, producer: Producer = NO_PRODUCER
    ) -> None:
        """Write about a group without waiting for it."""
        group.written_offset = self.ledger.write(entries, producer=producer)

    async def wait_committed(self, group: Group) -> None:
        """Wait until nothing written about the group is under way."""
        while not group.is_committed:
            await self.applied(group, group.written_offset)

    async def applied(self, group: Group, end_offset: Offset) -> None:
        """Wait until all that was written before `end_offset` is committed and applied."""
        while self.ledger.applied_offset < end_offset:
            if self.is_gone:
                raise self._moved(group.group_id)  # This node no longer folds the log.
            await self._replica.committed(end_offset, None)

    def drop_if_bare(self, group: Group) -> None:
        """Drop an idle group that has nothing stored, such as one of an aborted first join."""
        if group.is_idle and group.is_committed and self.stored.find(group.group_id) is None:
            self.drop(group)

    def drop(self, group: Group) -> None:
        """Close a deleted group. The caller removes its records from the log."""
        assert group.is_empty
        del self.groups[group.group_id]
        group.membership.close(NotCoordinator(group.group_id, None))

    # -- loading and forgetting ------------------------------------------------------------------

    def _loaded(self) -> None:
        if self.groups or self.skipped_count:
            _log.info(
                "loaded groups=%d log=%s skipped_records=%d",
                len(self.groups),
                self._replica.id,
                self.skipped_count,
            )

    def _restore(self) -> Iterator[None]:
        for count, group_id in enumerate(list(self.stored), start=1):
            group = self._restored(group_id, self.find_stored(group_id))
            self.groups[group_id] = group
            self.set_alarm(group)
            if count % LOAD_RECORDS == 0:
                yield

    def _restored(self, group_id: str, stored: StoredGroup) -> Group:
        value, now_ms = stored.value, loop_ms()
        if value is None:
            group = Group(self, group_id, Membership(self._rules))
        else:
            group = Group(self, group_id, Membership.restore(value, self._rules, now_ms=now_ms))
        if stored.consumers is not None and stored.consumers.value is not None:
            group.consumers = ConsumerGroup.restore(
                group_id, stored.consumers, self._consumer_rules(group_id), now_ms=now_ms
            )
        return group

    def _folded(self) -> None:
        held, applied_offset = self._held, self.ledger.applied_offset
        while held and held[0][0] <= applied_offset:
            _, _, ticket, answer = held.popleft()
            self._waiters.answer(ticket, answer)

    def _close(self) -> None:
        for group in self.groups.values():
            for ticket, answer in group.membership.close(self._moved(group.group_id)).answers:
                self._waiters.answer(ticket, answer)
        for _, group_id, ticket, _ in self._held:
            self._waiters.answer(ticket, self._moved(group_id))
        self._held.clear()
        self.groups.clear()

    # -- parts -----------------------------------------------------------------------------------

    def _apply(self, record: Record) -> None:
        self.stored.apply(record)

    def _check(self, entry: Entry) -> None:
        check_readable(entry.key, entry.value)

    def _save(self, group: Group) -> None:
        value = group.membership.group.value(changed_ms=self._clock.now_ms())
        self.write(group, [group_entry(group.group_id, value)])
