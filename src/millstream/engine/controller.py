"""The control log from this node's side: propose a command, await its outcome, apply all in order.

Owns the fold of committed commands into `State`. What follows from a command on this node (opening
and dropping replicas) is `hosting`'s.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from millstream.codec.records import Record
from millstream.control.catalog import Topic
from millstream.control.commands import (
    AlterQuotas,
    AlterResource,
    AnyCommand,
    ReserveProducerIds,
    TopicCommand,
    decode,
    encode,
)
from millstream.control.resources import Resource
from millstream.control.state import Outcome, State
from millstream.engine.ledger import Entry, Ledger
from millstream.errors import StorageError
from millstream.model import Epoch, NodeId, Offset
from millstream.ports import Clock
from millstream.replication.replica import Replica

FOLD_RETRY_S = 0.1  # After a read that found no free descriptor.

Applied = Callable[[AnyCommand, Topic | Resource], None]


class Quorum(NamedTuple):
    """The consensus about the control log as this node knows it."""

    leader: NodeId | None
    epoch: Epoch
    high_watermark: Offset
    end_offset: Offset
    as_of_ms: int


class Controller:
    def __init__(self, replica: Replica, state: State, clock: Clock, applied: Applied) -> None:
        self.state = state
        self._applied = applied
        self._replica = replica
        self._clock = clock
        self._ledger = Ledger(replica, clock, self._apply)
        replica.watch(self._fold)
        self._ledger.fold()

    async def propose(self, command: TopicCommand) -> Topic:
        """Have `command` agreed on and applied here; raise its refusal, or `NotLeader`.

        After `NotLeader` the command may still be applied, as with every lost answer.
        """
        topic = await self._ledger.propose([Entry(None, encode(command))])
        assert isinstance(topic, Topic)
        return topic

    async def reserve_producer_ids(self, count: int) -> range:
        """Reserve numbers that no other node will ever give out."""
        command = ReserveProducerIds(count=count)
        reserved = await self._ledger.propose([Entry(None, encode(command))])
        assert isinstance(reserved, range)
        return reserved

    async def alter_quotas(self, command: AlterQuotas) -> None:
        """The same as `propose`, for quotas."""
        await self._ledger.propose([Entry(None, encode(command))])

    async def alter_resource(self, command: AlterResource) -> None:
        """The same as `propose`, for settings of what is no topic."""
        await self._ledger.propose([Entry(None, encode(command))])

    def quorum(self) -> Quorum:
        """Who leads the control log, and how far it is."""
        replica = self._replica
        return Quorum(
            replica.leader,
            replica.core.epoch,
            replica.high_watermark,
            replica.log.records.end_offset,
            self._clock.now_ms(),
        )

    def _fold(self) -> None:
        try:
            self._ledger.fold()
        except StorageError as problem:
            self._replica.refused(problem)
            if problem.is_transient:
                asyncio.get_running_loop().call_later(FOLD_RETRY_S, self._fold)

    def _apply(self, record: Record) -> Outcome:
        assert record.value is not None
        command = decode(record.value)
        outcome = self.state.apply(record.offset, command)
        if isinstance(outcome, Topic | Resource):
            self._applied(command, outcome)
        return outcome
