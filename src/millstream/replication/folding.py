"""After a truncation: reads the state of a log's producers at its new end, in steps.

Owns which logs are behind. A step takes about 2 ms, so that the event loop serves clients between.
"""

import asyncio

from millstream.errors import StorageError
from millstream.metrics import STORAGE_FAILURES, Metrics
from millstream.replication.replica import Replica

# How long to wait before reading a log's producers again, if the disk refused for now.
FOLD_RETRY_S = 0.1


class Folding:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._behind: dict[Replica, None] = {}
        self._wake = asyncio.Event()

    def follow(self, replica: Replica) -> None:
        """Fold the producers of the log soon, if they are behind its end."""
        if not replica.log.is_folded:
            self._behind[replica] = None
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._behind:
                replica = next(iter(self._behind))
                del self._behind[replica]
                await self._fold(replica)

    async def _fold(self, replica: Replica) -> None:
        while replica.failure is None and not replica.is_gone:
            try:
                if replica.log.fold():
                    replica.folded()
                    return
            except StorageError as problem:
                self._metrics.add(STORAGE_FAILURES)
                replica.refused(problem)
                await asyncio.sleep(FOLD_RETRY_S)
            await asyncio.sleep(0)
