"""Delayed records whose shard another node leads: written there before the batch is written here.

A call is answered once all is committed. Of an idempotent producer each record is known by its
sequence, so a call that is made again writes nothing twice.
"""

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from millstream.config import Limits
from millstream.engine.cluster.peer_calls import PeerCalls
from millstream.engine.delayed.shard import DelayedRecord, DelayedShard
from millstream.engine.ledgers.shards import Shards
from millstream.engine.runtime.chunked import chunked
from millstream.errors import (
    CoordinatorLoading,
    InvalidRequest,
    NotEnoughReplicas,
    Overloaded,
    RequestError,
)
from millstream.internal_topics.delayed import decode_header, decode_payload, encode_value
from millstream.model import LogId, NodeId, Offset
from millstream.ports import Clock

DELAY, MESSAGE_IDS = "delayed.write", "delayed.message_ids"
CALL_BYTES = 2**20  # Of records in one call, unless one record is larger.
CALL_RECORDS = 1_000
STEP_RECORDS = 64  # Written in one step, of a millisecond or so.
LOADING_WAIT_S = 0.005
NOT_DELAYED = -1


class _Item(msgspec.Struct, frozen=True, array_like=True):
    value: bytes  # As `encode_value` encodes it.
    is_due: bool  # Then it is looked for, and not written.


class _Records(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    topic_id: UUID
    partition: int
    now_ms: int  # By the caller's clock: what is left until a record is due counts, not its time.
    items: list[_Item]


class _Numbers(msgspec.Struct, frozen=True):
    numbers: list[Offset]  # `NOT_DELAYED` for one that is due and was never delayed.


class _Topic(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    topic_id: UUID


class _MessageIds(msgspec.Struct, frozen=True):
    ids: list[tuple[bytes, int]]


class RemoteDelays:
    def __init__(
        self, peers: PeerCalls, shards: Shards[DelayedShard], limits: Limits, clock: Clock
    ) -> None:
        self._peers = peers
        self._shards = shards
        self._limits = limits
        self._clock = clock
        peers.serve(DELAY, _Records, self._serve)
        peers.serve(MESSAGE_IDS, _Topic, self._serve_ids)

    async def write(
        self,
        node: NodeId,
        topic: str,
        target: LogId,
        delayed_records: Mapping[int, DelayedRecord],
        *,
        now_ms: int,
    ) -> dict[int, Offset]:
        """Have `node` keep the records that are not due at `now_ms`; return the numbers of those
        that it keeps, also from an earlier call, by index.

        A refusal that passes is `NotEnoughReplicas`, which producers of every age retry.
        """
        numbers: dict[int, Offset] = {}
        items = [
            (index, _Item(encode_value(*each), each.header.due_ms <= now_ms))
            for index, each in delayed_records.items()
        ]
        try:
            for part in chunked(
                items,
                lambda item: len(item[1].value),
                count_max=CALL_RECORDS,
                bytes_max=CALL_BYTES,
            ):
                question = _Records(
                    topic=topic,
                    topic_id=target.topic_id,
                    partition=target.partition,
                    now_ms=now_ms,
                    items=[item for _, item in part],
                )
                answer = await self._peers.ask(node, DELAY, question, _Numbers)
                for (index, _), number in zip(part, answer.numbers, strict=True):
                    if number != NOT_DELAYED:
                        numbers[index] = number
        except RequestError as problem:
            if not problem.retriable:
                raise
            raise NotEnoughReplicas(f"not delayed, nothing written: {problem}") from problem
        return numbers

    async def message_ids(
        self, node: NodeId, topic: str, topic_id: UUID
    ) -> Sequence[tuple[bytes, int]]:
        """The ids of a topic's delayed records, and when they arrived."""
        question = _Topic(topic=topic, topic_id=topic_id)
        return (await self._peers.ask(node, MESSAGE_IDS, question, _MessageIds)).ids

    # -- for other nodes -------------------------------------------------------------------------

    async def _serve(self, _node: NodeId, question: _Records) -> _Numbers:
        shard = await self._find(question.topic)
        target = LogId(question.topic_id, question.partition)
        ahead_ms = self._clock.now_ms() - question.now_ms
        records = [(_decoded(item.value, ahead_ms), item.is_due) for item in question.items]
        numbers: list[Offset] = []
        for at in range(0, len(records), STEP_RECORDS):
            numbers += self._write(shard, target, records[at : at + STEP_RECORDS])
            await asyncio.sleep(0)
        await shard.all_committed()
        return _Numbers(numbers)

    def _write(
        self, shard: DelayedShard, target: LogId, records: Sequence[tuple[DelayedRecord, bool]]
    ) -> list[Offset]:
        """Nothing is awaited between the look for a record and its write."""
        numbers = [shard.find_sent(target, each.header.sender) for each, _ in records]
        fresh = [at for at, (_, is_due) in enumerate(records) if numbers[at] is None and not is_due]
        if len(shard.due_heap) + len(fresh) > self._limits.delayed_records_max:
            raise Overloaded(
                f"{len(shard.due_heap)} records are delayed, which is all there may be"
            )
        if fresh:
            shard.check_place(target)
            written = shard.write([records[at][0] for at in fresh])
            for at, number in zip(fresh, written, strict=True):
                numbers[at] = number
        return [NOT_DELAYED if number is None else number for number in numbers]

    async def _serve_ids(self, _node: NodeId, question: _Topic) -> _MessageIds:
        shard = await self._find(question.topic)
        return _MessageIds(list(shard.message_ids(question.topic_id)))

    async def _find(self, topic: str) -> DelayedShard:
        while True:
            try:
                return await self._shards.find(topic)
            except CoordinatorLoading:
                await asyncio.sleep(LOADING_WAIT_S)


def _decoded(value: bytes, ahead_ms: int) -> DelayedRecord:
    """The record, due by the clock of this node, which is that much ahead."""
    header = decode_header(value)
    if header is None:
        raise InvalidRequest("a delayed record of another version")
    try:
        due = header._replace(due_ms=header.due_ms + ahead_ms)
        return DelayedRecord(due, decode_payload(value))
    except msgspec.MsgspecError as problem:
        raise InvalidRequest(f"a delayed record that cannot be read: {problem}") from problem
