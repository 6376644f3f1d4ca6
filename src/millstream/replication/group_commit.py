"""Group commit: one sync round makes durable whatever was written before it, for all who wait.

Owns carrying out the effects of consensus cores, in the order they demand: votes durable before
the messages that rest on them, records and boundaries durable before they are reported. A sync
that failed is never trusted again, because nobody knows what the disk holds then: every replica of
the directory stops until the node is started again and has read it back. A round that could not
begin its sync, because no descriptor or thread was free, is tried again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Literal, NamedTuple

from millstream.errors import OUT_OF_RESOURCES, DiskFailed, OutOfResources, StorageError
from millstream.metrics import (
    DISK_USABLE,
    STORAGE_FAILURES,
    SYNC_ROUNDS,
    SYNC_SECONDS,
    Metrics,
)
from millstream.model import NodeId, Position
from millstream.ports import Links, Threads
from millstream.raft.member import Effects
from millstream.raft.messages import Message
from millstream.replication.replica import Replica
from millstream.storage.journal.journal import Journal
from millstream.storage.log.log import Log

_log = logging.getLogger(__name__)

# How long a round may wait while nobody waits for it: what acks=1 producers wrote and no consumer
# asks for yet. A round costs as much as several appends, so writes in quick succession share one.
LINGER_S = 0.002
# Logs that a round syncs side by side. Their files wait for the same disk, which takes several
# syncs in little more than the time of one: six files take 0.6 to 1.1 ms instead of 0.9 to 1.6.
LANES_MAX = 4
# Logs in one round: to begin and to report one costs the event loop about 15 us, 50 us if it has
# sealed or given up segments. The others follow in the next round, which begins at once.
ROUND_LOGS_MAX = 200
# How soon a round, or its report, that found no free descriptor or thread is tried again.
RETRY_S = 0.1
# Messages waiting for a vote to be durable; beyond this they are lost, as any link may lose them.
HELD_MESSAGES_MAX = 10_000

Work = Callable[[], None]


class _Held(NamedTuple):
    round: int
    replica: Replica
    to: NodeId
    message: Message


class _Awaiting(NamedTuple):
    """A caller of `synced`: until which round it waits, and for which log."""

    round: int
    replica: Replica
    done: asyncio.Future[None]


class _Mark(NamedTuple):
    """Where a log stood when a round began."""

    replica: Replica
    position: Position
    cuts: int


class GroupCommit:
    def __init__(
        self,
        journal: Journal,
        threads: Threads,
        links: Links,
        metrics: Metrics,
        *,
        durability: Literal["sync", "write"],
        flush_interval_ms: int,
        failed: Callable[[StorageError], None],
    ) -> None:
        self.failure: StorageError | None = None
        self._journal = journal
        self._threads = threads
        self._links = links
        self._metrics = metrics
        self._failed = failed
        self._trusts_the_system = durability == "write"
        self._linger_s = flush_interval_ms / 1000 if self._trusts_the_system else LINGER_S
        self._round_due: asyncio.TimerHandle | None = None
        self._trusted: dict[Replica, None] = {}  # Written, to be reported by the next turn.
        self._begun = 0  # Rounds, counted from one.
        self._done = 0
        self._was_empty = False  # The last round had nothing to sync.
        self._is_held_up = False  # The last round found no free descriptor or thread.
        self._dirty: dict[Replica, None] = {}  # In the order of their writes.
        self._held: list[_Held] = []
        self._awaiting: list[_Awaiting] = []
        self._wake = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_finishing = False
        metrics.set(DISK_USABLE, 1)

    def carry_out(self, replica: Replica, effects: Effects) -> None:
        """Do what a step of the replica's core asks for. Never awaits, never raises."""
        if effects.hard_state is not None:
            replica.vote_round = self._begun + 1
            self._wake.set()
        for to, message in effects.messages:
            self._send(replica, to, message)
        if effects.unreadable is not None:
            self._metrics.add(STORAGE_FAILURES)
            replica.refused(effects.unreadable)
        if replica.log.is_dirty or not replica.is_durable:
            self._note_write(replica)
        if self._journal.is_dirty:
            self._wake.set()
        replica.observe()

    def hurry(self) -> None:
        """Somebody waits for what was written: begin the next round as soon as can be."""
        if not self._trusts_the_system:
            self._wake.set()

    @property
    def is_under_way(self) -> bool:
        """Whether a round was begun that has not ended."""
        return self._begun > self._done and self.failure is None

    async def run(self) -> None:
        """Sync round after round, until `finish`."""
        while True:
            if not self._wake.is_set():
                self._is_idle.set()
                if self._is_finishing:
                    return  # From here on nothing is under way that a thread could still touch.
            await self._wake.wait()
            self._is_idle.clear()
            self._wake.clear()
            await self._round()

    async def finish(self) -> None:
        """Wait until everything written is durable and its writers know; then sync no more."""
        self._is_finishing = True
        self._is_idle.clear()
        self._wake.set()
        await self._is_idle.wait()

    async def synced(self, replica: Replica) -> None:
        """Wait for the end of a round that begins after this call; raise what failed it."""
        if self.failure is not None:
            raise self.failure
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaiting.append(_Awaiting(self._begun + 1, replica, done))
        self._dirty[replica] = None
        self._wake.set()
        await done

    def _note_write(self, replica: Replica) -> None:
        self._dirty[replica] = None
        if self._wake.is_set() and not self._trusts_the_system:
            return  # The next round takes it along.
        if self._trusts_the_system:
            # What was reported as durable is still dirty, until a round has synced it.
            if not replica.is_durable:
                self._trust_soon(replica)
        elif not replica.is_leader or replica.is_awaited:
            self._wake.set()  # Also a follower's write is awaited, by its leader.
            return
        if self._round_due is None:
            loop = asyncio.get_running_loop()
            self._round_due = loop.call_later(self._linger_s, self._wake.set)

    def _trust_soon(self, replica: Replica) -> None:
        # Not from within the append: whoever appended has yet to say what it waits for. Nor in the
        # next turn, at whose end the loop sends: who waits for nothing more is answered before.
        if not self._trusted:
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._trust)
        self._trusted[replica] = None

    def _trust(self) -> None:
        """With durability "write", what the operating system has counts as durable."""
        trusted, self._trusted = self._trusted, {}
        if self._journal.is_dirty:
            return  # The round that syncs the journal reports the records as well.
        if len(trusted) > ROUND_LOGS_MAX:
            others = islice(trusted, ROUND_LOGS_MAX, None)
            self._trusted = dict.fromkeys(others)
            trusted = dict.fromkeys(islice(trusted, ROUND_LOGS_MAX))
            asyncio.get_running_loop().call_soon(self._trust)
        for replica in trusted:
            if replica.failure is None and not replica.is_gone:
                self._report_durable(replica, replica.consensus_log.last)

    def _send(self, replica: Replica, to: NodeId, message: Message) -> None:
        if replica.vote_round <= self._done:
            self._links.send(to, replica.id, message)
        elif len(self._held) < HELD_MESSAGES_MAX:
            self._held.append(_Held(replica.vote_round, replica, to, message))

    async def _round(self) -> None:
        if self.failure is not None:
            return
        if self._round_due is not None:
            self._round_due.cancel()
            self._round_due = None
        self._begun += 1
        number = self._begun
        marks = [
            _Mark(r, r.consensus_log.last, r.consensus_log.cuts)
            for r in self._take_dirty()
            if not r.is_gone
        ]
        started = asyncio.get_running_loop().time()
        try:
            # The journal goes first: a sealed segment's index then never outlives its epochs.
            journal_work = self._journal.begin_sync()
            works = [(mark.replica.log, mark.replica.log.begin_sync()) for mark in marks]
            await self._sync(journal_work, [work for _, work in works if work is not None])
        except (OSError, StorageError) as problem:
            if _may_pass(problem):
                self._try_again(problem, marks)
            else:
                self._fail(problem)
            return
        self._is_held_up = False
        self._metrics.add(SYNC_ROUNDS)
        self._metrics.add(SYNC_SECONDS, asyncio.get_running_loop().time() - started)
        self._done = number
        if journal_work is not None:
            self._journal.end_sync()
        self._report(marks, [log for log, work in works if work is not None])

    def _take_dirty(self) -> Iterable[Replica]:
        """The logs of the next round: at most `ROUND_LOGS_MAX`, and those that `synced` awaits."""
        dirty, self._dirty = self._dirty, {}
        if len(dirty) <= ROUND_LOGS_MAX:
            return dirty
        taken = dict.fromkeys(islice(dirty, ROUND_LOGS_MAX))
        taken |= dict.fromkeys(one.replica for one in self._awaiting)
        self._dirty = {replica: None for replica in dirty if replica not in taken}
        self._wake.set()
        return taken

    async def _sync(self, journal_work: Work | None, works: Sequence[Work]) -> None:
        """Have threads do the work of a round; raise what failed once none is at it any more."""
        is_empty = journal_work is None and not works
        if is_empty and not self._was_empty:
            self._was_empty = True
            return
        # A second empty round in a row goes to a thread, too: should rounds ever call for rounds
        # without end, the rest of the node must still have its turns.
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

    def _report(self, marks: Iterable[_Mark], synced: Iterable[Log]) -> None:
        for log in synced:
            log.end_sync()
        for number, _, done in self._awaiting:
            if number <= self._done and not done.done():
                done.set_result(None)
        self._awaiting = [one for one in self._awaiting if one.round > self._done]
        held, self._held = self._held, []
        for waiting in held:
            self._send(waiting.replica, waiting.to, waiting.message)
        for replica, position, cuts in marks:
            if replica.is_gone or replica.failure is not None:
                continue
            if replica.consensus_log.cuts == cuts:
                self._report_durable(replica, position)
            else:
                # Cut while the sync ran: the same bytes may have been written anew since.
                self.carry_out(replica, Effects())

    def _try_again(self, problem: OSError | StorageError, marks: Iterable[_Mark]) -> None:
        """Begin the same round anew in a moment: nothing of it was reported as durable."""
        if not self._is_held_up:
            self._is_held_up = True  # Logged once, not with every attempt.
            _log.warning("a sync waits for free resources problem=%s", problem)
        self._dirty = dict.fromkeys(mark.replica for mark in marks) | self._dirty
        if self._round_due is None:
            loop = asyncio.get_running_loop()
            self._round_due = loop.call_later(RETRY_S, self._wake.set)

    def _report_durable(self, replica: Replica, position: Position) -> None:
        """Tell the core how far its log is durable. Looking that up may need the disk.

        If that fails for now, the report is made again a little later: without it nothing would be
        committed until the next append.
        """
        try:
            effects = replica.core.durable(position)
        except StorageError as problem:
            self._metrics.add(STORAGE_FAILURES)
            replica.refused(problem)
            if replica.failure is None:
                asyncio.get_running_loop().call_later(RETRY_S, self._note_again, replica)
            return
        self.carry_out(replica, effects)

    def _note_again(self, replica: Replica) -> None:
        if self.failure is None and replica.failure is None and not replica.is_gone:
            self._note_write(replica)

    def _fail(self, problem: OSError | StorageError) -> None:
        failure = problem if isinstance(problem, StorageError) else DiskFailed(str(problem))
        self.failure = failure
        self._metrics.set(DISK_USABLE, 0)
        self._metrics.add(STORAGE_FAILURES)
        _log.error("stopped all partitions after a failed sync problem=%s", failure)
        self._held.clear()
        for _, _, done in self._awaiting:
            if not done.done():
                done.set_exception(failure)
        self._awaiting.clear()
        self._failed(failure)


def _may_pass(problem: OSError | StorageError) -> bool:
    """Whether a round found no descriptor, thread or memory, and no sync failed."""
    if isinstance(problem, OSError):
        return problem.errno in OUT_OF_RESOURCES
    return isinstance(problem, OutOfResources)


def _do_nothing() -> None:
    return


def _do_all(works: Iterable[Work]) -> None:
    """Runs on a thread."""
    for work in works:
        work()
