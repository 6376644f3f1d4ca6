"""Parked requests that a rebalance answers, and alarms at times of the loop's clock.

Owns the tickets of parked requests and the order of alarms, for all groups of a node. Belongs to
the event loop; decides nothing about groups.
"""

import asyncio
from heapq import heappop, heappush
from typing import Generic, TypeVar

from millstream.engine.groups.classic.roster import Ticket
from millstream.engine.groups.classic.vocabulary import Answer, Joined, Synced
from millstream.errors import Overloaded, RequestError

T = TypeVar("T")


def loop_ms() -> int:
    """The loop's time, which never steps back: for durations, not for dates."""
    return int(asyncio.get_running_loop().time() * 1000)


class Waiters:
    """Requests that are answered later, each once. Beyond `waiters_max` a request is refused."""

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
            return  # The client is gone; it joins again, or its session times out.
        if isinstance(answer, RequestError):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)


class Alarms(Generic[T]):
    """Times of the loop's clock, earliest first. An outdated alarm does no harm."""

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
        """End the current wait: there is other work."""
        self._wake.set()

    def due(self, now_ms: int) -> list[T]:
        """Remove and return the due items."""
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
