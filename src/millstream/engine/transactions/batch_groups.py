"""Batch groups as protocols ask for them: begin a batch, renew it, end it as a whole.

Owns the access checks; `internal_topics.batch_groups` decides what may happen. A batch is ended
once the decision is committed, in one write for the group and all its members. The markers follow,
as for every transaction.
"""

from collections.abc import Mapping
from functools import partial

from millstream.config import Config
from millstream.engine.gate import Gate, Operation, transaction_resource
from millstream.engine.transactions.coordinators import TransactionCoordinators
from millstream.errors import InvalidRequest
from millstream.internal_topics.batch_groups import (
    NO_BATCH,
    BatchGroupValue,
    Ending,
    aborted,
    begun,
    check_renewal,
    committed,
    group_of,
    unknown,
)
from millstream.internal_topics.groups import check_text
from millstream.model import Producer, Session
from millstream.names import BATCH_MEMBER_MARK
from millstream.ports import Clock


class BatchGroups:
    def __init__(
        self, gate: Gate, coordinators: TransactionCoordinators, *, config: Config, clock: Clock
    ) -> None:
        self._gate = gate
        self._coordinators = coordinators
        self._members_max = config.limits.batch_members_max
        self._clock = clock

    async def begin(self, session: Session, group: str) -> BatchGroupValue:
        """Open the next term and abort what the last one left open; return what was committed."""
        self._gate.admit(session, Operation.TRANSACT, transaction_resource(group))
        _check_name(group)
        coordinator = await self._coordinators.find(group)
        self._coordinators.check_room_for_group(coordinator.batches.find(group))
        step = partial(begun, group, now_ms=self._clock.now_ms())
        return await coordinator.change_batch(group, step)

    async def renew(
        self, session: Session, group: str, term: int, members: Mapping[str, Producer]
    ) -> None:
        """Renew the lease of all transactions of the term; raise if it or one of these is lost."""
        self._gate.admit(session, Operation.TRANSACT, transaction_resource(group))
        _check_name(group)
        for name in members:
            _check_member(group, name)
        coordinator = await self._coordinators.find(group)
        value = coordinator.batches.find(group) or unknown(0)
        check_renewal(group, value, coordinator.batch_members(group), term=term, named=members)
        coordinator.batches.renew(group, self._clock.now_ms())

    async def end(self, session: Session, group: str, ending: Ending, *, commits: bool) -> None:
        """Commit or abort the batch as a whole; a refusal changes nothing."""
        self._gate.admit(session, Operation.TRANSACT, transaction_resource(group))
        _check_name(group)
        check_text(ending.series)
        if ending.batch_id <= NO_BATCH:
            raise InvalidRequest(f"batch {ending.batch_id}: the first one is 0")
        if len(ending.members) > self._members_max:
            raise InvalidRequest(
                f"{len(ending.members)} transactions in a batch, at most {self._members_max}"
            )
        for name in ending.members:
            _check_member(group, name)
            self._gate.admit(session, Operation.TRANSACT, transaction_resource(name))
        coordinator = await self._coordinators.find(group)
        decide = committed if commits else aborted
        step = partial(decide, group, ending=ending, now_ms=self._clock.now_ms())
        await coordinator.change_batch(group, step)


def _check_name(group: str) -> None:
    check_text(group)
    if not group or BATCH_MEMBER_MARK in group:
        raise InvalidRequest(f"{group!r} is no name of a batch group")


def _check_member(group: str, transactional_id: str) -> None:
    if group_of(transactional_id) != group:
        raise InvalidRequest(f"{transactional_id!r} is not in batch group {group!r}")
