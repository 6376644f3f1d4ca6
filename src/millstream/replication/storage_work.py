"""Runs the long work of reading logs on threads: verifying bytes, building a lost index again,
loading a large producer snapshot.

Readers that can wait call `verify`. Code that cannot, because it runs inside a step of consensus or
a fold, gets the transient `ReadPending` from storage and tries again later; `soon` queues the work
that it waits for.
"""

import asyncio
from collections import deque

from millstream.errors import DamagedLog, DiskFailed, StorageError, StorageUnavailable
from millstream.ports import Threads
from millstream.storage.log.cache import LongWork

RETRY_S = 0.1  # After work that found no free thread or descriptor.


class StorageWork:
    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._queue: deque[LongWork] = deque()  # One for each segment and each log at most.
        self._wake = asyncio.Event()

    async def verify(self, work: LongWork) -> None:
        """Carry the work out. What the disk refuses counts as damage.

        Raises `StorageUnavailable`, with nothing done, if there is no free thread or descriptor.
        """
        try:
            await self._threads.run(work.run)
        except (DiskFailed, DamagedLog) as problem:
            work.fail(problem)
        except StorageError as problem:
            raise StorageUnavailable(str(problem)) from problem
        work.finish()

    def soon(self, work: LongWork) -> None:
        self._queue.append(work)
        self._wake.set()

    async def run(self) -> None:
        """Do what is queued, one after the other, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                try:
                    await self.verify(self._queue[0])
                except StorageUnavailable:
                    await asyncio.sleep(RETRY_S)
                else:
                    self._queue.popleft()
