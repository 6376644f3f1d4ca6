"""The way of every record from append to commit: one sync round serves all logs that were written.

`GroupCommit` owns the sequence. Its three steps, in the order in which a batch passes them:

    append(replica, batch)       a leader writes to the page cache, and the log waits for a sync
        |                        acks=1 is answered here
    request_sync()               a round begins at once, if a producer or reader waits; else within
        |                        `LINGER_S`. It takes all dirty logs: journal first, then segments
    commit(replica, position)    consensus learns what is durable, and the high watermark moves
                                 acks=all is answered here, readers wake

A vote goes the same way: the messages that rest on it are held until its round has ended.
`apply_effects` starts a round for whatever a tick or a message of another node has changed.

Invariant: votes are durable before the messages that rest on them are sent, records and boundaries
before they are reported. A sync that failed is never trusted again, because the kernel may have
dropped the pages: every replica of the directory stops until the node is started again and has
read back what the disk holds. A round that could not begin its sync, because no descriptor or
thread was free, is tried again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Literal, NamedTuple

from millstream.errors import OUT_OF_RESOURCES, DiskFailed, OutOfResources, StorageError
from millstream.metrics import (
    DISK_USABLE,
    LEADER_CHANGES,
    STORAGE_FAILURES,
    SYNC_ROUND_SECONDS,
    SYNC_ROUNDS,
    SYNC_SECONDS,
    Metrics,
    Peaks,
)
from millstream.model import LogId, Position, ReplicaId, node_of
from millstream.ports import Links, Threads
from millstream.raft.member import Effects
from millstream.raft.messages import Message
from millstream.replication.consensus_log import Stamped
from millstream.replication.replica import Replica
from millstream.storage.journal.journal import Journal
from millstream.storage.log.log import Log

_log = logging.getLogger(__name__)

# How long a log stays dirty while no producer or reader waits for its commit: acks=1 writes that no
# consumer has asked for. A round costs as much as several appends, so quick writes share one.
LINGER_S = 0.002
# Logs that a round syncs side by side. Their files wait for the same disk, which takes several
# syncs in little more than the time of one: six files take 0.6 to 1.1 ms instead of 0.9 to 1.6.
LANES_MAX = 4
# Logs in one round: to begin and to commit one costs the event loop about 15 us, 50 us if it has
# sealed or deleted segments. The others follow in the next round, which begins at once.
ROUND_LOGS_MAX = 200
# After how long a round, or a commit, that had no free descriptor or thread is tried again.
RETRY_S = 0.1
# How often the durable end of a log is written down, at most.
NOTE_S = 1.0
# Messages held for a vote to be durable; more end the link to the node that they are for.
HELD_MESSAGES_MAX = 10_000

Work = Callable[[], None]


class _Held(NamedTuple):
    """A message that waits for the round that makes a vote durable."""

    round: int
    replica: Replica
    to: ReplicaId
    message: Message


class _SyncWaiter(NamedTuple):
    """A caller of `synced`: the round it waits for, and the log that the round must include."""

    round: int
    replica: Replica
    done: asyncio.Future[None]


class _Mark(NamedTuple):
    """Where a log ended when a round began."""

    replica: Replica
    position: Position
    cuts: int


class GroupCommit:
    """Appends, syncs and commits the logs of a node; see the module for the order."""

    def __init__(
        self,
        replicas: Mapping[LogId, Replica],
        journal: Journal,
        threads: Threads,
        links: Links,
        metrics: Metrics,
        *,
        durability: Literal["sync", "write"],
        flush_interval_ms: int,
    ) -> None:
        self.failure: StorageError | None = None
        self.slow_rounds = Peaks()  # Of the seconds that rounds took.
        # Storage refused them something: `space` looks when that is over.
        self.refused: dict[Replica, None] = {}
        # Called with a replica whose role has changed, and with the logs that a round has synced.
        self.on_role: Callable[[Replica], None] = _ignore
        self.on_synced: Callable[[Replica], None] = _ignore
        self._replicas = replicas
        self._journal = journal
        self._threads = threads
        self._links = links
        self._metrics = metrics
        # With durability "write" records count as durable once the operating system has them.
        self._commits_unsynced = durability == "write"
        self._linger_s = flush_interval_ms / 1000 if self._commits_unsynced else LINGER_S
        self._linger: asyncio.TimerHandle | None = None
        self._unsynced: dict[Replica, None] = {}  # Written, to be committed without a sync.
        self._rounds_begun = 0
        self._rounds_done = 0
        self._was_empty = False  # The last round had nothing to sync.
        self._is_starved = False  # The last round had no free descriptor or thread.
        self._dirty: dict[Replica, None] = {}  # In the order of their writes.
        self._held: list[_Held] = []
        self._sync_waiters: list[_SyncWaiter] = []
        self._wake = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_finishing = False
        self.leader_changes = metrics.counter(LEADER_CHANGES)
        self._round_seconds = metrics.histogram(SYNC_ROUND_SECONDS)
        metrics.set(DISK_USABLE, 1)

    # -- the three steps -----------------------------------------------------------------------

    def append(self, replica: Replica, batch: Stamped) -> None:
        """Step 1: write a leader's batch to the page cache.

        Raises `StorageError` with nothing written. Changes no role and no watermark, so there is
        nothing to notify.
        """
        effects = replica.core.propose(batch)
        replica.refusal = None
        if effects.messages or effects.unreadable is not None or effects.hard_state is not None:
            self._act_on(replica, effects)
        self._plan_sync(replica, is_durable=False)
        if replica.group_links is not None:
            replica.group_links.observe()

    def request_sync(self) -> None:
        """Step 2: begin the next round as soon as can be, for a producer or reader that waits."""
        if not self._commits_unsynced:
            self._wake.set()

    def commit(self, replica: Replica, position: Position) -> None:
        """Step 3: report to consensus that the log is durable up to `position`.

        Looking the position up may need the disk. If that fails for now, it is tried again a
        little later: without it nothing would be committed until the next append.
        """
        try:
            effects = replica.core.durable(position)
        except StorageError as problem:
            self._metrics.add(STORAGE_FAILURES)
            replica.stepped()
            replica.refused(problem)
            if replica.failure is None:
                asyncio.get_running_loop().call_later(RETRY_S, self._plan_again, replica)
            return
        except AssertionError as problem:
            replica.stop(problem)
            return
        self.apply_effects(replica, effects)

    def commit_written(self, replica: Replica) -> None:
        """Step 3 at once, where nothing is waited for: no sync, no journal, no other voter.

        The reply to a producer with acks=all is then known in the turn of its request.
        """
        if (
            replica in self._unsynced
            and not replica.core.needs_ticks
            and not self._journal.is_dirty
        ):
            del self._unsynced[replica]
            self.commit(replica, replica.consensus_log.last)

    # -- the other inputs of consensus ---------------------------------------------------------

    def apply_effects(self, replica: Replica, effects: Effects) -> None:
        """Apply the effects of a step of the replica's core. Never awaits, never raises."""
        if replica.group_links is not None:
            replica.group_links.stepped()
        if effects.messages or effects.unreadable is not None or effects.hard_state is not None:
            self._act_on(replica, effects)
        self.include(replica)
        replica.notify()
        if replica.group_links is not None:
            replica.group_links.observe()

    def post(self, replica: Replica, to: ReplicaId, message: Message) -> None:
        """Send a message of a replica once every vote that it gave is durable."""
        if replica.vote_round <= self._rounds_done:
            self._transmit(replica, to, message)
        elif len(self._held) < HELD_MESSAGES_MAX:
            self._held.append(_Held(replica.vote_round, replica, to, message))
        else:  # A link loses nothing while it is up.
            self._links.end(node_of(to), "too many messages wait for a sync")

    def include(self, replica: Replica) -> None:
        """Plan a sync of whatever was written: a sealed segment, a log start, a cut, an epoch."""
        is_durable = replica.is_durable
        if not is_durable or replica.log.is_dirty:
            self._plan_sync(replica, is_durable=is_durable)
        if self._journal.is_dirty:
            self._wake.set()

    # -- rounds --------------------------------------------------------------------------------

    @property
    def is_syncing(self) -> bool:
        """Whether a round was begun that has not ended."""
        return self._rounds_begun > self._rounds_done and self.failure is None

    async def run(self) -> None:
        """Sync round after round, until `finish`."""
        while True:
            if not self._wake.is_set():
                self._is_idle.set()
                if self._is_finishing:
                    return  # From here on no thread works on a log.
            await self._wake.wait()
            self._is_idle.clear()
            self._wake.clear()
            await self._sync_round()

    async def finish(self) -> None:
        """Wait until everything written is durable and its writers are answered; then end `run`."""
        self._is_finishing = True
        self._is_idle.clear()
        self._wake.set()
        await self._is_idle.wait()

    async def synced(self, replica: Replica) -> None:
        """Wait for the end of a round that begins after this call; raise its failure."""
        if self.failure is not None:
            raise self.failure
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sync_waiters.append(_SyncWaiter(self._rounds_begun + 1, replica, done))
        self._dirty[replica] = None
        self._wake.set()
        await done

    async def _sync_round(self) -> None:
        if self.failure is not None:
            return
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self._rounds_begun += 1
        number = self._rounds_begun
        marks = [
            _Mark(replica, replica.consensus_log.last, replica.consensus_log.cuts)
            for replica in self._take_dirty()
            if not replica.is_gone
        ]
        started = self._metrics.elapsed_s()
        try:
            # The journal goes first: a sealed segment's index then never outlives its epochs.
            journal_work = self._journal.begin_sync()
            works = [(mark.replica.log, mark.replica.log.begin_sync()) for mark in marks]
            await self._sync(journal_work, [work for _, work in works if work is not None])
        except (OSError, StorageError) as problem:
            if _is_starvation(problem):
                self._try_again(problem, marks)
            else:
                self._fail(problem)
            return
        self._is_starved = False
        took_s = self._metrics.elapsed_s() - started
        self._metrics.add(SYNC_ROUNDS)
        self._metrics.add(SYNC_SECONDS, took_s)
        self._round_seconds.observe(took_s)
        self.slow_rounds.note(asyncio.get_running_loop().time(), took_s)
        self._rounds_done = number
        if journal_work is not None:
            self._journal.end_sync()
        self._end_round(marks, [log for log, work in works if work is not None])

    def _take_dirty(self) -> Iterable[Replica]:
        """The logs of the next round: at most `ROUND_LOGS_MAX`, and those that `synced` awaits."""
        dirty, self._dirty = self._dirty, {}
        if len(dirty) <= ROUND_LOGS_MAX:
            return dirty
        taken = dict.fromkeys(islice(dirty, ROUND_LOGS_MAX))
        taken |= dict.fromkeys(waiter.replica for waiter in self._sync_waiters)
        self._dirty = {replica: None for replica in dirty if replica not in taken}
        self._wake.set()
        return taken

    async def _sync(self, journal_work: Work | None, works: Sequence[Work]) -> None:
        """Have threads do the work of a round; raise the first failure once none is at work."""
        is_empty = journal_work is None and not works
        if is_empty and not self._was_empty:
            self._was_empty = True
            return
        # A second empty round in a row goes to a thread, too: should rounds ever call for rounds
        # without end, the other tasks of the node must still have their turns.
        self._was_empty = is_empty
        if journal_work is not None or is_empty:
            await self._threads.run(journal_work or _do_nothing)
        if len(works) == 1:  # As most rounds are: no task is needed for it.
            await self._threads.run(works[0])
            return
        lanes = [works[lane::LANES_MAX] for lane in range(min(LANES_MAX, len(works)))]
        jobs = [self._threads.run(partial(_do_all, lane)) for lane in lanes]
        for outcome in await asyncio.gather(*jobs, return_exceptions=True):
            if outcome is not None:
                raise outcome

    def _end_round(self, marks: Iterable[_Mark], synced: Iterable[Log]) -> None:
        for log in synced:
            log.end_sync()
        for number, _, done in self._sync_waiters:
            if number <= self._rounds_done and not done.done():
                done.set_result(None)
        self._sync_waiters = [w for w in self._sync_waiters if w.round > self._rounds_done]
        held, self._held = self._held, []
        for _, replica, to, message in held:
            self.post(replica, to, message)
        for replica, position, cuts in marks:
            if replica.is_gone or replica.failure is not None:
                continue
            self.on_synced(replica)
            if replica.consensus_log.cuts == cuts:
                self.commit(replica, position)
                if replica.core.needs_ticks:
                    self._note_durable(replica, position)
            else:
                # Cut while the sync ran: the same bytes may have been written anew since.
                self.include(replica)

    def _note_durable(self, replica: Replica, position: Position) -> None:
        """Where others vote: write down now and then how far the log is committed and durable."""
        now_s = asyncio.get_running_loop().time()
        if now_s - replica.noted_s >= NOTE_S and replica.failure is None:
            replica.noted_s = now_s
            end_offset = min(position.end_offset, replica.high_watermark)
            self._journal.note_durable(replica.id, end_offset)

    def _try_again(self, problem: OSError | StorageError, marks: Iterable[_Mark]) -> None:
        """Begin the same round anew in a moment: nothing of it was committed."""
        if not self._is_starved:
            self._is_starved = True  # Logged once, not with every attempt.
            _log.warning("a sync waits for free resources problem=%s", problem)
        self._dirty = dict.fromkeys(mark.replica for mark in marks) | self._dirty
        if self._linger is None:
            self._linger = asyncio.get_running_loop().call_later(RETRY_S, self._wake.set)

    def _fail(self, problem: OSError | StorageError) -> None:
        failure = problem if isinstance(problem, StorageError) else DiskFailed(str(problem))
        self.failure = failure
        self._metrics.set(DISK_USABLE, 0)
        self._metrics.add(STORAGE_FAILURES)
        _log.error("stopped all partitions after a failed sync problem=%s", failure)
        self._held.clear()
        for _, _, done in self._sync_waiters:
            if not done.done():
                done.set_exception(failure)
        self._sync_waiters.clear()
        for replica in self._replicas.values():
            replica.fail(failure)

    # -- parts ---------------------------------------------------------------------------------

    def _act_on(self, replica: Replica, effects: Effects) -> None:
        if effects.hard_state is not None:
            replica.vote_round = self._rounds_begun + 1
            self._wake.set()
        for to, message in effects.messages:
            self.post(replica, to, message)
        if effects.unreadable is not None:
            self._metrics.add(STORAGE_FAILURES)
            replica.refused(effects.unreadable)

    def _transmit(self, replica: Replica, to: ReplicaId, message: Message) -> None:
        if replica.group_links is not None:
            replica.group_links.transmit(to, message)

    def _plan_sync(self, replica: Replica, *, is_durable: bool) -> None:
        """Have the log synced: at once if its commit is awaited, else when `_linger` ends."""
        self._dirty[replica] = None
        if self._commits_unsynced:
            # A committed log is still dirty, until a round has synced it.
            if not is_durable:
                self._commit_unsynced_soon(replica)
        elif self._wake.is_set():
            return  # The next round includes it.
        elif replica.has_waiters or not replica.is_leader:
            self._wake.set()  # A follower's write is awaited by its leader.
            return
        if self._linger is None:
            self._linger = asyncio.get_running_loop().call_later(self._linger_s, self._wake.set)

    def _plan_again(self, replica: Replica) -> None:
        if self.failure is None and replica.failure is None and not replica.is_gone:
            self._plan_sync(replica, is_durable=replica.is_durable)

    def _commit_unsynced_soon(self, replica: Replica) -> None:
        # Two turns later: the appender registers its waiter in this turn, and acks=1 replies are
        # written at the end of the next.
        if not self._unsynced:
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._commit_unsynced)
        self._unsynced[replica] = None

    def _commit_unsynced(self) -> None:
        unsynced, self._unsynced = self._unsynced, {}
        if self._journal.is_dirty:
            self._wake.set()  # The round that syncs the journal commits the records as well.
            return
        if len(unsynced) > ROUND_LOGS_MAX:
            others = islice(unsynced, ROUND_LOGS_MAX, None)
            self._unsynced = dict.fromkeys(others)
            unsynced = dict.fromkeys(islice(unsynced, ROUND_LOGS_MAX))
            asyncio.get_running_loop().call_soon(self._commit_unsynced)
        for replica in unsynced:
            if replica.failure is None and not replica.is_gone:
                self.commit(replica, replica.consensus_log.last)


def _is_starvation(problem: OSError | StorageError) -> bool:
    """Whether a round had no descriptor, thread or memory, and no sync failed."""
    if isinstance(problem, OSError):
        return problem.errno in OUT_OF_RESOURCES
    return isinstance(problem, OutOfResources)


def _do_nothing() -> None:
    return


def _ignore(replica: Replica) -> None:
    return


def _do_all(works: Iterable[Work]) -> None:
    """Runs on a thread."""
    for work in works:
        work()
