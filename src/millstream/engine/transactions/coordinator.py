"""Coordinates all transactional ids of one partition, while this node leads it.

Owns the committed state, and the written state that is not committed yet.

Invariant: a decision is based on the written state, in order of arrival; it is answered, and its
markers are written, only after it is committed.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator

from millstream.codec.records import Record
from millstream.engine.ledgers.ledger import Entry
from millstream.engine.ledgers.shards import Shard
from millstream.engine.transactions.batch_index import BatchIndex
from millstream.errors import NotLeader, TransactionInProgress
from millstream.internal_topics.batch_groups import (
    BatchGroupsState,
    BatchGroupValue,
    GroupStep,
    encode_group_key,
    encode_group_value,
    group_of,
    unknown,
)
from millstream.internal_topics.transaction_steps import check_member
from millstream.internal_topics.transactions import (
    Participant,
    TransactionsState,
    TransactionValue,
    decode_entry,
    encode_key,
    encode_value,
)
from millstream.model import Epoch, Offset, Producer
from millstream.ports import Clock
from millstream.replication.replica import Replica

_log = logging.getLogger(__name__)

# From the current to the next state of a transactional id.
Step = Callable[[TransactionValue | None], TransactionValue]


class TransactionCoordinator(Shard):
    def __init__(
        self,
        replica: Replica,
        clock: Clock,
        wake: Callable[[], None],
        decided: Callable[[bool], None],
    ) -> None:
        """`wake` is called when there is a transaction whose markers are to be written, `decided`
        when one is decided: to commit it, or not."""
        self.open_ids: set[str] = set()  # With a transaction that has not ended.
        self._decided = decided
        self.stored = TransactionsState()
        self.batches = BatchIndex()
        self.unmarked: set[str] = set()  # Ids whose decision has no markers yet.
        self._wake = wake
        self._clock = clock
        # By the offset at which that was written, ascending.
        self._written: OrderedDict[str, tuple[Offset, TransactionValue | None]] = OrderedDict()
        # Requests that wait for the end of an id's transaction; each bounds its wait.
        self._end_waiters: dict[str, set[asyncio.Future[None]]] = {}
        super().__init__(replica, clock)

    @property
    def epoch(self) -> Epoch:
        """Leader epoch, written into markers as the coordinator epoch."""
        return self._epoch

    def latest(self, transactional_id: str) -> TransactionValue | None:
        """State as written last, committed or not."""
        written = self._written.get(transactional_id)
        return self.stored.find(transactional_id) if written is None else written[1]

    async def change(self, transactional_id: str, step: Step) -> TransactionValue:
        """Write a step and wait for its commit; nothing is written if `step` raises."""
        value = self.begin(transactional_id, step)
        await self.wait_committed(transactional_id)
        return value

    def begin(self, transactional_id: str, step: Step) -> TransactionValue:
        """Write a step without waiting for its commit."""
        if self.is_gone:
            raise self._moved(transactional_id)
        before = self.latest(transactional_id)
        value = step(before)
        if value is not before:
            self.write(transactional_id, value)
        self.batches.renew(group_of(transactional_id), self._clock.now_ms())
        return value

    def write(self, transactional_id: str, value: TransactionValue | None) -> None:
        """Write a state; None deletes the id."""
        self._note(self.ledger.write([_entry(transactional_id, value)]), transactional_id, value)

    async def change_batch(self, group: str, step: GroupStep) -> BatchGroupValue:
        """Write a step of a batch group and all its members at once, and wait for its commit.

        Nothing is written if `step` raises.
        """
        value = self.begin_batch_change(group, step)
        written_offset = self.batches.written_offset(group)
        if written_offset is not None:
            await self._until(written_offset, group)
        return value

    def batch_members(self, group: str) -> dict[str, TransactionValue]:
        """The latest state of each transaction of a batch group."""
        known = {name: self.latest(name) for name in self.batches.members(group)}
        return {name: value for name, value in known.items() if value is not None}

    def begin_batch_change(self, group: str, step: GroupStep) -> BatchGroupValue:
        """Write a step of a batch group without waiting for its commit."""
        if self.is_gone:
            raise self._moved(group)
        before = self.batches.find(group) or unknown(0)
        changes = step(before, self.batch_members(group))
        if changes.group is not before:
            entry = Entry(encode_group_key(group), encode_group_value(changes.group))
            members = [_entry(name, value) for name, value in changes.members.items()]
            offset = self.ledger.write([entry, *members])
            self.batches.write(group, changes.group, offset)
            for name, value in changes.members.items():
                self._note(offset, name, value)
        return changes.group

    def forget_batches(self, group: str) -> None:
        """Write the deletion of a batch group."""
        offset = self.ledger.write([Entry(encode_group_key(group), None)])
        self.batches.write(group, None, offset)

    def is_committed(self, transactional_id: str) -> bool:
        """Whether all that was written about it is committed."""
        return transactional_id not in self._written

    async def wait_committed(self, transactional_id: str) -> None:
        """Wait until all that was written about it so far is committed."""
        written = self._written.get(transactional_id)
        if written is not None:
            await self._until(written[0], transactional_id)

    def committed_future(self, transactional_id: str) -> "asyncio.Future[None]":
        """Done when all that was written about it is committed, and applied right after."""
        written = self._written.get(transactional_id)
        return self._replica.committed(0 if written is None else written[0], None)

    def ended_future(self, transactional_id: str, *, until: float) -> "asyncio.Future[None]":
        """Done when the decided transaction has all its markers, or the node stops to coordinate.

        Has the exception `TransactionInProgress` at `until`, by the loop's clock. The next step is
        to be decided anew: another request may have been faster.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        latest = self.latest(transactional_id)
        if self.is_gone or latest is None or not latest.is_preparing:
            ended.set_result(None)
            return ended
        waiters = self._end_waiters.setdefault(transactional_id, set())
        waiters.add(ended)
        timer = loop.call_at(until, _refuse, ended, TransactionInProgress(transactional_id))

        def forget(_: "asyncio.Future[None]") -> None:
            timer.cancel()
            waiters.discard(ended)
            if not waiters and self._end_waiters.get(transactional_id) is waiters:
                del self._end_waiters[transactional_id]

        ended.add_done_callback(forget)
        return ended

    def check_member(
        self, transactional_id: str, producer: Producer, participant: Participant
    ) -> None:
        """Raise unless the producer may write there, by the committed and the written state."""
        if self.is_gone:
            raise self._moved(transactional_id)
        for value in (self.latest(transactional_id), self.stored.find(transactional_id)):
            check_member(transactional_id, value, producer, participant)

    def _note(self, offset: Offset, transactional_id: str, value: TransactionValue | None) -> None:
        self._written[transactional_id] = (offset, value)
        self._written.move_to_end(transactional_id)
        self.batches.note(transactional_id, is_known=value is not None)
        if value is None or not value.is_preparing:
            self._wake_end_waiters(transactional_id)

    def _wake_end_waiters(self, transactional_id: str) -> None:
        for ended in self._end_waiters.pop(transactional_id, ()):
            if not ended.done():
                ended.set_result(None)

    async def _until(self, offset: Offset, name: str) -> None:
        """Wait until what was written up to there is committed."""
        try:
            await self._replica.committed(offset, None)
        except NotLeader as problem:
            raise self._moved(name) from problem
        if self.ledger.applied_offset < offset:
            raise self._moved(name)  # This node no longer folds the log.

    # -- loading and forgetting ------------------------------------------------------------------

    def _apply(self, record: Record) -> None:
        if self.batches.apply(record):
            return
        transactional_id = self.stored.apply(record.key, record.value)
        value = self.stored.find(transactional_id)
        self.batches.note(transactional_id, is_known=self.latest(transactional_id) is not None)
        if value is not None and value.is_unended:
            self.open_ids.add(transactional_id)
        else:
            self.open_ids.discard(transactional_id)
        if value is not None and value.is_preparing:
            if self.is_loaded and transactional_id not in self.unmarked:
                self._decided(value.commits)
            self.unmarked.add(transactional_id)
        else:
            self.unmarked.discard(transactional_id)

    def _check(self, entry: Entry) -> None:
        if not BatchGroupsState().apply(entry.key, entry.value):
            decode_entry(entry.key, entry.value)

    def _restore(self) -> Iterator[None]:
        yield from ()

    def _loaded(self) -> None:
        if self.stored or self.skipped_count:
            _log.info(
                "loaded transactional_ids=%d unmarked=%d log=%s skipped_records=%d",
                len(self.stored),
                len(self.unmarked),
                self._replica.id,
                self.skipped_count,
            )
        self._folded()

    def _folded(self) -> None:
        written, applied_offset = self._written, self.ledger.applied_offset
        while written and next(iter(written.values()))[0] <= applied_offset:
            written.popitem(last=False)
        self.batches.forget_written(applied_offset)
        if self.unmarked:
            self._wake()

    def _close(self) -> None:
        self._written.clear()
        self.unmarked.clear()
        for transactional_id in list(self._end_waiters):
            self._wake_end_waiters(transactional_id)


def _refuse(future: "asyncio.Future[None]", refusal: TransactionInProgress) -> None:
    if not future.done():
        future.set_exception(refusal)


def _entry(transactional_id: str, value: TransactionValue | None) -> Entry:
    return Entry(encode_key(transactional_id), None if value is None else encode_value(value))
