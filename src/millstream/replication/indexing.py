"""Keeps the secondary indexes of logs whose topics ask for them, in the background.

Owns which logs are followed, the pace, and the searches of filtered reads. Building is
`storage.secondary_index`'s, on a thread and a step at a time. It takes a quarter of a core at most,
and reads no faster than `index_bytes_per_second`, so that clients and the disk have the rest. A
node without such topics does nothing here.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from millstream.config import Config
from millstream.errors import DamagedLog, DiskFailed, StorageError
from millstream.metrics import INDEX_BUILT_BYTES, Metrics
from millstream.model import Offset
from millstream.ports import Files, Ports
from millstream.replication.replica import Replica
from millstream.storage.secondary_index.log_index import IndexFigures, LogIndex
from millstream.storage.secondary_index.search import Candidates, Directories
from millstream.storage.secondary_index.terms import Terms, fields_of

PAUSE_S = 0.5  # Between two looks for new records.
RETRY_S = 15.0  # After a step that the disk refused, or that met damage.
BUSY_SHARE = 0.25  # Of the time, that steps take: the interpreter runs one thread at a time.
STEPS_AT_ONCE = 16  # Of one log, before another has its turn.

_log = logging.getLogger(__name__)


class Indexer:
    def __init__(self, ports: Ports, *, config: Config, metrics: Metrics) -> None:
        self._ports = ports
        self._config = config
        self._metrics = metrics
        self._directories = Directories()
        self._indexes: dict[Replica, LogIndex] = {}
        self._seen: dict[Replica, tuple[object, ...]] = {}  # The state in which all was indexed.
        self._wake = asyncio.Event()

    def reconfigure(self, config: Config) -> None:
        self._config = config

    def follow(self, replica: Replica) -> None:
        """Index the log as its settings say; called when it was opened or its settings changed."""
        fields = fields_of(replica.log.settings)
        index = self._indexes.get(replica)
        if index is None and fields:
            self._indexes[replica] = LogIndex(
                replica.log,
                self._ports.files,
                fields,
                directories=self._directories,
                decompressed_bytes_max=self._config.limits.batch_decompressed_bytes_max,
            )
            self._wake.set()
        elif index is not None and fields != index.fields:
            index.change_fields(fields)  # With no field left, `run` removes the files.
            self._seen.pop(replica, None)

    def close(self) -> None:
        """Save what was built, after the logs were closed. Blocks."""
        for index in self._indexes.values():
            index.close()

    def figures(self, replica: Replica) -> IndexFigures | None:
        """None if the topic asks for no index."""
        index = self._indexes.get(replica)
        return None if index is None else index.figures()

    @property
    def is_idle(self) -> bool:
        """Whether no topic asks for an index."""
        return not self._indexes

    def has(self, replica: Replica) -> bool:
        return replica in self._indexes

    async def search(
        self, replica: Replica, terms: Terms, start_offset: Offset, end_offset: Offset
    ) -> Candidates | None:
        """The batches that can match from `start_offset` on; None without an index."""
        index = self._indexes.get(replica)
        search = None if index is None else index.search(terms, start_offset, end_offset)
        if index is None or search is None:
            return None
        if search.has_sources:
            await self._ports.threads.run(search.run)
            index.finish(search)
        return search.candidates

    # -- building ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Build for ever; wait while no topic asks for an index."""
        while True:
            if self.is_idle:
                self._wake.clear()
                await self._wake.wait()
            is_busy = False
            for replica in list(self._indexes):
                is_busy = await self._work_on(replica) or is_busy
            if not is_busy:
                await asyncio.sleep(PAUSE_S)

    async def _work_on(self, replica: Replica) -> bool:
        """Index some of a log; True if there is more to do at once."""
        index = self._indexes[replica]
        if replica.is_gone or not index.fields:
            await self._forget(replica, index)
            return False
        if replica.failure is not None or self._seen.get(replica) == _state(replica):
            return False
        try:
            is_done = await self._take_steps(replica, index)
        except StorageError as problem:
            _log.warning("indexing waits log=%s problem=%s", replica.id, problem)
            self._seen[replica] = _state(replica)
            asyncio.get_running_loop().call_later(RETRY_S, self._seen.pop, replica, None)
            return False
        if is_done:
            self._seen[replica] = _state(replica)
        return not is_done

    async def _take_steps(self, replica: Replica, index: LogIndex) -> bool:
        """Work on one log for a while; True if there was nothing left to do."""
        loop = asyncio.get_running_loop()
        for _ in range(STEPS_AT_ONCE):
            if replica.is_gone or not index.fields:
                return False
            work = index.next_work(replica.high_watermark)
            if work is None:
                return True
            started = loop.time()
            try:
                await self._ports.threads.run(work.run)
            except (DiskFailed, DamagedLog) as problem:
                work.fail(problem)
                work.finish()
                raise
            work.finish()
            self._metrics.add(INDEX_BUILT_BYTES, work.size)
            busy_s = loop.time() - started
            rate = self._config.limits.index_bytes_per_second
            await asyncio.sleep(max(busy_s * (1 / BUSY_SHARE - 1), work.size / rate - busy_s))
        return False

    async def _forget(self, replica: Replica, index: LogIndex) -> None:
        del self._indexes[replica]
        self._seen.pop(replica, None)
        paths = index.forget()
        if replica.is_gone:
            return  # Its files go with the log.
        try:
            await self._ports.threads.run(partial(_remove, self._ports.files, paths))
        except (OSError, StorageError) as problem:
            _log.warning("index not removed log=%s problem=%s", replica.id, problem)
        if fields_of(replica.log.settings):
            self.follow(replica)  # The settings changed back meanwhile.


def _remove(files: Files, paths: Sequence[str]) -> None:
    for path in paths:
        files.remove(path)


def _state(replica: Replica) -> tuple[object, ...]:
    """Differs whenever there may be something to index: new records, or other segments."""
    log = replica.log
    sealed = log.sealed()
    return replica.high_watermark, log.active, len(sealed), *map(id, sealed)
