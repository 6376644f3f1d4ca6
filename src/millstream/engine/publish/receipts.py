"""What becomes of published messages: receipts, of one and of many.

Owns the step from what became of a batch to what is told of each message in it.
"""

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
    """What became of the messages of one `publish_many`, by their index there."""

    __slots__ = ("_outcomes", "_parts", "_timestamp_ms", "count", "is_plain")

    def __init__(self, parts: "list[Part]", count: int, timestamp_ms: int) -> None:
        self.count = count
        # All went well and nothing else is to be said: most often all that anybody asks.
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
        """A receipt for each message, or what it was refused with."""
        if self._outcomes is None:
            found = {
                index: part.outcome_of(at, self._timestamp_ms)
                for part in self._parts
                for at, index in enumerate(part.indexes)
            }
            self._outcomes = [found[index] for index in range(self.count)]
        return self._outcomes


class Part:
    """Messages that share a batch, and what became of it."""

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


class Told(Generic[T]):
    """A receipt on its way. Nobody needs to await it, unlike a coroutine."""

    __slots__ = ("_future", "_tell")

    def __init__(self, future: "asyncio.Future[T]", tell: Callable[[T], Receipt]) -> None:
        self._future = future
        self._tell = tell

    @property
    def is_known(self) -> bool:
        """Whether awaiting it takes no time."""
        return self._future.done()

    def result(self) -> Receipt:
        """The receipt, if it is known; raises what the message was refused with."""
        return self._tell(self._future.result())

    # What a future yields to its loop is between the two of them.
    def __await__(self) -> Generator[Any, Any, Receipt]:
        return self._tell((yield from self._future.__await__()))


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
