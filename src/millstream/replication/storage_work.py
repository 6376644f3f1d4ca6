"""Runs the long work of reading logs on threads: verifying bytes, building a lost index again.

Readers that can wait call `verify`. Code that cannot, because it runs inside a step of consensus or
a fold, gets the transient `IndexRebuilding` from storage and tries again later; `soon` queues the
rebuild that it waits for.
"""

import asyncio
from collections import deque

from millstream.errors import DamagedLog, DiskFailed, StorageError, StorageUnavailable
from millstream.ports import Threads
from millstream.storage.log.cache import IndexRebuild, Verification

RETRY_S = 0.1  # After a rebuild that found no free thread or descriptor.


class StorageWork:
    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._rebuilds: deque[IndexRebuild] = deque()  # One for each segment at most.
        self._wake = asyncio.Event()

    async def verify(self, work: Verification | IndexRebuild) -> None:
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

    def soon(self, work: IndexRebuild) -> None:
        self._rebuilds.append(work)
        self._wake.set()

    async def run(self) -> None:
        """Rebuild indexes one after the other, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._rebuilds:
                try:
                    await self.verify(self._rebuilds[0])
                except StorageUnavailable:
                    await asyncio.sleep(RETRY_S)
                else:
                    self._rebuilds.popleft()
