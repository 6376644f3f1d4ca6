"""One partition on this node: its log, its consensus core, and the waiters for its commits.

Owns the waiters and watchers. Batches enter by `append`, and `notify` completes futures once they
are committed. What is between, syncs and messages, is in `group_commit`. Belongs to the event loop;
nothing here awaits.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.codec.batch import PREFIX_BYTES, Header, stamp
from millstream.errors import (
    BrokenReplica,
    DamagedBatch,
    LeaderNotReady,
    NoSpace,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    Overloaded,
    ReadPending,
    RequestError,
    StorageError,
    StorageUnavailable,
    TimedOut,
)
from millstream.metrics.traffic import TIER_POINTS_MAX, Arrivals, TopicTraffic
from millstream.model import Appended, Buffer, LogId, NodeId, Offset, node_of
from millstream.raft.core import Core
from millstream.raft.roles import Role
from millstream.replication.consensus_log import ConsensusLog, Stamped

if TYPE_CHECKING:  # It imports this module.
    from millstream.replication.group_commit import GroupCommit
    from millstream.replication.peering.group import GroupLinks

_log = logging.getLogger(__name__)

T = TypeVar("T")

# How long an append waits for more replicas than a majority: Kafka's `delivery.timeout.ms`, after
# which its producers wait no more. A request's own `timeout_ms` ends the wait sooner.
ACKNOWLEDGE_S_MAX = 120.0

# A leader that changes its voters is a candidate until the outcome is known. Its records stay in
# the log meanwhile, and commit in the next epoch if it wins.
_KEEPS_WAITERS = (Role.LEADER, Role.CANDIDATE)

Watcher = Callable[[], None]


class Replica:
    def __init__(
        self,
        log_id: LogId,
        consensus_log: ConsensusLog,
        core: Core,
        commits: "GroupCommit",
        *,
        waiters_max: int,
        name: str = "",
    ) -> None:
        self.id = log_id
        self.me = core.me
        self.name = name or str(log_id)  # As an operator knows it: topic and partition.
        self.log = consensus_log.log  # The records, in segments.
        self.consensus_log = consensus_log  # The same with its epochs, as consensus sees it.
        self.core = core
        self.failure: StorageError | None = None  # Once set, this replica takes part no more.
        self.is_gone = False
        self.group_links: GroupLinks | None = None  # Its part in the peer links, if there are any.
        self.noted_s = -inf  # When its durable end was last written down.
        self.vote_round = 0  # The sync round that makes the latest vote durable.
        self._commits = commits
        self._waiters_max = waiters_max
        # A heap by end offset; the count keeps futures from being compared. Each future is of its
        # own result's type, so here it can only be of Any.
        self._waiters: list[tuple[Offset, int, asyncio.Future[Any], object]] = []
        self._waiters_made = 0
        # Waiters for more replicas than a majority, in the order of their appends: the end offset
        # and the result of each. A future leaves when it is done, also when its request's time is
        # up: else slow replicas would fill the bound with waits that have ended.
        self._strict_waiters: OrderedDict[asyncio.Future[Any], tuple[Offset, object]] = (
            OrderedDict()
        )
        self.traffic = TopicTraffic()  # That of its topic, once the hub has it.
        self.arrivals: Arrivals | None = None  # None before they are asked for.
        self.refusal: StorageError | None = None  # A transient one, that has not passed yet.
        self._watchers: set[Watcher] = set()
        # High watermark, role, leader and whether it is established, as of the last `notify`.
        self._seen = (core.high_watermark, core.role, core.leader, core.is_established)
        self._cuts_seen = consensus_log.cuts

    # -- for the engine ------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.core.role is Role.LEADER and self.failure is None

    @property
    def is_ready(self) -> bool:
        """Whether a leader knows all that is committed, or a follower knows its leader.

        After a restart a leader knows it once its own epoch boundary is committed.
        """
        if self.core.role is not Role.LEADER:
            return self.leader is not None
        return self.core.is_established and self.log.is_folded

    @property
    def is_durable(self) -> bool:
        """Whether all of the log would survive a power cut, as far as is known."""
        return self.core.durable_position == self.consensus_log.last

    @property
    def has_waiters(self) -> bool:
        """Whether a producer or reader waits for the next commit."""
        return bool(self._waiters or self._watchers or self._strict_waiters)

    @property
    def leader(self) -> NodeId | None:
        """The node that leads, as far as known here."""
        leader = None if self.failure is not None else self.core.leader
        return None if leader is None else node_of(leader)

    @property
    def high_watermark(self) -> Offset:
        return self.core.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        return self.log.producers.last_stable_offset(self.core.high_watermark)

    @property
    def in_step_count(self) -> int:
        """How many voters hold everything that is committed and are heard, this one included."""
        return self.core.in_step_count

    def arrival_times(self) -> Arrivals:
        """When records arrived; asked for before the first append, so that older ones count."""
        if self.arrivals is None:
            log = self.log
            segments = [*log.sealed(), *filter(None, [log.active])]
            # The last record of a segment is as old as its newest timestamp, about.
            self.arrivals = Arrivals(
                (segment.end_offset - 1, segment.max_timestamp)
                for segment in segments[-TIER_POINTS_MAX // 2 :]
                if segment.max_timestamp >= 0 and segment.end_offset > segment.base_offset
            )
        return self.arrivals

    def append(self, data: Buffer, header: Header) -> Appended:
        """Write an admitted batch as the leader; a duplicate is not written again.

        Raises `NotLeader`, `LeaderNotReady`, `StorageUnavailable`, or an error of
        `Producers.check`, with nothing written.
        """
        if self.failure is not None:
            raise StorageUnavailable(str(self.failure))
        if not self.core.takes_proposals:
            raise NotLeader(self.id, self.leader)
        log = self.log
        if not log.is_folded:
            raise LeaderNotReady(self.id)
        start = log.start_offset
        duplicate = log.producers.check(header)
        if duplicate is not None:
            return Appended(duplicate.base_offset, duplicate.end_offset, duplicate.timestamp, start)
        stamped, prefix = stamp(header, base_offset=log.end_offset, epoch=self.core.epoch)
        chunks = (prefix, memoryview(data)[PREFIX_BYTES:])
        try:
            self._commits.append(self, Stamped((stamped,), chunks))
        except StorageError as problem:
            self.refused(problem)
            raise StorageUnavailable(str(problem)) from problem
        time_ms = stamped.max_timestamp if stamped.has_log_append_time else -1
        return Appended(stamped.base_offset, stamped.end_offset, time_ms, start)

    def commit_written(self) -> None:
        """Commit what was appended, if that needs no wait: then `committed` is done at once.

        Calls the watchers, so it is for logs whose watchers only take note.
        """
        self._commits.commit_written(self)

    def committed(self, end_offset: Offset, result: T) -> asyncio.Future[T]:
        """Return a future of `result`, done once all before `end_offset` is committed.

        It raises a `RequestError` if that is unknown, or cannot be waited for.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if end_offset <= self.core.high_watermark:
            done.set_result(result)
        elif not self.is_leader:
            done.set_exception(NotLeader(self.id, self.leader))
        elif len(self._waiters) >= self._waiters_max:
            done.set_exception(Overloaded(f"{self.id} has {self._waiters_max} appends waiting"))
        else:
            self._waiters_made += 1
            heappush(self._waiters, (end_offset, self._waiters_made, done, result))
            self._commits.request_sync()
        return done

    def acknowledged(self, end_offset: Offset, result: T) -> asyncio.Future[T]:
        """Like `committed`, but `min_insync_replicas` must hold it, if that is more than a
        majority. `NotEnoughReplicasAfterAppend` if too many of them fall silent meanwhile,
        `TimedOut` after `ACKNOWLEDGE_S_MAX`; the record stays in the log.
        """
        count_min = self.log.settings.min_insync_replicas
        if count_min == 1 or count_min <= len(self.core.voters) // 2 + 1 or not self.is_leader:
            return self.committed(end_offset, result)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if len(self._waiters) + len(self._strict_waiters) >= self._waiters_max:
            done.set_exception(Overloaded(f"{self.id} has {self._waiters_max} appends waiting"))
            return done
        self._strict_waiters[done] = end_offset, result
        timer = asyncio.get_running_loop().call_later(ACKNOWLEDGE_S_MAX, self._time_out, done)
        done.add_done_callback(lambda _: timer.cancel())
        done.add_done_callback(lambda _: self._strict_waiters.pop(done, None))
        self._commits.request_sync()
        self._complete_strict()
        return done

    def advance_start(self, start_offset: Offset) -> None:
        """Move the log start to `start_offset`, at most to the end of what is committed."""
        try:
            self.consensus_log.advance_start(min(start_offset, self.core.start_offset_max))
        except StorageError as problem:
            self.refused(problem)
            raise StorageUnavailable(str(problem)) from problem
        self._commits.include(self)

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` whenever the high watermark, the role or the leader changes."""
        self._watchers.add(watcher)
        if self.log.is_dirty:
            self._commits.request_sync()

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    # -- for the hub and group commit ----------------------------------------------------------

    def stepped(self) -> None:
        """The core took a step: before its effects are applied, peers hear which epoch it left."""
        if self.group_links is not None:
            self.group_links.stepped()

    def notify(self) -> None:
        """Complete waiters and call watchers, if a step of the core changed something for them."""
        if self._strict_waiters:
            self._complete_strict()
        core = self.core
        seen = (core.high_watermark, core.role, core.leader, core.is_established)
        old_watermark, old_role, _, _ = old = self._seen
        if seen == old:
            return
        self._seen = seen
        if core.leader is not None and core.leader != old[2]:
            self._commits.leader_changes.value += 1
        if self.consensus_log.cuts != self._cuts_seen:
            # The watermark may pass an offset where another record was committed.
            self._cuts_seen = self.consensus_log.cuts
            self._fail_waiters(NotLeader(self.id, self.leader))
        if self._waiters and core.high_watermark > old_watermark:
            self._complete_committed()
        if core.role is not old_role:
            _log.debug(
                "%s log=%s epoch=%d end=%d",
                core.role.value,
                self.id,
                core.epoch,
                self.log.end_offset,
            )
            if core.role not in _KEEPS_WAITERS:
                self._fail_waiters(NotLeader(self.id, self.leader))
            self._commits.on_role(self)
        if self._watchers:
            self._call_watchers()

    def refused(self, problem: StorageError) -> None:
        """Note that storage refused something: for now, or for good if it is not transient."""
        if not problem.is_transient:
            self.fail(problem)
            return
        if isinstance(problem, ReadPending):
            return  # The cache has logged it, and it passes without an operator.
        if self.refusal is None:  # Logged once, not with every attempt.
            reason = "disk full" if isinstance(problem, NoSpace) else "out of resources"
            _log.warning("%s partition=%s log=%s problem=%s", reason, self.name, self.id, problem)
        self.refusal = problem
        self._commits.refused[self] = None

    def unreadable(self, problem: StorageError) -> bool:
        """Note that a read failed; return True if this replica takes part no more because of it.

        A damaged batch costs its own offsets only, and an operator decides about them.
        """
        if self.failure is not None or isinstance(problem, DamagedBatch):
            return False
        self.refused(problem)
        return self.failure is not None

    def fail(self, problem: StorageError) -> None:
        """Take part no more: the log may not hold what it has acknowledged."""
        if self.failure is not None:
            return
        self.failure = problem
        _log.error("stopped partition=%s log=%s problem=%s", self.name, self.id, problem)
        self._fail_waiters(StorageUnavailable(str(problem)))
        self._leave_links()
        self._call_watchers()

    def stop(self, problem: AssertionError) -> None:
        """Take part no more: a step of the core met what cannot be, by a bug here or at a peer.

        Nothing of that step is sent. The other replicas of the node are served as before.
        """
        _log.error("a replica broke a rule of consensus log=%s", self.id, exc_info=problem)
        self.fail(BrokenReplica(f"{self.name} broke a rule of consensus: {problem}"))

    def folded(self) -> None:
        """The log's producers are known again: wake the watchers that wait for it."""
        self._call_watchers()

    def leave(self) -> None:
        """The partition is gone from this node."""
        self.is_gone = True
        self._leave_links()
        self._fail_waiters(NotLeader(self.id, None))
        self._call_watchers()

    # -- parts -----------------------------------------------------------------------------

    def _leave_links(self) -> None:
        """Tell the peers: none of its fetches counts any more, and it leads no more."""
        if self.group_links is not None:
            self.group_links.close()
            self.group_links = None

    def _call_watchers(self) -> None:
        """Call all of them, then raise the first error: each watcher is called in any case."""
        failures: list[Exception] = []
        for watcher in tuple(self._watchers):
            try:
                watcher()
            except Exception as problem:
                failures.append(problem)
        if failures:
            raise failures[0]

    def _complete_committed(self) -> None:
        high_watermark = self.core.high_watermark
        while self._waiters and self._waiters[0][0] <= high_watermark:
            _, _, done, result = heappop(self._waiters)
            if not done.done():  # Of a cancelled caller the records are written nevertheless.
                done.set_result(result)

    def _complete_strict(self) -> None:
        """Complete waiters whose records are committed and on `min_insync_replicas` replicas."""
        count_min = self.log.settings.min_insync_replicas
        held_end = min(self.core.high_watermark, self.core.end_held_by(count_min))
        while self._strict_waiters:
            done, (end_offset, result) = next(iter(self._strict_waiters.items()))
            if end_offset > held_end:
                break
            del self._strict_waiters[done]
            if not done.done():
                done.set_result(result)
        # A replica behind the majority is waited for, a silent one is not.
        if self._strict_waiters and self.is_leader and self.core.heard_count < count_min:
            problem = NotEnoughReplicasAfterAppend(
                f"{self.id} hears {self.core.heard_count} replicas, "
                f"its min_insync_replicas is {count_min}"
            )
            self._fail_strict(problem)

    def _time_out(self, done: asyncio.Future[Any]) -> None:
        if not done.done():
            done.set_exception(
                TimedOut(
                    f"{self.id} was not acknowledged by min_insync_replicas = "
                    f"{self.log.settings.min_insync_replicas} replicas in "
                    f"{ACKNOWLEDGE_S_MAX:g} s; the record is in the log, and may still be"
                )
            )

    def _fail_strict(self, problem: RequestError) -> None:
        waiters, self._strict_waiters = self._strict_waiters, OrderedDict()
        for done in waiters:
            if not done.done():
                done.set_exception(problem)

    def _fail_waiters(self, problem: RequestError) -> None:
        self._fail_strict(problem)
        waiters, self._waiters = self._waiters, []
        for _, _, done, _ in waiters:
            if not done.done():
                done.set_exception(problem)


async def wait_for_change(replicas: Sequence[Replica], seconds: float | None) -> None:
    """Wait until one of the replicas changed for its watchers, or time is up."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    timer = None if seconds is None else loop.call_later(seconds, wake)
    for replica in replicas:
        replica.watch(wake)
    try:
        await done
    finally:
        if timer is not None:
            timer.cancel()
        for replica in replicas:
            replica.unwatch(wake)
