"""Appends of the broker's own writers to logs that other nodes lead.

A call carries the records with their producer id and sequences, so one that is made again after a
lost answer is answered by the log's own idempotence.
"""

from uuid import UUID

import msgspec

from millstream.codec.records import Record
from millstream.engine.cluster.peer_calls import PeerCalls
from millstream.engine.ledgers.exactly_once import (
    OutboundBatch,
    WriterContext,
    append_once,
    next_sequence,
)
from millstream.errors import NotLeader, UnknownTopic
from millstream.model import LogId, NodeId, Offset
from millstream.replication.replica import Replica

METHOD, NEXT = "exactly_once.append", "exactly_once.next"


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    topic_id: UUID
    partition: int
    producer_id: int
    base_sequence: int
    records: list[Record]


class _Answer(msgspec.Struct, frozen=True):
    base_offset: Offset


class _SequenceQuestion(msgspec.Struct, frozen=True, kw_only=True):
    topic_id: UUID
    partition: int
    producer_id: int


class _Sequence(msgspec.Struct, frozen=True):
    number: int | None


class RemoteAppends:
    def __init__(self, peers: PeerCalls, context: WriterContext) -> None:
        self._peers = peers
        self._context = context
        peers.serve(METHOD, _Question, self._serve)
        peers.serve(NEXT, _SequenceQuestion, self._serve_sequence)
        context.remote.append = self.append
        context.remote.next_sequence = self.next_sequence

    async def append(self, node: NodeId, batch: OutboundBatch) -> Offset:
        """Have `node` append to a log that it leads, and wait for the commit."""
        question = _Question(
            topic_id=batch.target.topic_id,
            partition=batch.target.partition,
            producer_id=batch.producer_id,
            base_sequence=batch.base_sequence,
            records=list(batch.records),
        )
        return (await self._peers.ask(node, METHOD, question, _Answer)).base_offset

    async def next_sequence(self, node: NodeId, target: LogId, producer_id: int) -> int | None:
        """The sequence that a log led by `node` expects next; all before it is committed."""
        question = _SequenceQuestion(
            topic_id=target.topic_id, partition=target.partition, producer_id=producer_id
        )
        return (await self._peers.ask(node, NEXT, question, _Sequence)).number

    async def _serve(self, _node: NodeId, question: _Question) -> _Answer:
        target = LogId(question.topic_id, question.partition)
        replica = self._find(target)
        batch = OutboundBatch(
            target, question.producer_id, question.base_sequence, question.records
        )
        return _Answer(await append_once(replica, batch, self._context))

    async def _serve_sequence(self, _node: NodeId, question: _SequenceQuestion) -> _Sequence:
        replica = self._find(LogId(question.topic_id, question.partition))
        return _Sequence(await next_sequence(replica, question.producer_id, self._context))

    def _find(self, target: LogId) -> Replica:
        try:
            return self._context.hub.find(target)
        except UnknownTopic:
            # Whether the topic is deleted is for the caller to know: it would drop its records.
            raise NotLeader(target, None) from None
