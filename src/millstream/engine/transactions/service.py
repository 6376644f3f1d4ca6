"""Transactions as protocols ask for them: init an id, add partitions, end, describe, list.

Owns the access checks; `transaction_steps` decides what may happen, and `coordinators` finds the
node of an id. A transaction is ended once the decision is committed; its markers follow. The first
request of the next transaction waits for them here, for `transaction_end_wait_ms_max`: a client
that is told to retry would pause for much longer than the markers take.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.engine.filters.name_patterns import Pattern
from millstream.engine.gate import (
    OWN_END,
    Gate,
    Operation,
    group_resource,
    topic_resource,
    transaction_resource,
)
from millstream.engine.groups.coordinators import Coordinators
from millstream.engine.transactions.coordinators import TransactionCoordinators
from millstream.engine.transactions.remote import RemoteTransactions
from millstream.errors import (
    InternalTopic,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    NotAttempted,
    NotCoordinator,
    RequestError,
    TransactionInProgress,
    TransactionNotFound,
)
from millstream.internal_topics.batch_groups import group_of
from millstream.internal_topics.groups import check_text
from millstream.internal_topics.transaction_steps import added, ended, initialized
from millstream.internal_topics.transactions import (
    NO_ID,
    NOT_STARTED,
    Participant,
    TransactionState,
    TransactionValue,
)
from millstream.model import NO_PRODUCER, NodeId, Producer, Session, TopicPartition
from millstream.ports import Clock

Outcomes = Mapping[TopicPartition, RequestError | None]


class TransactionView(NamedTuple):
    """A transactional id as an operator sees it."""

    transactional_id: str
    state: TransactionState
    producer: Producer
    timeout_ms: int
    started_ms: int  # -1 outside of a transaction.
    targets: list[TopicPartition]


class Transactions:
    def __init__(
        self,
        gate: Gate,
        catalog: Catalog,
        coordinators: TransactionCoordinators,
        groups: Coordinators,
        *,
        config: Config,
        clock: Clock,
        remote: RemoteTransactions | None = None,
    ) -> None:
        self._remote = remote
        self._gate = gate
        self._catalog = catalog
        self._coordinators = coordinators
        self._groups = groups
        self._own_topics = config.own_topics
        self._participants_max = config.limits.transaction_partitions_max
        self._members_max = config.limits.batch_members_max
        self._timeout_ms_max = config.timing.transaction_timeout_ms_max
        self._end_wait_s_max = config.timing.transaction_end_wait_ms_max / 1000
        self._clock = clock

    async def coordinator_of(self, session: Session, transactional_id: str) -> NodeId:
        """The coordinator node of the id."""
        self._gate.admit(session, Operation.DESCRIBE, transaction_resource(transactional_id))
        _check_id(transactional_id)
        return await self._coordinators.node_of(transactional_id)

    async def init(
        self,
        session: Session,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: Producer = NO_PRODUCER,
    ) -> Producer:
        """Take over the id, from `expected` if it is still current, and fence the last producer.

        Raises `TransactionInProgress` while the last producer's transaction is not ended.
        """
        self._gate.admit(session, Operation.TRANSACT, transaction_resource(transactional_id))
        _check_id(transactional_id)
        if not 0 < timeout_ms <= self._timeout_ms_max:
            raise InvalidTransactionTimeout(timeout_ms, self._timeout_ms_max)
        coordinator = await self._coordinators.find(transactional_id)
        fresh_id = await self._coordinators.fresh_id(coordinator.latest(transactional_id))
        step = partial(
            initialized,
            transactional_id,
            expected=expected,
            timeout_ms=timeout_ms,
            fresh_id=fresh_id,
            now_ms=self._clock.now_ms(),
        )
        coordinator.batches.check_open(transactional_id, members_max=self._members_max)
        value = await coordinator.change(transactional_id, step)
        if value.is_preparing:
            raise TransactionInProgress(transactional_id)
        self._gate.note("txn.begin", session, transaction_resource(transactional_id))
        return value.producer

    async def add_partitions(
        self,
        session: Session,
        transactional_id: str,
        producer: Producer,
        targets: Collection[TopicPartition],
    ) -> Outcomes:
        """Add partitions to the transaction, all or none; an outcome for each."""
        self._gate.admit(session, Operation.TRANSACT, transaction_resource(transactional_id))
        refusals = {target: self._refusal(session, target) for target in targets}
        if any(refusals.values()):
            return {target: refusals[target] or NotAttempted() for target in targets}
        await self._add(transactional_id, producer, targets)
        return refusals

    async def add_offsets(
        self, session: Session, transactional_id: str, producer: Producer, group_id: str
    ) -> None:
        """Add a group's offsets to the transaction."""
        self._gate.admit(session, Operation.TRANSACT, transaction_resource(transactional_id))
        self._gate.admit(session, Operation.COMMIT, group_resource(group_id))
        home = await self._groups.home_of(group_id)
        await self._add(transactional_id, producer, [home])

    def check_partitions(
        self,
        session: Session,
        transactional_id: str,
        producer: Producer,
        targets: Iterable[TopicPartition],
    ) -> Outcomes:
        """Ask for each partition whether it is in the producer's transaction."""
        self._gate.admit(session, Operation.TRANSACT, transaction_resource(transactional_id))
        coordinator = self._coordinators.find_now(transactional_id)
        outcomes: dict[TopicPartition, RequestError | None] = {}
        for target in targets:
            try:
                participant = self._participant(target)
                coordinator.check_member(transactional_id, producer, participant)
                outcomes[target] = None
            except RequestError as problem:
                outcomes[target] = problem
        return outcomes

    def check_offsets(
        self,
        session: Session,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        group_id: str,
    ) -> None:
        """Raise unless a group's offsets are in the producer's transaction; awaits nothing."""
        self._gate.admit(session, Operation.TRANSACT, transaction_resource(transactional_id))
        coordinator = self._coordinators.find_now(transactional_id)
        home = self._participant(self._groups.home_now(group_id))
        coordinator.check_member(transactional_id, Producer(producer_id, epoch), home)

    async def verify_offsets(
        self, session: Session, transactional_id: str, producer: Producer, group_id: str
    ) -> Callable[[], None]:
        """Verify that a group's offsets are in the producer's transaction, here or on the node of
        its coordinator; return what must be called, and not raise, just before they are written.
        """
        self._gate.admit(session, Operation.TRANSACT, transaction_resource(transactional_id))
        here = partial(self.check_offsets, session, transactional_id, *producer, group_id)
        try:
            here()
        except NotCoordinator:
            if self._remote is None:
                raise
            home = self._participant(self._groups.home_now(group_id))
            guard = await self._remote.verify(transactional_id, producer, home, joins=False)
            return guard.check
        return here

    async def end(
        self,
        session: Session,
        transactional_id: str,
        producer: Producer,
        *,
        commits: bool,
        bumps: bool = False,
    ) -> Producer:
        """Decide how the transaction ends; return its producer, with `bumps` in the next epoch."""
        self._gate.admit(session, Operation.TRANSACT, transaction_resource(transactional_id))
        if commits and group_of(transactional_id) is not None:
            raise InvalidTransactionState(f"{transactional_id!r} is committed with its batch only")
        coordinator = await self._coordinators.find(transactional_id)
        known = coordinator.latest(transactional_id)
        fresh_id = NO_ID
        if bumps and known is not None:
            fresh_id = await self._coordinators.fresh_id(known)
        step = partial(
            ended,
            transactional_id,
            producer=producer,
            commits=commits,
            bumps=bumps,
            fresh_id=fresh_id,
            now_ms=self._clock.now_ms(),
        )
        following = (await coordinator.change(transactional_id, step)).producer
        event = "txn.commit" if commits else "txn.abort"
        self._gate.note(event, session, transaction_resource(transactional_id), OWN_END)
        return following

    async def wait_ended(self, session: Session, transactional_id: str, *, until: float) -> None:
        """Return when the id's decided transaction has all its markers.

        Raises `TransactionInProgress` at `until`, by the loop's clock.
        """
        self._gate.admit(session, Operation.DESCRIBE, transaction_resource(transactional_id))
        coordinator = await self._coordinators.find(transactional_id)
        await coordinator.ended_future(transactional_id, until=until)

    async def describe(self, session: Session, transactional_id: str) -> TransactionView:
        self._gate.admit(session, Operation.DESCRIBE, transaction_resource(transactional_id))
        coordinator = await self._coordinators.find_confirmed(transactional_id)
        value = coordinator.stored.find(transactional_id)
        if value is None:
            raise TransactionNotFound(transactional_id)
        view = _view(transactional_id, value)
        sees = self._gate.sees
        seen = [target for target in view.targets if sees(session, topic_resource(target.topic))]
        return view._replace(targets=seen)

    def list(
        self,
        session: Session,
        *,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        running_ms_min: int = -1,
        pattern: str | None = None,
    ) -> "list[TransactionView]":
        """The ids coordinated here that match every given condition.

        A `pattern` supports the characters of topic names; an id with others never matches.
        """
        self._gate.admit(session, Operation.DESCRIBE, "transactional_ids")
        now_ms = self._clock.now_ms()
        id_pattern = Pattern(pattern) if pattern else None
        views = []
        for coordinator in self._coordinators.all_here():
            for transactional_id in coordinator.stored:
                value = coordinator.stored.find(transactional_id)
                assert value is not None
                is_running = value.started_ms != NOT_STARTED
                if (
                    (not states or value.state in states)
                    and (not producer_ids or value.producer_id in producer_ids)
                    and (
                        running_ms_min < 0
                        or (is_running and now_ms - value.started_ms >= running_ms_min)
                    )
                    and (id_pattern is None or id_pattern.matches(transactional_id))
                    and self._gate.sees(session, transaction_resource(transactional_id))
                ):
                    views.append(_view(transactional_id, value))
        return views

    # -- parts -----------------------------------------------------------------------------------

    async def _add(
        self, transactional_id: str, producer: Producer, targets: Collection[TopicPartition]
    ) -> None:
        """Add partitions, once the transaction before has its markers."""
        until = asyncio.get_running_loop().time() + self._end_wait_s_max
        while True:
            coordinator = await self._coordinators.find(transactional_id)
            step = partial(
                added,
                transactional_id,
                producer=producer,
                participants=frozenset(self._participant(target) for target in targets),
                participants_max=self._participants_max,
                now_ms=self._clock.now_ms(),
            )
            try:
                await coordinator.change(transactional_id, step)
            except TransactionInProgress:
                await coordinator.ended_future(transactional_id, until=until)
            else:
                return

    def _refusal(self, session: Session, target: TopicPartition) -> RequestError | None:
        try:
            self._gate.admit(session, Operation.APPEND, topic_resource(target.topic))
            if target.topic in self._own_topics:
                raise InternalTopic(target.topic)
            self._participant(target)
        except RequestError as problem:
            return problem
        return None

    def _participant(self, target: TopicPartition) -> Participant:
        topic = self._catalog.find(target.topic)
        topic.check_writable()
        log_id = topic.log(target.partition)
        return Participant(target.topic, target.partition, log_id.topic_id)


def _check_id(transactional_id: str) -> None:
    check_text(transactional_id)
    if not transactional_id:
        raise InvalidRequest("a transactional id must not be empty")


def _view(transactional_id: str, value: TransactionValue) -> TransactionView:
    return TransactionView(
        transactional_id,
        value.state,
        Producer(value.producer_id, value.epoch),
        value.timeout_ms,
        value.started_ms,
        sorted(participant.target for participant in value.participants),
    )
