"""Receipts of published messages, made from the outcome of the batch that held them."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from millstream.errors import RequestError
from millstream.model import Appended, Offset, TopicPartition

T = TypeVar("T")


class Receipt(NamedTuple):
    """Where a message went."""

    target: TopicPartition
    offset: Offset  # -1 while it is delayed.
    timestamp_ms: int
    is_duplicate: bool = False  # Then the offset is the first copy's.
    delayed_id: str | None = None


class Receipts:
    """The outcomes of the messages of one `publish_many`, by their index."""

    __slots__ = ("_outcomes", "_parts", "_timestamp_ms", "count", "is_plain")

    def __init__(self, parts: "list[Part]", count: int, timestamp_ms: int) -> None:
        self.count = count
        # All were written as they are: most callers need no more than this.
        self.is_plain = all(part.is_plain for part in parts)
        self._parts = parts
        self._timestamp_ms = timestamp_ms
        self._outcomes: list[Receipt | RequestError] | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Receipt:
        """The receipt of one message; raises the `RequestError` that it was refused with."""
        outcome = self.outcomes()[index]
        if isinstance(outcome, RequestError):
            raise outcome
        return outcome

    def outcomes(self) -> "list[Receipt | RequestError]":
        """A receipt or an error for each message."""
        if self._outcomes is None:
            by_index = {
                index: part.outcome_of(at, self._timestamp_ms)
                for part in self._parts
                for at, index in enumerate(part.indexes)
            }
            self._outcomes = [by_index[index] for index in range(self.count)]
        return self._outcomes


class Part:
    """Messages that share a batch, and its outcome."""

    __slots__ = ("indexes", "outcome", "target")

    def __init__(self, target: TopicPartition, indexes: Sequence[int]) -> None:
        self.target = target
        self.indexes = indexes
        self.outcome: Appended | RequestError | None = None

    @property
    def is_plain(self) -> bool:
        outcome = self.outcome
        return isinstance(outcome, Appended) and not (outcome.duplicates or outcome.delayed)

    def outcome_of(self, at: int, timestamp_ms: int) -> Receipt | RequestError:
        """Of the message that is the `at`th of the batch."""
        outcome = self.outcome
        assert outcome is not None
        if isinstance(outcome, RequestError):
            return outcome
        return receipt_of(self.target, timestamp_ms, outcome, at)


class ReceiptFuture(Generic[T]):
    """Awaitable of a receipt. It need not be awaited, unlike a coroutine."""

    __slots__ = ("_future", "_make_receipt")

    def __init__(self, future: "asyncio.Future[T]", make_receipt: Callable[[T], Receipt]) -> None:
        self._future = future
        self._make_receipt = make_receipt

    @property
    def is_known(self) -> bool:
        """Whether awaiting it takes no time."""
        return self._future.done()

    def result(self) -> Receipt:
        """The receipt, if it is known; raises what the message was refused with."""
        return self._make_receipt(self._future.result())

    # `Any`: the values that a future yields to its loop.
    def __await__(self) -> Generator[Any, Any, Receipt]:
        return self._make_receipt((yield from self._future.__await__()))


def receipt_of(
    target: TopicPartition, timestamp_ms: int, appended: Appended, at: int = 0
) -> Receipt:
    """Of the message that is the `at`th of a batch."""
    if appended.log_append_time_ms >= 0:
        timestamp_ms = appended.log_append_time_ms
    if at in appended.delayed:
        return Receipt(target, -1, timestamp_ms, delayed_id=appended.delayed[at])
    if at in appended.duplicates:
        return Receipt(target, appended.duplicates[at], timestamp_ms, is_duplicate=True)
    return Receipt(target, appended.base_offset + at, timestamp_ms)
