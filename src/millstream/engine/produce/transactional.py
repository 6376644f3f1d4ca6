"""Writes transactional batches to a log once the partition is part of the transaction (KIP-890).

Owns the check against the coordinator, and the batches that wait: until the producer's transaction
before has its markers, and then until their partition is added to the new one.

Invariant: the coordinator commits the added partition before the first batch is written to it;
otherwise that partition would never get its marker.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from millstream.engine.runtime.futures import AppendFuture, copy_outcome, ignore_outcome
from millstream.engine.transactions.coordinator import TransactionCoordinator
from millstream.engine.transactions.coordinators import TransactionCoordinators
from millstream.engine.transactions.remote import RemoteTransactions, VerificationGuard
from millstream.errors import (
    CoordinatorUnavailable,
    NotCoordinator,
    NotEnoughReplicas,
    OutOfOrderSequence,
    Overloaded,
    RequestError,
    TransactionInProgress,
)
from millstream.internal_topics.transaction_steps import added
from millstream.internal_topics.transactions import Participant, TransactionValue
from millstream.model import LogId, Producer
from millstream.ports import Clock
from millstream.storage.log.producers import Producers


class Batch(NamedTuple):
    """A batch, its producer and partition, and the function that writes it."""

    transactional_id: str
    producer: Producer
    participant: Participant
    base_sequence: int
    write: Callable[[], AppendFuture]


_Queue = deque[tuple[Batch, AppendFuture]]


class TransactionalWrites:
    def __init__(
        self,
        coordinators: TransactionCoordinators,
        clock: Clock,
        *,
        queued_max: int,
        participants_max: int,
        end_wait_ms_max: int,
        remote: RemoteTransactions | None = None,
    ) -> None:
        """`queued_max` bounds the batches of one producer that wait for one partition,
        `end_wait_ms_max` their wait for the markers of the transaction before.
        """
        self._coordinators = coordinators
        self._clock = clock
        self._queued_max = queued_max
        self._participants_max = participants_max
        self._end_wait_s_max = end_wait_ms_max / 1000
        self._remote = remote
        self._verifying: set[asyncio.Task[None]] = set()
        self._queues: dict[tuple[LogId, int], _Queue] = {}

    def append(self, batch: Batch, producers: Producers, *, joins: bool) -> AppendFuture:
        """Write the batch if its transaction allows it; with `joins` the partition is added.

        Raises at once, with nothing written. Batches of one producer in one log keep their order.
        """
        queue = self._queues.get(_place(batch))
        if queue is not None:
            return self._enqueue(queue, batch)
        if producers.has_open(*batch.producer):
            return batch.write()
        try:
            coordinator = self._coordinators.find_now(batch.transactional_id)
        except NotCoordinator:
            if self._remote is None:
                raise
            queue, waiting = self._new_queue(batch)
            self._verify_elsewhere(self._remote, queue, joins=joins)
            return waiting
        if joins:
            try:
                coordinator.begin(batch.transactional_id, partial(self._join, batch, producers))
            except TransactionInProgress:
                until = asyncio.get_running_loop().time() + self._end_wait_s_max
                queue, waiting = self._new_queue(batch)
                self._join_after_end(coordinator, queue, producers, until)
                return waiting
            if not coordinator.is_committed(batch.transactional_id):
                queue, waiting = self._new_queue(batch)
                self._flush_when_joined(coordinator, queue)
                return waiting
        coordinator.check_member(batch.transactional_id, batch.producer, batch.participant)
        return batch.write()

    # -- batches that wait -----------------------------------------------------------------------

    def _join(
        self, batch: Batch, producers: Producers, value: TransactionValue | None
    ) -> TransactionValue:
        after = added(
            batch.transactional_id,
            value,
            batch.producer,
            frozenset({batch.participant}),
            participants_max=self._participants_max,
            now_ms=self._clock.now_ms(),
        )
        # Each transaction has an epoch of its own, so its first batch in a log is at 0. After
        # batches whose records were all duplicates it goes on from their sequences.
        expected = producers.next_sequence(*batch.producer) or 0
        if batch.base_sequence != expected:
            raise OutOfOrderSequence(batch.producer.producer_id, expected, batch.base_sequence)
        return after

    def _new_queue(self, batch: Batch) -> tuple[_Queue, AppendFuture]:
        queue = self._queues[_place(batch)] = deque()
        return queue, self._enqueue(queue, batch)

    def _enqueue(self, queue: _Queue, batch: Batch) -> AppendFuture:
        if len(queue) >= self._queued_max:
            raise Overloaded(f"{len(queue)} batches wait to join a transaction already")
        waiting: AppendFuture = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(ignore_outcome)
        queue.append((batch, waiting))
        return waiting

    def _join_after_end(
        self,
        coordinator: TransactionCoordinator,
        queue: _Queue,
        producers: Producers,
        until: float,
    ) -> None:
        """Add the partition once the transaction before has its markers.

        All is checked anew then: the producer may have been fenced, the coordinator have moved.
        """
        first, _ = queue[0]

        def join(ended: "asyncio.Future[None]") -> None:
            try:
                ended.result()
                coordinator.begin(first.transactional_id, partial(self._join, first, producers))
            except TransactionInProgress as problem:
                if ended.exception() is None:
                    self._join_after_end(coordinator, queue, producers, until)
                else:
                    self._flush(coordinator, queue, problem)
            except RequestError as problem:
                self._flush(coordinator, queue, problem)
            else:
                self._flush_when_joined(coordinator, queue)

        coordinator.ended_future(first.transactional_id, until=until).add_done_callback(join)

    def _verify_elsewhere(self, remote: RemoteTransactions, queue: _Queue, *, joins: bool) -> None:
        """Write the queued batches once the coordinator on another node has agreed."""
        task = asyncio.get_running_loop().create_task(self._verified(remote, queue, joins=joins))
        self._verifying.add(task)
        task.add_done_callback(self._verifying.discard)

    async def _verified(self, remote: RemoteTransactions, queue: _Queue, *, joins: bool) -> None:
        first, _ = queue[0]
        refusal: RequestError | None = None
        check: Callable[[Batch], object] = _agree
        try:
            guard = await remote.verify(
                first.transactional_id, first.producer, first.participant, joins=joins
            )
            check = partial(_check_guard, guard)
        except RequestError as problem:
            refusal = problem
        self._flush_checked(check, queue, refusal)

    def _flush_when_joined(self, coordinator: TransactionCoordinator, queue: _Queue) -> None:
        transactional_id = queue[0][0].transactional_id

        def flush(committed: "asyncio.Future[None]") -> None:
            is_added = committed.exception() is None
            refusal = None if is_added else CoordinatorUnavailable(transactional_id)
            self._flush(coordinator, queue, refusal)

        coordinator.committed_future(transactional_id).add_done_callback(flush)

    def _flush(
        self, coordinator: TransactionCoordinator, queue: _Queue, refusal: RequestError | None
    ) -> None:
        """Write or refuse the queued batches: the partition was added, or will not be."""

        def check(batch: Batch) -> None:
            # Meanwhile the transaction may have timed out, or the producer been fenced.
            coordinator.check_member(batch.transactional_id, batch.producer, batch.participant)

        self._flush_checked(check, queue, refusal)

    def _flush_checked(
        self, check: Callable[[Batch], object], queue: _Queue, refusal: RequestError | None
    ) -> None:
        """Write the queued batches that `check` lets pass.

        Behind a refused batch all others are refused, or the log would have a gap in the sequences.
        """
        del self._queues[_place(queue[0][0])]
        for batch, waiting in queue:
            try:
                if refusal is not None:
                    raise refusal
                check(batch)
                batch.write().add_done_callback(partial(copy_outcome, waiting))
            except RequestError as problem:
                refusal = problem
                if not waiting.done():
                    waiting.set_exception(problem)


def _agree(batch: Batch) -> None:
    return


def _check_guard(guard: VerificationGuard, batch: Batch) -> None:
    """The question was about the producer of the first batch: one of another epoch asks anew."""
    guard.check()
    if not guard.covers(batch.producer):
        raise NotEnoughReplicas("not verified yet, nothing written")


def _place(batch: Batch) -> tuple[LogId, int]:
    return batch.participant.log, batch.producer.producer_id
