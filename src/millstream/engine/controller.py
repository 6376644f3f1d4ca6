"""The control log from this node's side: propose a command, await its outcome, apply all in order.

Owns the only way to propose, which checks each command first, and the fold of committed commands
into `State`. What follows from a command on this node (opening and dropping replicas) is
`hosting`'s.

Invariant: a committed command that cannot be applied stops the node, except where an operator had
it skipped: a node that leaves out a command silently would serve another state than the others.
"""

import asyncio
import logging
from collections.abc import Callable, Set
from typing import NamedTuple

from millstream.codec.records import Record
from millstream.control.catalog import Topic
from millstream.control.commands import (
    AlterQuotas,
    AlterResource,
    AnyCommand,
    ReserveProducerIds,
    TopicCommand,
    encode_for_proposal,
)
from millstream.control.resources import Resource
from millstream.control.state import Outcome, State
from millstream.engine.ledgers.ledger import Entry, Ledger
from millstream.errors import StorageError, StorageUnavailable
from millstream.model import Epoch, NodeId, Offset
from millstream.ports import Clock
from millstream.replication.replica import Replica

_log = logging.getLogger(__name__)

Applied = Callable[[AnyCommand, Topic | Resource], None]


class Quorum(NamedTuple):
    """The consensus about the control log as this node knows it."""

    leader: NodeId | None
    epoch: Epoch
    high_watermark: Offset
    end_offset: Offset
    as_of_ms: int


class Controller:
    def __init__(
        self,
        replica: Replica,
        state: State,
        clock: Clock,
        applied: Applied,
        *,
        skipped: Set[Offset] = frozenset(),
    ) -> None:
        """`skipped` are the offsets of commands that an operator had left out."""
        self.state = state
        self._applied = applied
        self._replica = replica
        self._clock = clock
        self._skipped = skipped
        self._failure: Exception | None = None
        self._has_failed = asyncio.Event()
        self._has_folded = asyncio.Event()
        self._ledger = Ledger(replica, clock, self._apply)
        replica.watch(self._fold)
        self._fold()

    async def run(self) -> None:
        """Wait until the fold fails, then raise the reason: the node cannot go on."""
        await self._has_failed.wait()
        assert self._failure is not None
        raise self._failure

    async def folded(self) -> None:
        """Wait until all that is committed is applied; a read may have to be tried again."""
        while self._ledger.applied_offset < self._replica.high_watermark:
            self._has_folded.clear()
            await self._has_folded.wait()

    async def propose(self, command: TopicCommand) -> Topic:
        """Commit `command` and apply it here; raise its refusal, or `NotLeader`.

        After `NotLeader` the command may still be applied, as with every lost answer.
        """
        topic = await self._propose(command)
        assert isinstance(topic, Topic)
        return topic

    async def reserve_producer_ids(self, count: int) -> range:
        """Reserve numbers that no other node will ever give out."""
        reserved = await self._propose(ReserveProducerIds(count=count))
        assert isinstance(reserved, range)
        return reserved

    async def alter_quotas(self, command: AlterQuotas) -> None:
        """The same as `propose`, for quotas."""
        await self._propose(command)

    async def _propose(self, command: AnyCommand) -> Outcome:
        """Write only what every node can decode and what today's rules allow."""
        if self._failure is not None:
            raise StorageUnavailable(str(self._failure))
        data = encode_for_proposal(command)
        self.state.check(command)
        return await self._ledger.propose([Entry(None, data)])

    async def alter_resource(self, command: AlterResource) -> None:
        """The same as `propose`, for settings of what is no topic."""
        await self._propose(command)

    def quorum(self) -> Quorum:
        """The leader of the control log, and its offsets."""
        replica = self._replica
        return Quorum(
            replica.leader,
            replica.core.epoch,
            replica.high_watermark,
            replica.log.end_offset,
            self._clock.now_ms(),
        )

    def _fold(self) -> None:
        if self._failure is not None:
            return
        try:
            self._ledger.fold()
            self._has_folded.set()
        except Exception as problem:
            if isinstance(problem, StorageError) and self._ledger.retry(problem, self._fold):
                return
            self._failure = problem
            _log.critical("stopping: the control log cannot be applied problem=%s", problem)
            self._ledger.close(StorageUnavailable(str(problem)))
            self._has_failed.set()

    def _apply(self, record: Record) -> Outcome:
        if record.offset in self._skipped:
            _log.warning("skipped a command, as `repair` was told to offset=%d", record.offset)
            self.state.applied_offset = record.offset + 1
            raise StorageUnavailable(f"the command at offset {record.offset} is skipped")
        command, outcome = self.state.fold(record.offset, record.value)
        if isinstance(outcome, Topic | Resource):
            self._applied(command, outcome)
        return outcome
