"""Runs FlyMQ's transactions, each on a transactional id that the listener lends to it.

Owns who writes under which id. FlyMQ names a transaction when it begins, any connection of the
same principal may go on with it, and after its end the name is worth nothing. The engine's ids are
for ever, so the listener has a few and lends them out again, to one transaction at a time.
Invariant: an id that was just used is not lent again before the markers of its last transaction are
written, and one whose end is not known is taken over anew, which aborts what may still be open
under it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config
from millstream.control.catalog import Topic
from millstream.engine.partitions.service import Partitions
from millstream.engine.publish.partitioner import Partitioner
from millstream.engine.publish.receipts import Receipt
from millstream.engine.topics import Topics
from millstream.engine.transactions.service import Transactions
from millstream.errors import (
    InvalidTransactionState,
    Overloaded,
    RequestError,
    TopicExists,
    TransactionInProgress,
    TransactionNotFound,
    UnknownTopic,
)
from millstream.model import (
    SYSTEM_SESSION,
    Acks,
    Appended,
    Principal,
    Producer,
    Session,
    TopicPartition,
)
from millstream.names import LENT_ID_PREFIX
from millstream.ports import Clock

TIMEOUT_MS = 60_000  # From its first record to its end; FlyMQ's own, which no client can set.
OPEN_MAX = 1_000
# Ids whose last transaction is still being ended, besides those that are lent.
IDS_MAX = 4 * OPEN_MAX
SEEN_S_MAX = 5.0  # Clients give up on a reply after ten seconds.


@dataclass(slots=True)
class _Loan:
    """A transactional id of the listener, with its producer; None: it must be taken over."""

    transactional_id: str
    producer: Producer | None = None


@dataclass(slots=True)
class _Open:
    loan: _Loan
    producer: Producer
    principal: Principal  # Of the client that began it: to others it does not exist.
    ends_at: float  # By the loop's clock.
    sequences: dict[TopicPartition, int] = field(default_factory=dict)  # The next, by partition.
    writing: "set[asyncio.Future[Appended]]" = field(default_factory=set)
    problem: BaseException | None = None  # Of a write that was begun: then it cannot be committed.


class OpenTransactions:
    def __init__(
        self,
        transactions: Transactions,
        partitions: Partitions,
        topics: Topics,
        *,
        config: Config,
        clock: Clock,
    ) -> None:
        self._transactions = transactions
        self._partitions = partitions
        self._topics = topics
        self._config = config
        self._clock = clock
        self._timeout_ms = min(TIMEOUT_MS, config.timing.transaction_timeout_ms_max)
        self._partitioner = Partitioner()
        self._idle: deque[_Loan] = deque()  # Longest idle first.
        self._ids_made = 0
        self._open: dict[str, _Open] = {}  # In the order of their end.

    async def begin(self, session: Session) -> str:
        """Return the name of a new transaction."""
        self._drop_overdue()
        if len(self._open) >= OPEN_MAX:
            raise Overloaded(f"{OPEN_MAX} transactions are open already")
        loan = await self._borrow()
        assert loan.producer is not None
        # The producer and its epoch are this transaction's alone.
        name = f"{loan.transactional_id}.{loan.producer.producer_id}.{loan.producer.epoch}"
        ends_at = asyncio.get_running_loop().time() + self._timeout_ms / 1000
        self._open[name] = _Open(loan, loan.producer, session.principal, ends_at)
        return name

    async def produce(self, session: Session, name: str, topic: str, value: bytes) -> Receipt:
        """Write a record that is seen once the transaction is committed, and not if it is not."""
        self._find(session, name)
        described = await self._topic(session, topic)
        partition = self._partitioner.turn(described.topic_id, described.partition_count)
        target = TopicPartition(topic, partition)
        transaction = self._find(session, name)  # It may have ended while the topic was created.
        now_ms = self._clock.now_ms()
        sequence = transaction.sequences.get(target, 0)
        batch = encode_batch(
            [Record(0, now_ms, None, value)],
            producer_id=transaction.producer.producer_id,
            producer_epoch=transaction.producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        # The record needs the client's right, the id is the broker's own.
        self._partitions.admit_append(session, topic)
        writing = self._partitions.append(
            SYSTEM_SESSION,
            target,
            batch,
            Acks.ALL,
            transactional_id=transaction.loan.transactional_id,
            joins=True,
        )
        transaction.sequences[target] = sequence + 1
        transaction.writing.add(writing)
        writing.add_done_callback(_noting(transaction))
        appended = await asyncio.shield(writing)  # A client that goes leaves its record here.
        return Receipt(target, appended.base_offset, max(now_ms, appended.log_append_time_ms))

    async def end(self, session: Session, name: str, *, commits: bool) -> None:
        """Commit or abort; raises if it did not end so."""
        transaction = self._find(session, name)
        del self._open[name]  # Nothing more is written in it.
        transaction.loan.producer = None  # Until its end is known.
        try:
            if transaction.writing:
                await asyncio.wait(transaction.writing)
            if transaction.sequences:
                transaction.loan.producer = await self._transactions.end(
                    SYSTEM_SESSION,
                    transaction.loan.transactional_id,
                    transaction.producer,
                    commits=commits and transaction.problem is None,
                    bumps=True,
                )
                await self._until_seen(transaction.loan)
            else:
                transaction.loan.producer = transaction.producer
        except RequestError as problem:
            if problem.retriable:
                self._reopen(name, transaction)
            raise
        finally:
            if name not in self._open:
                self._idle.append(transaction.loan)
        if commits and transaction.problem is not None:
            raise InvalidTransactionState(
                f"aborted, because a record was lost: {transaction.problem}"
            )

    def _reopen(self, name: str, transaction: _Open) -> None:
        """Have it open again at its place by end: `_drop_overdue` stops at the first not due."""
        self._open[name] = transaction
        self._open = dict(sorted(self._open.items(), key=lambda item: item[1].ends_at))

    async def _until_seen(self, loan: _Loan) -> None:
        """Wait for the markers: clients read the records right after the commit.

        If that takes too long the transaction is decided all the same, and visible later.
        """
        until = asyncio.get_running_loop().time() + SEEN_S_MAX
        with suppress(RequestError):
            await self._transactions.wait_ended(SYSTEM_SESSION, loan.transactional_id, until=until)

    # -- lending ids -----------------------------------------------------------------------------

    async def _borrow(self) -> _Loan:
        for _ in range(len(self._idle)):
            if not self._idle:
                break  # Others have borrowed meanwhile.
            loan = self._idle.popleft()
            if await self._is_ready(loan):
                return loan
        while self._ids_made < IDS_MAX:
            loan = _Loan(f"{LENT_ID_PREFIX}{self._config.node_id}-{self._ids_made}")
            self._ids_made += 1
            if await self._is_ready(loan):
                return loan
        raise Overloaded(f"{IDS_MAX} transactions are open or being ended")

    async def _is_ready(self, loan: _Loan) -> bool:
        """Whether a transaction can begin under the id; if not, it is idle again."""
        is_ready = False
        try:
            if loan.producer is not None:
                view = await self._transactions.describe(SYSTEM_SESSION, loan.transactional_id)
                if view.producer != loan.producer:
                    loan.producer = None  # It timed out, or another producer fenced it.
                else:
                    await self._transactions.wait_ended(
                        SYSTEM_SESSION, loan.transactional_id, until=0
                    )
                    is_ready = True
            if loan.producer is None:
                loan.producer = await self._transactions.init(
                    SYSTEM_SESSION, loan.transactional_id, timeout_ms=self._timeout_ms
                )
                is_ready = True
        except TransactionInProgress:
            return False
        except TransactionNotFound:
            loan.producer = None  # Forgotten after a long time; it is made anew next time.
            return False
        finally:
            if not is_ready:
                self._idle.append(loan)
        return is_ready

    def _find(self, session: Session, name: str) -> _Open:
        self._drop_overdue()
        transaction = self._open.get(name)
        if transaction is None or transaction.principal != session.principal:
            raise TransactionNotFound(name)
        return transaction

    def _drop_overdue(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._open:
            name, transaction = next(iter(self._open.items()))
            if transaction.ends_at > now:
                return
            del self._open[name]
            transaction.loan.producer = None
            self._idle.append(transaction.loan)

    async def _topic(self, session: Session, name: str) -> Topic:
        try:
            return self._topics.describe(session, name)
        except UnknownTopic:
            if not self._config.auto_create_topics:
                raise
        with suppress(TopicExists):
            await self._topics.create(
                session,
                name,
                partitions=self._config.default_partitions,
                replicas=None,
            )
        return self._topics.describe(session, name)


def _noting(transaction: _Open) -> "Callable[[asyncio.Future[Appended]], None]":
    def note(writing: "asyncio.Future[Appended]") -> None:
        transaction.writing.discard(writing)
        if not writing.cancelled() and writing.exception() is not None:
            transaction.problem = writing.exception()

    return note
