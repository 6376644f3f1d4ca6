"""Transactional producers on a whole node on virtual time, and readers of what they committed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from millstream.codec.batch import read_header
from millstream.codec.encoding import encode_batch
from millstream.codec.markers import ControlKind, decode_marker
from millstream.codec.records import Record, decode_all
from millstream.config import Config
from millstream.engine.filters.filter import Filter
from millstream.engine.gate import Policy
from millstream.engine.partitions.slices import Want
from millstream.errors import TopicExists, TransactionInProgress
from millstream.model import NO_PRODUCER, Acks, Appended, Isolation, Producer, TopicPartition
from millstream.ports import Files
from millstream.server.node import Node
from tests.support.nodes import NOW_MS, ORDERS, SESSION, FixedClock, running_node

BILLING = "billing"
PAYMENTS = TopicPartition("payments", 2)


@asynccontextmanager
async def running_transactions(
    config: Config | None = None,
    *,
    files: Files | None = None,
    clock: FixedClock | None = None,
    policy: Policy | None = None,
) -> AsyncIterator[Node]:
    """A node with two topics to write to."""
    async with running_node(config, files=files, clock=clock, policy=policy) as node:
        for topic, partitions in (("orders", 1), ("payments", 3)):
            with suppress(TopicExists):
                await node.topics.create(SESSION, topic, partitions=partitions)
        yield node


class Writer:
    """A well-behaved transactional producer, one step at a time; `is_v2` is one of KIP-890."""

    def __init__(
        self,
        node: Node,
        *,
        transactional_id: str = BILLING,
        timeout_ms: int = 60_000,
        is_v2: bool = False,
    ) -> None:
        self.node = node
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.is_v2 = is_v2
        self.producer = NO_PRODUCER
        self.sequences: dict[TopicPartition, int] = {}

    async def init(self) -> Producer:
        self.producer = await patiently(  # type: ignore[assignment]
            lambda: self.node.transactions.init(
                SESSION, self.transactional_id, timeout_ms=self.timeout_ms
            )
        )
        self.sequences.clear()
        return self.producer

    async def add(self, *targets: TopicPartition) -> None:
        outcomes = await patiently(
            lambda: self.node.transactions.add_partitions(
                SESSION, self.transactional_id, self.producer, targets
            )
        )
        for problem in outcomes.values():  # type: ignore[attr-defined]
            if problem is not None:
                raise problem

    def batch(self, target: TopicPartition, *values: bytes, key: bytes | None = None) -> bytes:
        sequence = self.sequences.get(target, 0)
        self.sequences[target] = sequence + len(values)
        return encode_batch(
            [Record(at, NOW_MS, key, value) for at, value in enumerate(values)],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

    def send(self, target: TopicPartition, data: bytes) -> Awaitable[Appended]:
        return self.node.partitions.append(
            SESSION,
            target,
            data,
            Acks.ALL,
            transactional_id=self.transactional_id,
            joins=self.is_v2,
        )

    async def write(
        self, target: TopicPartition, *values: bytes, key: bytes | None = None
    ) -> Appended:
        """Add the partition, if that is the producer's to do, and write."""
        if not self.is_v2:
            await self.add(target)
            return await self.send(target, self.batch(target, *values, key=key))
        data = self.batch(target, *values, key=key)
        return await patiently(lambda: self._send(target, data))  # type: ignore[return-value]

    async def _send(self, target: TopicPartition, data: bytes) -> Appended:
        return await self.send(target, data)

    async def commit(self) -> Producer:
        return await self.end(commits=True)

    async def abort(self) -> Producer:
        return await self.end(commits=False)

    async def end(self, *, commits: bool) -> Producer:
        self.producer = await self.node.transactions.end(
            SESSION, self.transactional_id, self.producer, commits=commits, bumps=self.is_v2
        )
        if self.is_v2:
            self.sequences.clear()
        return self.producer


async def patiently(ask: Callable[[], Awaitable]) -> object:
    """Ask again while the transaction before is being ended, as clients do."""
    while True:
        try:
            return await ask()
        except TransactionInProgress:
            await asyncio.sleep(0.02)


async def committed(
    node: Node, target: TopicPartition = ORDERS, *, where: Filter | None = None
) -> list[bytes | None]:
    """What a reader of committed records gets, dropping what a client drops."""
    (part,) = await node.partitions.read(
        SESSION, [Want(target, 0, 2**20)], isolation=Isolation.READ_COMMITTED, filter=where
    )
    assert part.error is None
    data = b"" if part.records is None else part.records.read()
    begins = {transaction.first_offset: transaction.producer_id for transaction in part.aborted}
    aborting: set[int] = set()
    collected: list[bytes | None] = []
    at = 0
    while at < len(data):
        header = read_header(data, at)
        aborting |= {who for first, who in begins.items() if first <= header.base_offset}
        begins = {first: who for first, who in begins.items() if first > header.base_offset}
        if header.is_control:
            if decode_marker(data, at).kind is ControlKind.ABORT:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            collected += [
                record.value for record in decode_all(data, at, decompressed_bytes_max=2**20)
            ]
        at += header.size
    return collected


async def stable(node: Node, target: TopicPartition = ORDERS) -> None:
    """Wait until no transaction is open in a partition."""
    while True:
        health = node.partitions.health(SESSION, target)
        if health.last_stable_offset == health.log.end_offset:
            return
        await asyncio.sleep(0.01)
