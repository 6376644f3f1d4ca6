"""Runs work to its end, even if the request that started it is cancelled.

Owns the tasks of such work. A client that disconnects cancels its request; work that must not be
left half done runs here, and only the wait for it is cancelled.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeVar

from millstream.errors import RequestError

T = TypeVar("T")


class _Job(NamedTuple):
    work: Coroutine[Any, Any, Any]
    done: "asyncio.Future[Any]"


class BackgroundTasks:
    """The caller bounds the number of jobs."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[_Job] = asyncio.Queue()
        self._is_ended = False

    async def run(self) -> None:
        """Run the jobs, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    job = await self._queue.get()
                    # A task that is cancelled before its first step never awaits the work.
                    group.create_task(_run(job)).add_done_callback(partial(_drop, job))
        finally:
            self._is_ended = True
            while not self._queue.empty():
                _drop(self._queue.get_nowait())

    def begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Run `work` in the background; shield the future, so that only the wait is cancelled.

        Once the node has stopped, the work is dropped and the future is cancelled.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        job = _Job(work, done)
        if self._is_ended:
            _drop(job)
        else:
            self._queue.put_nowait(job)
        return done


def _drop(job: _Job, _: object = None) -> None:
    """The node stops. Of no effect on a job that is done."""
    job.work.close()
    job.done.cancel()


async def _run(job: _Job) -> None:
    try:
        result = await job.work
    except RequestError as problem:
        job.done.set_exception(problem)
        job.done.exception()  # Retrieved, or asyncio would log it if no request waits.
    else:
        job.done.set_result(result)
    finally:
        job.done.cancel()  # The node stops. Of no effect otherwise.
