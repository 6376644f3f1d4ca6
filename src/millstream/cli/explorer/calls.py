"""Runs calls that wait for the cluster on threads, beside the interface.

Owns the threads, of which there are `CALLS_MAX` at most. They are daemons: leaving the explorer
does not wait for a broker that does not answer. The result for a task that is gone is dropped.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

CALLS_MAX = 8

T = TypeVar("T")


class Calls:
    def __init__(self) -> None:
        self._room = asyncio.Semaphore(CALLS_MAX)

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and wait for it; past `CALLS_MAX` also for one of the others."""
        await self._room.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def report_back(report: Callable[[], None]) -> None:
            self._room.release()
            if not answer.done():
                report()

        def run_call() -> None:
            try:
                report = partial(answer.set_result, work())
            except Exception as problem:
                report = partial(answer.set_exception, problem)
            with suppress(RuntimeError):  # The loop is gone, and the caller with it.
                loop.call_soon_threadsafe(report_back, report)

        Thread(target=run_call, name="millstream-explore", daemon=True).start()
        return await answer
