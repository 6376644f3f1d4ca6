"""Requests of group members that a rebalance answers.

Owns the tickets of parked requests, for all groups of a node. Belongs to the event loop; decides
nothing about groups.
"""

import asyncio

from millstream.engine.groups.classic.roster import Ticket
from millstream.engine.groups.classic.vocabulary import Answer, Joined, Synced
from millstream.errors import Overloaded, RequestError


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
