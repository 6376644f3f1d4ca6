"""Opens logs on worker threads, a few at a time, and hands them over on the event loop.

Owns which logs are being opened. Recovery may read a whole segment, so it never runs on the event
loop while the node serves clients. A log takes part in consensus only once it is handed over: until
then no message reaches it, so its state in the journal, read when recovery begins, stays true.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from millstream.config import Config
from millstream.errors import StorageError
from millstream.model import LogId, NodeId
from millstream.ports import Clock, Files, Threads
from millstream.settings import TopicSettings
from millstream.storage.compaction.policy import rewrites
from millstream.storage.files.directory import LOGS
from millstream.storage.journal.log_states import LogState
from millstream.storage.log.cache import LogCache
from millstream.storage.log.log import Log
from millstream.storage.log.recovery import open_log
from millstream.storage.log.segment import Segment
from millstream.storage.log.verifying import BadRange

# Jobs at the same time: cold reads and compaction need threads, too.
JOBS_MAX = 2
# A thread opens several small logs in one job, which makes the way there and back cheap; what one
# job has opened is handed over in one turn of the loop, in about 2 ms.
LOGS_PER_JOB = 16
# What the recovery of one log may keep open or in memory.
OPEN_FILES_MAX = 4
INDEX_BYTES_MAX = 16 * 1024 * 1024
JOB_MS = 20  # After this long a job takes no further log.


@dataclass(slots=True)
class Opening:
    """A log that is to be opened."""

    log_id: LogId
    founders: frozenset[NodeId]
    settings: TopicSettings
    name: str  # Of the topic and partition.
    state: LogState  # The journal's.


Outcome = Log | StorageError
Recover = Callable[[Opening], Log]
HandOver = Callable[[Opening, Outcome], None]


class Recovery:
    """Opens logs for the event loop, from any thread."""

    def __init__(self, me: NodeId, files: Files, config: Config, *, was_clean: bool) -> None:
        """`was_clean` says whether the last stop left every log in order."""
        self._me = me
        self._files = files
        self._limits = config.limits
        self._was_clean = was_clean

    def recover(self, opening: Opening) -> Log:
        """Blocks. The log has a cache of its own until `Log.share`; raises `StorageError`."""
        cache = LogCache(index_bytes_max=INDEX_BYTES_MAX, open_files_max=OPEN_FILES_MAX)
        cache.on_damage = _leave_damage
        settings, state = opening.settings, opening.state
        return open_log(
            self._files,
            log_directory(opening.log_id),
            settings=settings,
            cache=cache,
            start_offset=state.start_offset,
            boundaries=state.boundaries,
            producer_ids_max=self._limits.producer_ids_max,
            was_clean=self._was_clean,
            may_have_gaps=rewrites(settings) or opening.founders != {self._me},
            decompressed_bytes_max=self._limits.batch_decompressed_bytes_max,
        )


class Openings:
    def __init__(
        self,
        threads: Threads,
        clock: Clock,
        *,
        recover: Recover,
        hand_over: HandOver,
        let_go: Callable[[LogId], None],
    ) -> None:
        """`recover` runs on a thread; `hand_over` gets its outcome on the event loop.

        `let_go` is called instead for a log that was dropped while a thread worked on it.
        """
        self._threads = threads
        self._clock = clock
        self._recover = recover
        self._hand_over = hand_over
        self._let_go = let_go
        self._pending: dict[LogId, Opening] = {}
        self._queue: deque[LogId] = deque()  # May name logs that were dropped.
        self._under_way: set[LogId] = set()
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()

    def __contains__(self, log_id: object) -> bool:
        return log_id in self._pending

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self._under_way

    def find(self, log_id: LogId) -> Opening | None:
        return self._pending.get(log_id)

    def add(self, opening: Opening) -> None:
        assert opening.log_id not in self._under_way
        self._pending[opening.log_id] = opening
        self._queue.append(opening.log_id)
        self._wake.set()

    def drop(self, log_id: LogId) -> bool:
        """Do not open it; True if a thread works on it still, and `let_go` will be called."""
        self._pending.pop(log_id, None)
        self._announce()
        return log_id in self._under_way

    async def finished(self, log_ids: Iterable[LogId] | None = None) -> None:
        """Wait until none of these, or of all, is being opened any more, however that went."""
        for log_id in tuple(self._pending) if log_ids is None else log_ids:
            while log_id in self._pending:
                await self._progress.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(JOBS_MAX):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            batch = self._take()
            if not batch:
                self._wake.clear()
                continue
            for opening, outcome in await self._recover_on_thread(batch):
                self._conclude(opening.log_id, outcome)
            self._announce()

    def _take(self) -> list[Opening]:
        batch: list[Opening] = []
        while self._queue and len(batch) < LOGS_PER_JOB:
            opening = self._pending.get(self._queue.popleft())
            if opening is not None:
                self._under_way.add(opening.log_id)
                batch.append(opening)
        return batch

    async def _recover_on_thread(self, batch: list[Opening]) -> list[tuple[Opening, Outcome]]:
        """Recover logs on a thread; those that it did not get to are first in the queue again."""
        job = asyncio.ensure_future(self._threads.run(partial(self._recover_some, batch)))
        try:
            outcomes = await asyncio.shield(job)
        except StorageError as problem:  # There is no thread.
            return [(opening, problem) for opening in batch]
        except asyncio.CancelledError:
            # The thread goes on, and the next node must not have the directory before it ends.
            await asyncio.wait({job})
            raise
        for opening in reversed(batch[len(outcomes) :]):
            self._under_way.discard(opening.log_id)
            if opening.log_id in self._pending:
                self._queue.appendleft(opening.log_id)
                self._wake.set()
            else:
                self._let_go(opening.log_id)
        return outcomes

    def _recover_some(self, batch: list[Opening]) -> list[tuple[Opening, Outcome]]:
        """Blocks; on a thread. At least the first, and more until time is up."""
        outcomes: list[tuple[Opening, Outcome]] = []
        end_ms = self._clock.now_ms() + JOB_MS
        for opening in batch:
            try:
                outcomes.append((opening, self._recover(opening)))
            except StorageError as problem:
                outcomes.append((opening, problem))
            if self._clock.now_ms() >= end_ms:
                break
        return outcomes

    def _conclude(self, log_id: LogId, outcome: Outcome) -> None:
        self._under_way.discard(log_id)
        opening = self._pending.pop(log_id, None)
        if opening is None:
            self._let_go(log_id)
        else:
            self._hand_over(opening, outcome)

    def _announce(self) -> None:
        """Wake the callers of `finished`, which check again."""
        self._progress.set()
        self._progress = asyncio.Event()


def log_directory(log_id: LogId) -> str:
    return f"{LOGS}/{log_id}"


def _leave_damage(segment: Segment, bad: BadRange) -> None:
    """Report nothing on a thread: `Log.share` does."""
