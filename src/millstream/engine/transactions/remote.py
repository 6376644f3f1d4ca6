"""Transactions whose coordinator is on another node: verifies batches there (KIP-890).

Between the answer of the coordinator and the write the transaction may end. So the leader of the
partition takes a guard before it asks, and writes only if the guard is still held: every marker of
that producer in that log drops it, and so does the end of the leadership.
"""

import asyncio
from functools import partial
from typing import NamedTuple
from uuid import UUID

import msgspec

from millstream.config import Config
from millstream.engine.cluster.peer_calls import Nothing, PeerCalls
from millstream.engine.transactions.coordinators import TransactionCoordinators
from millstream.errors import (
    InvalidTransactionState,
    NotEnoughReplicas,
    RequestError,
    TransactionInProgress,
)
from millstream.internal_topics.transaction_steps import added
from millstream.internal_topics.transactions import Participant
from millstream.model import Epoch, LogId, NodeId, Producer
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica
from millstream.storage.log.producers import Producers

METHOD = "transaction.verify"


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: str
    producer_id: int
    epoch: int
    topic: str
    partition: int
    topic_id: UUID
    joins: bool  # Add the partition to the transaction first.


class VerificationGuard(NamedTuple):
    """Held while no marker of the producer is written to the log, in one term of its leader."""

    replica: Replica
    producers: Producers
    epoch: Epoch
    producer: Producer

    def covers(self, producer: Producer) -> bool:
        return producer == self.producer

    def check(self) -> None:
        """Raise unless it is held; nothing may be awaited from here to the write."""
        replica = self.replica
        is_same_term = replica.is_leader and replica.core.epoch == self.epoch
        is_held = self.producer.producer_id in self.producers.guards
        if not (is_held and is_same_term and replica.log.producers is self.producers):
            raise InvalidTransactionState("the transaction ended while it was verified")


class RemoteTransactions:
    def __init__(
        self,
        hub: Hub,
        coordinators: TransactionCoordinators,
        peers: PeerCalls,
        *,
        config: Config,
        clock: Clock,
    ) -> None:
        self._hub = hub
        self._coordinators = coordinators
        self._peers = peers
        self._participants_max = config.limits.transaction_partitions_max
        self._end_wait_s_max = config.timing.transaction_end_wait_ms_max / 1000
        self._clock = clock
        peers.serve(METHOD, _Question, self._answer)

    async def verify(
        self, transactional_id: str, producer: Producer, participant: Participant, *, joins: bool
    ) -> VerificationGuard:
        """Ask the coordinator whether the producer may write there; with `joins` add the partition.

        Raises the coordinator's refusal; one that passes becomes `NotEnoughReplicas`, which
        producers of every age retry.
        """
        guard = self._take_guard(participant.log, producer)
        question = _Question(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            topic=participant.topic,
            partition=participant.partition,
            topic_id=participant.topic_id,
            joins=joins,
        )
        try:
            node = await self._coordinators.node_of(transactional_id)
            await self._peers.ask(node, METHOD, question, Nothing)
        except RequestError as problem:
            if not problem.retriable:
                raise
            raise NotEnoughReplicas(f"not verified, nothing written: {problem}") from problem
        return guard

    def _take_guard(self, log_id: LogId, producer: Producer) -> VerificationGuard:
        replica = self._hub.find(log_id)
        producers = replica.log.producers
        producers.guards.add(producer.producer_id)
        return VerificationGuard(replica, producers, replica.core.epoch, producer)

    async def _answer(self, _node: NodeId, question: _Question) -> Nothing:
        transactional_id = question.transactional_id
        producer = Producer(question.producer_id, question.epoch)
        participant = Participant(question.topic, question.partition, question.topic_id)
        coordinator = await self._coordinators.find(transactional_id)
        until = asyncio.get_running_loop().time() + self._end_wait_s_max
        while question.joins:
            step = partial(
                added,
                transactional_id,
                producer=producer,
                participants=frozenset({participant}),
                participants_max=self._participants_max,
                now_ms=self._clock.now_ms(),
            )
            try:
                await coordinator.change(transactional_id, step)
                break
            except TransactionInProgress:
                await coordinator.ended_future(transactional_id, until=until)
        coordinator.check_member(transactional_id, producer, participant)
        return Nothing()
