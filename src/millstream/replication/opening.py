"""Opens logs on worker threads, a few at a time, and hands them over on the event loop.

Owns which logs are being opened. Recovery may read a whole segment, so it never runs on the event
loop while the node serves clients, unless a log is new: there is nothing to read. A log takes part
in consensus only once it is handed over: until then no message reaches it, so its state in the
journal, read when recovery begins, stays true.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import Struct

from millstream.config import Config, Limits
from millstream.errors import DamagedLog, StorageError, storage_error
from millstream.model import (
    NO_EPOCH,
    AtRest,
    CleanEnd,
    LastStop,
    LogId,
    ReplicaId,
    incarnation_of,
)
from millstream.ports import Files, Ports
from millstream.raft.core import Core
from millstream.raft.member import Timing
from millstream.replication.consensus_log import ConsensusLog
from millstream.replication.replica import Replica
from millstream.settings import TopicSettings
from millstream.storage.compaction.policy import rewrites
from millstream.storage.files.directory import LOGS
from millstream.storage.journal.journal import Journal
from millstream.storage.journal.log_states import UNKNOWN_LOG, LogState
from millstream.storage.log.cache import LogCache
from millstream.storage.log.log import Log
from millstream.storage.log.recovery import open_log
from millstream.storage.log.segment import Segment
from millstream.storage.log.verifying import BadRange

if TYPE_CHECKING:
    from millstream.replication.group_commit import GroupCommit
    from millstream.storage.sealing.keyring import Keyring

_log = logging.getLogger(__name__)

# Jobs at the same time, which wait for the disk most of the time: one of the four threads is left
# for cold reads and compaction.
JOBS_MAX = 3
# A thread opens several small logs in one job, which makes the way there and back cheap; what one
# job has opened is handed over in one turn of the loop, in about 2 ms.
LOGS_PER_JOB = 16
# What the recovery of one log may keep open or in memory.
OPEN_FILES_MAX = 4
INDEX_BYTES_MAX = 16 * 1024 * 1024
# A stop leaves the last segment of a log without an index, if it has no more bytes: to write the
# index and the producers takes three syncs, to scan 64 KiB at the next start less than that.
SCANNED_BYTES_MAX = 64 * 1024
JOB_MS = 20  # After this long a job takes no further log.


class Opening(Struct):
    """A log that is to be opened."""

    log_id: LogId
    me: ReplicaId
    founders: frozenset[ReplicaId]
    settings: TopicSettings
    name: str  # Of the topic and partition.
    state: LogState  # The journal's.

    @property
    def is_alone(self) -> bool:
        """Whether no other replica votes in it, or did in an epoch that the journal knows."""
        mine = {self.me}
        return self.founders == mine and all(each.voters == mine for each in self.state.boundaries)


Outcome = Log | StorageError
HandOver = Callable[[Opening, Outcome], None]


class Recovery:
    """Opens logs for the event loop, from any thread."""

    def __init__(
        self,
        files: Files,
        config: Config,
        *,
        last_stop: LastStop,
        keyring: "Keyring | None" = None,
    ) -> None:
        self._keyring = keyring
        self._files = files
        self._limits = config.limits
        self._was_clean, self._clean_ends = last_stop
        self._make_names_durable()

    def _make_names_durable(self) -> None:
        """Sync the names of all directories of logs, once instead of with each log.

        Those that come later are synced by the first round of their logs. Raises `StorageError`.
        """
        try:
            if not self._was_clean and self._files.exists(LOGS):
                self._files.sync_directory(LOGS)
        except OSError as problem:
            raise storage_error(problem, LOGS) from problem

    def is_new(self, opening: Opening) -> bool:
        """Whether there is nothing of this log to read, and no key to be made for it."""
        return (
            opening.state is UNKNOWN_LOG
            and self._keyring is None
            and not self._files.exists(log_directory(opening.log_id))
        )

    def prepare(self, openings: Sequence[Opening]) -> None:
        """Blocks. Make the keys of all their topics in one write; raises `StorageError`."""
        if self._keyring is not None:
            self._keyring.prepare(opening.log_id for opening in openings)

    def recover(self, opening: Opening) -> Log:
        """Blocks. The log has a cache of its own until `Log.share`; raises `StorageError`."""
        cache = LogCache(index_bytes_max=INDEX_BYTES_MAX, open_files_max=OPEN_FILES_MAX)
        cache.on_damage = _leave_damage
        settings, state = opening.settings, opening.state
        self.prepare([opening])
        keyring, log_id = self._keyring, opening.log_id
        # Where others vote, a log may have been cut since.
        is_alone = opening.is_alone
        clean_end = self._clean_ends.get(str(opening.log_id)) if is_alone else None
        was_clean = self._was_clean and not (clean_end is not None and clean_end.may_have_tail)
        log = open_log(
            self._files,
            log_directory(opening.log_id),
            settings=settings,
            cache=cache,
            start_offset=state.start_offset,
            boundaries=state.boundaries,
            producer_ids_max=self._limits.producer_ids_max,
            was_clean=was_clean,
            clean_end=clean_end,
            are_parents_durable=True,  # Since `_make_names_durable`.
            may_have_gaps=rewrites(settings) or not is_alone,
            sealer=None if keyring is None else keyring.sealer(log_id),
            decompressed_bytes_max=self._limits.batch_decompressed_bytes_max,
        )
        if log.end_offset < state.durable_end:
            # A shorter log would vote as if it had never acknowledged the rest.
            log.abandon()
            raise DamagedLog(
                f"{log.directory} ends at offset {log.end_offset}, and was durable up to "
                f"{state.durable_end}: what is missing was committed"
            )
        return log


class Openings:
    def __init__(
        self,
        ports: Ports,
        recovery: Recovery,
        *,
        hand_over: HandOver,
        let_go: Callable[[LogId], None],
    ) -> None:
        """`recovery` works on a thread; `hand_over` gets its outcome on the event loop.

        `let_go` is called instead for a log that was dropped while a thread worked on it.
        """
        self._threads = ports.threads
        self._clock = ports.clock
        self._recovery = recovery
        self._hand_over = hand_over
        self._let_go = let_go
        self.pending: dict[LogId, Opening] = {}
        self._queue: deque[LogId] = deque()  # May name logs that were dropped.
        self._under_way: set[LogId] = set()
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()

    def __contains__(self, log_id: object) -> bool:
        return log_id in self.pending

    @property
    def is_idle(self) -> bool:
        return not self.pending and not self._under_way

    def opens(self, topic_id: UUID) -> bool:
        """Whether a log of this topic is being opened."""
        return any(log_id.topic_id == topic_id for log_id in self.pending)

    def find(self, log_id: LogId) -> Opening | None:
        return self.pending.get(log_id)

    def add(self, opening: Opening) -> None:
        assert opening.log_id not in self._under_way
        self.pending[opening.log_id] = opening
        self._queue.append(opening.log_id)
        self._wake.set()

    def drop(self, log_id: LogId) -> bool:
        """Do not open it; True if a thread works on it still, and `let_go` will be called."""
        self.pending.pop(log_id, None)
        self._announce()
        return log_id in self._under_way

    def recover_now(self, opening: Opening) -> Outcome:
        """Blocks."""
        try:
            return self._recovery.recover(opening)
        except StorageError as problem:
            return problem

    async def finished(self, log_ids: Iterable[LogId] | None = None) -> None:
        """Wait until none of these, or of all, is being opened any more, however that went."""
        for log_id in tuple(self.pending) if log_ids is None else log_ids:
            while log_id in self.pending:
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
            if all(map(self._recovery.is_new, batch)):
                outcomes = self._recover_some(batch)
                self._put_back(batch[len(outcomes) :])
            else:
                outcomes = await self._recover_on_thread(batch)
            for opening, outcome in outcomes:
                self._conclude(opening.log_id, outcome)
            self._announce()
            await asyncio.sleep(0)

    def _take(self) -> list[Opening]:
        batch: list[Opening] = []
        while self._queue and len(batch) < LOGS_PER_JOB:
            opening = self.pending.get(self._queue.popleft())
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
        self._put_back(batch[len(outcomes) :])
        return outcomes

    def _put_back(self, batch: list[Opening]) -> None:
        for opening in reversed(batch):
            self._under_way.discard(opening.log_id)
            if opening.log_id in self.pending:
                self._queue.appendleft(opening.log_id)
                self._wake.set()
            else:
                self._let_go(opening.log_id)

    def _recover_some(self, batch: list[Opening]) -> list[tuple[Opening, Outcome]]:
        """Blocks; on a thread unless all are new. At least the first, and more until time is up."""
        outcomes: list[tuple[Opening, Outcome]] = []
        end_ms = self._clock.now_ms() + JOB_MS
        try:
            self._recovery.prepare(batch)
        except StorageError as problem:
            return [(opening, problem) for opening in batch]
        for opening in batch:
            outcomes.append((opening, self.recover_now(opening)))
            if self._clock.now_ms() >= end_ms:
                break
        return outcomes

    def _conclude(self, log_id: LogId, outcome: Outcome) -> None:
        self._under_way.discard(log_id)
        opening = self.pending.pop(log_id, None)
        if opening is None:
            self._let_go(log_id)
        else:
            self._hand_over(opening, outcome)

    def _announce(self) -> None:
        """Wake the callers of `finished`, which check again."""
        self._progress.set()
        self._progress = asyncio.Event()


def logs_on_disk(files: Files) -> list[LogId]:
    log_ids = []
    for name in files.list(LOGS):
        try:
            log_ids.append(LogId.parse(name))
        except ValueError:
            _log.warning("left alone what is not a log name=%s", name)
    return log_ids


def make_replica(
    opening: Opening,
    log: Log,
    journal: Journal,
    commits: "GroupCommit",
    ports: Ports,
    *,
    timing: Timing,
    limits: Limits,
) -> Replica:
    """Make the replica of an opened log; the journal drops boundaries beyond its end."""
    log_id, state = opening.log_id, opening.state
    assert state == journal.state(log_id), "only a replica changes what the journal says"
    if incarnation := incarnation_of(opening.me):
        journal.place(log_id, incarnation)
    kept = [b for b in state.boundaries if b.start_offset <= log.end_offset]
    if len(kept) < len(state.boundaries):
        journal.cut_epochs(log_id, kept[-1].epoch if kept else NO_EPOCH)
    consensus_log = ConsensusLog(
        log_id,
        log,
        journal,
        ports.clock,
        founders=opening.founders,
        fetch_bytes_max=limits.replica_fetch_bytes_max,
    )
    core = Core(opening.me, consensus_log, state.hard_state, ports.entropy, timing=timing)
    return Replica(
        log_id,
        consensus_log,
        core,
        commits,
        waiters_max=limits.append_waiters_max,
        name=opening.name,
    )


def log_directory(log_id: LogId) -> str:
    return f"{LOGS}/{log_id}"


def close(log: Log, *, is_alone: bool) -> None:
    """Close a log at an orderly stop; `is_alone` says that no other node votes in it.

    Only a log that is never cut or rewritten has a short segment left unsealed: the note of its
    end stays true.
    """
    is_plain = is_alone and not rewrites(log.settings)
    log.close(scanned_bytes_max=SCANNED_BYTES_MAX if is_plain else 0)


def clean_end(log: Log, note: AtRest | None) -> CleanEnd:
    """Where the log ends: the next start finds it there, if the stop was clean."""
    end_offset = log.end_offset
    if not log.segments():
        return CleanEnd(end_offset, 0, 0, note)
    last = log.segment_at(end_offset)
    return CleanEnd(end_offset, last.base_offset, last.size, note)


def _leave_damage(segment: Segment, bad: BadRange) -> None:
    """Report nothing on a thread: `Log.share` does."""
