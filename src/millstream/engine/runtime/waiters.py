"""Those who wait for a rebalance, and the times at which something is due.

Owns the tickets of parked requests and the order of alarms, for all groups of a node. Belongs to
the event loop; nothing here decides anything.
"""

import asyncio
from heapq import heappop, heappush
from typing import Generic, TypeVar

from millstream.engine.groups.classic.roster import Ticket
from millstream.engine.groups.classic.vocabulary import Answer, Joined, Synced
from millstream.errors import Overloaded, RequestError

T = TypeVar("T")


def loop_ms() -> int:
    """The loop's time, which never steps back; for whatever is measured, not dated."""
    return int(asyncio.get_running_loop().time() * 1000)


class Waiters:
    """Requests that are answered later, each once. Bounded: what does not fit is refused."""

    def __init__(self, *, waiters_max: int) -> None:
        self._waiters_max = waiters_max
        self._tickets_made = 0
        self._waiting: dict[Ticket, asyncio.Future[Joined | Synced]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def park(self) -> Ticket:
        if len(self._waiting) >= self._waiters_max:
            raise Overloaded(f"{self._waiters_max} members wait for a rebalance already")
        self._tickets_made += 1
        ticket = Ticket(self._tickets_made)
        self._waiting[ticket] = asyncio.get_running_loop().create_future()
        return ticket

    async def answer_to(self, ticket: Ticket) -> Joined | Synced:
        """Await the answer, or raise it if it is a refusal."""
        try:
            return await self._waiting[ticket]
        finally:
            del self._waiting[ticket]

    def answer(self, ticket: Ticket, answer: Answer) -> None:
        waiting = self._waiting.get(ticket)
        if waiting is None or waiting.done():
            return  # Whoever asked is gone, and will ask again or be missed.
        if isinstance(answer, RequestError):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)


class Alarms(Generic[T]):
    """Times of the loop's clock, earliest first. An alarm that is out of date does no harm."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, T]] = []  # The number keeps items from being compared.
        self._made = 0
        self._wake = asyncio.Event()

    def set(self, at_ms: int, item: T) -> None:
        self._made += 1
        heappush(self._heap, (at_ms, self._made, item))
        if self._heap[0][1] == self._made:
            self._wake.set()

    def wake(self) -> None:
        """End the current wait, for there is something else to do."""
        self._wake.set()

    def due(self, now_ms: int) -> list[T]:
        """Take out what is due."""
        items = []
        while self._heap and self._heap[0][0] <= now_ms:
            items.append(heappop(self._heap)[2])
        return items

    async def wait(self, *, ms_max: int) -> None:
        """Return when something is due, or may be, and after `ms_max` at the latest."""
        self._wake.clear()
        left_ms = self._heap[0][0] - loop_ms() if self._heap else ms_max
        try:
            async with asyncio.timeout(min(left_ms, ms_max) / 1000):
                await self._wake.wait()
        except TimeoutError:
            return
