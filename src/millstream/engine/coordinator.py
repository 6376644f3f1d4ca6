"""The coordinator of all groups of one offsets partition, as long as this node leads it.

Owns its live groups and the ledger that remembers them: loading, saving, answering, forgetting.
The one thing to know: what a member is told rests on what is committed, so an answer waits until
all that was written before it is. When leadership goes, everything here goes with it.
"""

import logging
from collections import deque
from collections.abc import Iterator, Sequence

from millstream.codec.records import Record
from millstream.control.groups import GroupsState, StoredGroup
from millstream.engine.group_entries import group_entry
from millstream.engine.ledger import Entry, Ledger
from millstream.engine.membership import Membership
from millstream.engine.rebalance import Answer, Effects, GroupState, Rules
from millstream.engine.roster import Ticket
from millstream.engine.waiting import Alarms, Waiters, loop_ms
from millstream.errors import (
    NotCoordinator,
    NotLeader,
    RequestError,
    StorageError,
    StorageUnavailable,
)
from millstream.model import Offset
from millstream.ports import Clock
from millstream.replication.replica import Replica

log = logging.getLogger(__name__)

# Small enough that a step of loading holds up the event loop for a few milliseconds at most.
LOAD_RECORDS = 100


class Group:
    """A live group: its members in memory, and how far in the log it was written about."""

    __slots__ = ("alarm_ms", "coordinator", "group_id", "membership", "written_offset")

    def __init__(self, coordinator: "Coordinator", group_id: str, membership: Membership) -> None:
        self.coordinator = coordinator
        self.group_id = group_id
        self.membership = membership
        self.alarm_ms: int | None = None
        self.written_offset: Offset = 0

    @property
    def state(self) -> GroupState:
        return self.membership.group.state

    @property
    def is_idle(self) -> bool:
        """Whether nobody is here and nobody was asked to come again."""
        return self.state is GroupState.EMPTY and not self.membership.group.pending

    @property
    def is_settled(self) -> bool:
        """Whether all that was written about it is committed and applied."""
        return self.written_offset <= self.coordinator.ledger.applied_offset


class Coordinator:
    def __init__(
        self,
        replica: Replica,
        clock: Clock,
        rules: Rules,
        waiters: Waiters,
        alarms: Alarms[Group],
    ) -> None:
        self.stored = GroupsState()
        self.groups: dict[str, Group] = {}
        self.ledger: Ledger[None] = Ledger(replica, clock, self._apply)
        self.is_loaded = False
        self.is_gone = False
        self._replica = replica
        self._epoch = replica.core.epoch
        self._clock = clock
        self._rules = rules
        self._waiters = waiters
        self._alarms = alarms
        self._loading = self._load()
        # Answers that wait for what was written before them, in the order of those offsets.
        self._held: deque[tuple[Offset, str, Ticket, Answer]] = deque()
        replica.watch(self._follow)

    # -- groups ----------------------------------------------------------------------------------

    def open(self, group_id: str) -> Group:
        """The live group, made if there is none."""
        assert self.is_loaded
        group = self.groups.get(group_id)
        if group is None:
            group = Group(self, group_id, Membership(self._rules))
            self.groups[group_id] = group
        return group

    def find_stored(self, group_id: str) -> StoredGroup:
        """What is committed about a group; nothing, for one that is not known."""
        return self.stored.find(group_id) or StoredGroup()

    def carry_out(self, group: Group, effects: Effects) -> None:
        """Save and answer, in this order, what a step of the group's membership asks for."""
        answers = effects.answers
        if effects.must_save:
            try:
                self._save(group)
            except RequestError as problem:
                log.warning("could not save group=%s problem=%s", group.group_id, problem)
                answers = [(ticket, problem) for ticket, _ in answers]
                answers += group.membership.unsaved(loop_ms()).answers
        for ticket, answer in answers:
            if group.is_settled:
                self._waiters.answer(ticket, answer)
            else:
                held = (self.ledger.written_offset, group.group_id, ticket, answer)
                self._held.append(held)
        self.set_alarm(group)

    def tick(self, group: Group) -> None:
        """A group's alarm went off."""
        group.alarm_ms = None
        if group.state is GroupState.DEAD:
            return
        self.carry_out(group, group.membership.tick(loop_ms()))
        self.drop_if_bare(group)

    def set_alarm(self, group: Group) -> None:
        wake_ms = group.membership.group.wake_ms
        if wake_ms is not None and (group.alarm_ms is None or wake_ms < group.alarm_ms):
            group.alarm_ms = wake_ms
            self._alarms.set(wake_ms, group)

    async def propose(self, group: Group, entries: Sequence[Entry]) -> None:
        """Write about a group; done when it is committed and applied."""
        self.write(group, entries)
        await self.ledger.outcome(group.written_offset)

    def write(self, group: Group, entries: Sequence[Entry]) -> None:
        """Write about a group without waiting for it."""
        group.written_offset = self.ledger.write(entries)

    async def settle(self, group: Group) -> None:
        """Wait until nothing written about the group is under way."""
        while not group.is_settled:
            if self.is_gone:
                raise self._moved(group.group_id)  # Nobody folds here any more.
            await self._replica.committed(group.written_offset, None)

    def drop_if_bare(self, group: Group) -> None:
        """Keep no group of which there is nothing to remember: someone asked once and left."""
        if group.is_idle and group.is_settled and self.stored.find(group.group_id) is None:
            self.drop(group)

    def drop(self, group: Group) -> None:
        """The group is over. What is left of it in the log is the caller's to remove."""
        assert group.state is GroupState.EMPTY
        del self.groups[group.group_id]
        group.membership.close(NotCoordinator(group.group_id, None))

    # -- loading and forgetting ------------------------------------------------------------------

    def load_some(self) -> None:
        """Take a step of loading, of a few milliseconds."""
        if self.is_loaded or self.is_gone:
            return
        try:
            next(self._loading)
        except StopIteration:
            self.is_loaded = True
            if self.groups or self.stored.skipped_count:
                log.info(
                    "loaded groups=%d log=%s skipped_records=%d",
                    len(self.groups),
                    self._replica.id,
                    self.stored.skipped_count,
                )
        except StorageError as problem:
            self._replica.refused(problem)

    def _load(self) -> Iterator[None]:
        while not self.ledger.fold(records_max=LOAD_RECORDS):
            yield
        for count, group_id in enumerate(list(self.stored), start=1):
            value = self.find_stored(group_id).value
            if value is None:
                membership = Membership(self._rules)
            else:
                membership = Membership.restore(value, self._rules, now_ms=loop_ms())
            group = Group(self, group_id, membership)
            self.groups[group_id] = group
            self.set_alarm(group)
            if count % LOAD_RECORDS == 0:
                yield

    def _follow(self) -> None:
        """The replica has changed."""
        if self.is_gone:
            return
        replica = self._replica
        if not replica.is_leader or replica.is_gone or replica.core.epoch != self._epoch:
            self._forget()
        elif self.is_loaded:
            try:
                self.ledger.fold()
            except StorageError as problem:
                replica.refused(problem)
                return
            self._release()

    def _release(self) -> None:
        held, applied_offset = self._held, self.ledger.applied_offset
        while held and held[0][0] <= applied_offset:
            _, _, ticket, answer = held.popleft()
            self._waiters.answer(ticket, answer)

    def _forget(self) -> None:
        self.is_gone = True
        self._replica.unwatch(self._follow)
        for group in self.groups.values():
            for ticket, answer in group.membership.close(self._moved(group.group_id)).answers:
                self._waiters.answer(ticket, answer)
        for _, group_id, ticket, _ in self._held:
            self._waiters.answer(ticket, self._moved(group_id))
        self._held.clear()
        self.groups.clear()
        self.ledger.close(NotLeader(self._replica.id, self._replica.leader))

    def _moved(self, group_id: str) -> RequestError:
        failure = self._replica.failure
        if failure is not None:
            return StorageUnavailable(str(failure))
        return NotCoordinator(group_id, self._replica.leader)

    # -- parts -----------------------------------------------------------------------------------

    def _apply(self, record: Record) -> None:
        self.stored.apply(record.key, record.value)

    def _save(self, group: Group) -> None:
        value = group.membership.group.value(changed_ms=self._clock.now_ms())
        self.write(group, [group_entry(group.group_id, value)])
