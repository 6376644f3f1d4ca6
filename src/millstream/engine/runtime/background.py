"""Work that goes on to its end, though whoever asked for it may be gone by then.

Owns the tasks of such work. A client that leaves cancels what it waits for; what must not be left
half done is handed over here, and only the waiting is cancelled.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from millstream.errors import RequestError

T = TypeVar("T")


class _Errand(NamedTuple):
    # What it yields is between it and its loop; its result is of whoever asked.
    work: Coroutine[Any, Any, Any]
    done: "asyncio.Future[Any]"


class Errands:
    """Whoever uses it bounds how many there are."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[_Errand] = asyncio.Queue()

    async def run(self) -> None:
        """Do what is asked for, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(_carry_out(await self._asked.get()))

    def begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Have it done; shield the future to wait for it without being able to end it."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked.put_nowait(_Errand(work, done))
        return done


async def _carry_out(errand: _Errand) -> None:
    try:
        result = await errand.work
    except RequestError as problem:
        errand.done.set_exception(problem)
        errand.done.exception()  # Seen, also if nobody waits any more.
    else:
        errand.done.set_result(result)
    finally:
        errand.done.cancel()  # The node stops. Of no effect otherwise.
