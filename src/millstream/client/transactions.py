"""Transactions: all records and offsets of a `with` block, or none.

Owns the rules of Kafka's transactional producer. Three kinds of errors: those that may be tried
again are, here, until the time is over; those that require an abort undo the block and raise
`TransactionAborted`; fatal ones end the producer, and the next transaction begins with a fresh one.
"""

from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from millstream.client._librdkafka.link import Link, Settings, dotted
from millstream.client.consumer import Consumer
from millstream.client.errors import (
    ClientError,
    Fenced,
    Refused,
    TimedOut,
    TransactionAborted,
    Unreachable,
)
from millstream.client.producer import Delivery, Producer
from millstream.client.serde import Serdes

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

TRANSACTION_TIMEOUT_MS = 60_000
RETRY_S = 0.1


class _Broken(Exception):
    """A step of a transaction failed for good. `is_abortable` says that the rest can be undone."""

    def __init__(self, typed: ClientError, *, is_abortable: bool) -> None:
        super().__init__(str(typed))
        self.typed = typed
        self.is_abortable = is_abortable


class TransactionalProducer(Producer):
    """A producer that was introduced to the coordinator; for one transaction at a time."""

    def __init__(
        self, link: Link, serdes: Serdes, transactional_id: str, settings: Settings
    ) -> None:
        timeout_ms = max(TRANSACTION_TIMEOUT_MS, int(link.timeout_s * 1000))
        chosen = {"transaction.timeout.ms": timeout_ms} | link.config({}, settings)
        timeout_ms = int(chosen["transaction.timeout.ms"])
        defaults: Settings = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
        }
        if not {"message.timeout.ms", "delivery.timeout.ms"} & chosen.keys():
            # librdkafka refuses records that may take longer than their transaction.
            defaults["message.timeout.ms"] = min(int(link.delivery_timeout_s * 1000), timeout_ms)
        super().__init__(link, serdes, defaults | dotted(settings))
        self.transactional_id = transactional_id
        self.is_open = False
        self.is_usable = True
        try:
            self.step("init_transactions", "begin a transaction")
        except _Broken as broken:
            self._stop()
            raise broken.typed from broken.__cause__

    def step(self, method: str, doing: str, *arguments: Any) -> None:
        """One call to librdkafka's state machine, again as long as it says that it may help."""
        from confluent_kafka import KafkaException

        deadline = monotonic() + self._link.timeout_s
        # begin_transaction is local: the only one without a time limit of its own.
        is_local = method == "begin_transaction"
        call: Callable[..., None] = getattr(self._handle, method)
        while True:
            left_s = max(RETRY_S, deadline - monotonic())
            try:
                call(*arguments) if is_local else call(*arguments, left_s)
            except KafkaException as problem:
                error: KafkaError = problem.args[0]
                is_late = monotonic() > deadline
                if error.retriable() and not is_late:
                    self._is_closed.wait(RETRY_S)  # It is not closed: this is a pause.
                    continue
                self.is_usable = self.is_usable and error.txn_requires_abort()
                raise _Broken(
                    self._link.error(error, doing), is_abortable=error.txn_requires_abort()
                ) from problem
            else:
                return

    def give_up(self) -> None:
        self.is_usable = False
        self._stop()


class OpenTransaction:
    """`with client.transaction() as transaction:` - commits at the end, aborts on an exception."""

    def __init__(self, producer: TransactionalProducer) -> None:
        self._producer = producer
        self._readers: list[Consumer] = []
        self._is_begun = False

    def send(self, topic: str, value: Any = None, **record: Any) -> Delivery:
        """As `Producer.send`. Readers see the record when the transaction is committed."""
        self._check_open()
        return self._producer.send(topic, value, **record)

    def commit_offsets(self, consumer: Consumer) -> None:
        """Commit, with the transaction, all that `consumer` has handed out so far.

        It must have been made with `auto_commit=False`. If the transaction is aborted, the consumer
        goes back and hands the same records out again.
        """
        self._check_open()
        if consumer.is_auto_commit:
            raise Refused("a consumer in a transaction must be made with auto_commit=False")
        if consumer not in self._readers:
            self._readers.append(consumer)
        offsets, metadata = consumer.progress()
        if not offsets:
            return
        try:
            self._producer.step("send_offsets_to_transaction", "commit offsets", offsets, metadata)
        except _Broken as broken:
            raise self._undo(broken) from broken

    def __enter__(self) -> Self:
        if self._producer.is_open or self._is_begun:
            raise Refused(
                f"a transaction of {self._producer.transactional_id!r} is open; "
                "one id has one transaction at a time"
            )
        try:
            self._producer.step("begin_transaction", "begin a transaction")
        except _Broken as broken:
            self._producer.give_up()
            raise broken.typed from broken
        self._producer.is_open = self._is_begun = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._producer.is_open:  # It was undone on the way; what was raised then goes on.
            return
        if problem is not None:
            self._abort()
            return
        try:
            self._producer.step("commit_transaction", "commit the transaction")
        except _Broken as broken:
            raise self._undo(broken, is_commit=True) from broken
        self._producer.is_open = False
        # Every record of a committed transaction arrived.
        self._producer.forget_failures()
        for consumer in self._readers:
            consumer.settle()

    def _undo(self, broken: _Broken, *, is_commit: bool = False) -> ClientError:
        """Undo the transaction as far as possible; return the error to raise."""
        typed = broken.typed
        if broken.is_abortable:
            self._abort()
            if isinstance(typed, Fenced):
                return typed
            return TransactionAborted(
                f"the transaction was aborted; do its work again. {typed}",
                code=typed.code,
                retriable=True,
            )
        self._producer.is_open = False
        self._producer.give_up()
        if is_commit and isinstance(typed, TimedOut | Unreachable):
            return TimedOut(
                f"the outcome of the transaction is not known. {typed} The next one of this id "
                "waits until it is settled; read what arrived before doing it again.",
                code=typed.code,
            )
        return typed

    def _abort(self) -> None:
        self._producer.is_open = False
        try:
            self._producer.step("abort_transaction", "abort the transaction")
            self._producer.forget_failures()
        except _Broken:
            # The coordinator aborts it at its timeout, or when the next producer of this id starts.
            self._producer.give_up()
        for consumer in self._readers:
            consumer.rewind()

    def _check_open(self) -> None:
        if not self._producer.is_open:
            raise Refused("the transaction is not open: use it inside its `with` block")
