"""All replicas of a node: opens, ticks and drops them, and gives them their messages.

`group_commit` applies the effects of their cores; `upkeep` does retention and compaction. A log
that cannot be opened is damaged: it stays as it is, requests for it get an error, and the node
lives.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count

from millstream.config import Config
from millstream.errors import (
    CorruptBatch,
    InvalidBatch,
    NotLeader,
    StorageError,
    StorageUnavailable,
    UnknownTopic,
)
from millstream.metrics import (
    DAMAGED_RANGES,
    ELECTIONS_WON,
    LEADERS,
    REPLICAS,
    STORAGE_FAILURES,
    UNREADABLE_RECORDS,
    Metrics,
    Sample,
)
from millstream.model import NO_EPOCH, LogId, NodeId, Offset
from millstream.ports import PeerMessage, Ports
from millstream.raft.core import Core
from millstream.raft.member import Effects, Timing
from millstream.raft.messages import Message
from millstream.replication.consensus_log import ConsensusLog
from millstream.replication.group_commit import GroupCommit
from millstream.replication.opening import Opening, Openings, Recovery, log_directory
from millstream.replication.repairing import read_all_skipped, report_damage, skip_damage
from millstream.replication.replica import Replica
from millstream.replication.scrubbing import Scrubber
from millstream.replication.space import watch_space
from millstream.replication.storage_work import StorageWork
from millstream.replication.upkeep import Upkeep
from millstream.settings import TopicSettings
from millstream.storage.files.directory import LOGS
from millstream.storage.journal.journal import Journal
from millstream.storage.log.cache import IndexRebuild, LogCache, Verification
from millstream.storage.log.log import Log
from millstream.storage.log.repair import Skipped
from millstream.storage.log.segment import Segment
from millstream.storage.log.verifying import BadRange

_log = logging.getLogger(__name__)

ELECTION_TICKS_MIN = 5
OPEN_RETRY_S = 1.0
# How often all replicas are asked whether they need ticks, and how many in one turn of the loop.
SWEEP_TICKS = 20
SWEPT_AT_ONCE = 1_000
# How long to wait before reading a log's producers again, if the disk refused for now.
FOLD_RETRY_S = 0.1


class Hub:
    def __init__(
        self,
        me: NodeId,
        ports: Ports,
        journal: Journal,
        *,
        config: Config,
        metrics: Metrics,
        was_clean: bool = False,
    ) -> None:
        self.replicas: dict[LogId, Replica] = {}
        self.damaged: dict[LogId, StorageError] = {}
        self._droppers: list[Callable[[LogId], None]] = []
        self.strays: list[LogId] = []  # On disk, and no topic speaks of them.
        self._me = me
        self._ports = ports
        self._journal = journal
        self._config = config
        self._metrics = metrics
        self._watchers = 0
        # Could not be opened for want of resources, and are tried again.
        self._unopened: dict[LogId, tuple[frozenset[NodeId], TopicSettings, str]] = {}
        self._removing: dict[LogId, None] = {}  # Deleted; their files have yet to go.
        self._removing_wake = asyncio.Event()
        self._ticking: dict[Replica, None] = {}  # Replicas that need ticks.
        self._folding: dict[Replica, None] = {}  # Logs whose producers are behind.
        self._folding_wake = asyncio.Event()
        self._cache = LogCache(
            index_bytes_max=config.limits.index_cache_bytes_max,
            open_files_max=config.limits.open_files_max,
        )
        self._cache.on_damage = self._report_damage
        self._work = StorageWork(ports.threads)
        self._cache.work_soon = self._work.soon
        self.topic_name: Callable[[LogId], str] = str  # Set by the node, which knows names.
        ticks = config.timing.election_timeout_ms // config.timing.tick_ms
        self._timing = Timing(election_ticks=max(ELECTION_TICKS_MIN, ticks))
        self.commits = GroupCommit(
            self.replicas,
            journal,
            ports.sync_threads,
            ports.links,
            metrics,
            durability=config.durability,
            flush_interval_ms=config.timing.flush_interval_ms,
        )
        self._recovery = Recovery(me, ports.files, config, was_clean=was_clean)
        self._openings = Openings(
            ports.threads,
            ports.clock,
            recover=self._recovery.recover,
            hand_over=self._hand_over,
            let_go=self._remove_soon,
        )
        self.upkeep = Upkeep(self.replicas, self.commits, ports, config=config, metrics=metrics)
        self.scrubber = Scrubber(self.replicas, ports, config=config, metrics=metrics)
        metrics.watch(self._samples)
        ports.links.open(self._receive)

    def reconfigure(self, config: Config) -> None:
        """Follow settings that were changed at run time: those of upkeep and scrubbing."""
        self.upkeep.reconfigure(config)
        self.scrubber.reconfigure(config)

    # -- replicas ------------------------------------------------------------------------------

    def keep(
        self,
        log_id: LogId,
        founders: frozenset[NodeId],
        settings: TopicSettings,
        *,
        name: str = "",
    ) -> None:
        """Open a replica of this log, or change its settings. `founders` vote in a new log.

        `name` is the topic and partition, for the log and for operators. It is opened on a thread,
        and there once `opened` says so.
        """
        replica = self.replicas.get(log_id)
        if replica is not None:
            replica.log.settings = settings
            return
        opening = self._openings.find(log_id)
        if opening is not None:
            opening.settings = settings
            return
        self._openings.add(Opening(log_id, founders, settings, name, self._journal.state(log_id)))

    def keep_now(
        self, log_id: LogId, founders: frozenset[NodeId], settings: TopicSettings, *, name: str
    ) -> Replica:
        """The same on the event loop, before anything else runs there; raises `StorageError`."""
        opening = Opening(log_id, founders, settings, name, self._journal.state(log_id))
        return self._take_part(opening, self._recovery.recover(opening))

    async def opened(self, log_ids: Iterable[LogId] | None = None) -> None:
        """Wait until none of these, or of all, is being opened; what cannot be is `damaged`."""
        await self._openings.finished(log_ids)

    def is_opening(self, log_id: LogId) -> bool:
        return log_id in self._openings

    def drop(self, log_id: LogId) -> None:
        """Remove a replica with all its records. Only for what a command deleted."""
        replica = self.replicas.pop(log_id, None)
        for forget in self._droppers:
            forget(log_id)
        self.damaged.pop(log_id, None)
        self._unopened.pop(log_id, None)
        if replica is not None:
            replica.leave()
            replica.log.abandon()
            self._ticking.pop(replica, None)
            self._metrics.set(REPLICAS, len(self.replicas))
        if not self._openings.drop(log_id):
            self._remove_soon(log_id)

    def on_drop(self, forget: Callable[[LogId], None]) -> None:
        """Call `forget` with every log that is dropped, before its files are removed."""
        self._droppers.append(forget)

    def find(self, log_id: LogId) -> Replica:
        replica = self.replicas.get(log_id)
        if replica is not None:
            return replica
        problem = self.damaged.get(log_id)
        if problem is not None:
            raise StorageUnavailable(str(problem))
        if self.is_opening(log_id):
            raise NotLeader(log_id, None)
        raise UnknownTopic(log_id)

    @property
    def open_file_count(self) -> int:
        """Files of segments that are open, for reading or writing."""
        return self._cache.open_count

    def count_unreadable(self, topic: str) -> None:
        """Count a committed record of an internal topic that its reader had to skip."""
        self._metrics.add(UNREADABLE_RECORDS, 1, topic)

    def logs_in_journal(self) -> list[LogId]:
        """The logs of which the journal still knows a vote, an epoch or a start."""
        return self._journal.logs()

    def logs_on_disk(self) -> list[LogId]:
        log_ids = []
        for name in self._ports.files.list(LOGS):
            try:
                log_ids.append(LogId.parse(name))
            except ValueError:
                _log.warning("left alone what is not a log name=%s", name)
        return [log_id for log_id in log_ids if log_id not in self._removing]

    async def verify(self, work: Verification | IndexRebuild) -> None:
        """Verify on a thread what a reader asked for. What the disk refuses counts as damage."""
        await self._work.verify(work)

    async def skip_damage(self, log_id: LogId, offset: Offset) -> Skipped:
        """Give up damaged records of a log, so that readers go on behind them."""
        return await skip_damage(self.find(log_id), offset, commits=self.commits, ports=self._ports)

    async def skipped(self) -> list[tuple[LogId, Skipped]]:
        """All damaged records that were given up here."""
        work = partial(read_all_skipped, self._ports.files, list(self.replicas))
        try:
            return await self._ports.threads.run(work)
        except OSError as problem:
            raise StorageUnavailable(str(problem)) from problem

    def _report_damage(self, segment: Segment, bad: BadRange) -> None:
        self._metrics.add(DAMAGED_RANGES)
        log_id = LogId.parse(segment.directory.rpartition("/")[2])
        report_damage(self.topic_name(log_id), log_id.partition, bad)

    # -- waiting -------------------------------------------------------------------------------

    async def led(self, log_id: LogId) -> None:
        """Wait until the replica here is ready: it leads, or knows its leader."""
        await self.opened([log_id])
        while (replica := self.replicas.get(log_id)) is not None and not replica.is_ready:
            await self.moved([log_id], None)

    async def ready(self) -> None:
        """Wait until all replicas are ready, but no longer than a few elections take."""
        limit_ms = 5 * self._config.timing.election_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                for log_id in list(self.replicas):
                    await self.led(log_id)
        except TimeoutError:
            _log.warning("not all partitions have a leader yet waited_ms=%d", limit_ms)

    async def moved(self, logs: Iterable[LogId], seconds: float | None) -> bool:
        """Wait until one of these replicas changed, or time is up.

        Returns False at once when `read_waiters_max` is reached and there is a time limit.
        """
        replicas = [each for log_id in logs if (each := self.replicas.get(log_id)) is not None]
        is_crowded = self._watchers + len(replicas) > self._config.limits.read_waiters_max
        if is_crowded and seconds is not None:
            return False
        self._watchers += len(replicas)
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
            self._watchers -= len(replicas)
            for replica in replicas:
                replica.unwatch(wake)
        return True

    # -- driving -------------------------------------------------------------------------------

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.commits.run())
            group.create_task(self._tick_forever())
            group.create_task(self._openings.run())
            group.create_task(self._work.run())
            group.create_task(self._open_forever())
            group.create_task(watch_space(self.replicas, self._ports, self._metrics))
            group.create_task(self._fold_forever())
            group.create_task(self._remove_forever())
            group.create_task(self.upkeep.run())
            group.create_task(self.scrubber.run())

    def close(self) -> bool:
        """Close all logs; return whether the next start may skip their verification."""
        self._ports.links.close()
        if self.commits.failure is not None or self.commits.is_syncing:
            for replica in self.replicas.values():
                replica.leave()
                replica.log.abandon()
            self._journal.abandon()
            return False
        work = self._journal.begin_sync()
        if work is not None:
            work()  # On the event loop: nothing is served any more.
            self._journal.end_sync()
        for replica in self.replicas.values():
            replica.leave()
            replica.log.close()
        self._journal.close()
        return not self.damaged and not self._unopened and self._openings.is_idle

    async def _tick_forever(self) -> None:
        seconds = self._config.timing.tick_ms / 1000
        for number in count(1):
            await asyncio.sleep(seconds)
            for replica in tuple(self._ticking):
                self._drive(replica, replica.core.tick)
            if number % SWEEP_TICKS == 0:
                await self._find_ticking()

    async def _find_ticking(self) -> None:
        """Check all replicas: a sync may make a removed leader resign outside of `_drive`."""
        for number, replica in enumerate(list(self.replicas.values()), start=1):
            self._follow_time(replica)
            if number % SWEPT_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _follow_time(self, replica: Replica) -> None:
        """Tick the replica if it needs ticks: of thousands that lead alone, none does."""
        if replica.core.needs_ticks and not replica.is_gone and replica.failure is None:
            self._ticking[replica] = None
        else:
            self._ticking.pop(replica, None)

    def _remove_soon(self, log_id: LogId) -> None:
        self._removing[log_id] = None
        self._removing_wake.set()

    async def _remove_forever(self) -> None:
        """Remove the files of deleted logs, on a thread: there may be thousands."""
        while True:
            await self._removing_wake.wait()
            self._removing_wake.clear()
            while self._removing:
                log_id = next(iter(self._removing))
                await self._remove(log_id)
                del self._removing[log_id]

    async def _remove(self, log_id: LogId) -> None:
        try:
            work = partial(self._ports.files.remove_directory, log_directory(log_id))
            await self._ports.threads.run(work)
            self._journal.forget(log_id)
        except (OSError, StorageError) as problem:
            # The command stays in the control log: the next start tries again.
            _log.warning("could not remove a deleted log log=%s problem=%s", log_id, problem)

    async def _open_forever(self) -> None:
        """Try again to open what found no free descriptor or space."""
        while True:
            await asyncio.sleep(OPEN_RETRY_S)
            unopened, self._unopened = self._unopened, {}
            for log_id, (founders, settings, name) in unopened.items():
                self.keep(log_id, founders, settings, name=name)

    def _receive(self, sender: NodeId, log_id: LogId, message: PeerMessage) -> None:
        replica = self.replicas.get(log_id)
        if replica is None:
            return  # Not here, or not yet: the sender asks again.
        assert isinstance(message, Message)
        self._drive(replica, lambda: replica.core.step(sender, message))

    def _drive(self, replica: Replica, step: Callable[[], Effects]) -> None:
        """Let the core take a step, and apply its effects."""
        if replica.failure is not None or replica.is_gone:
            return
        was_leader = replica.is_leader
        try:
            effects = step()
        except StorageError as problem:
            self._metrics.add(STORAGE_FAILURES)
            replica.refused(problem)
            self._fold_soon(replica)
            return
        except (CorruptBatch, InvalidBatch) as problem:
            _log.warning("dropped broken bytes log=%s problem=%s", replica.id, problem)
            return
        if replica.is_leader != was_leader:
            self._metrics.add(ELECTIONS_WON, int(replica.is_leader))
        self.commits.apply_effects(replica, effects)
        self._follow_time(replica)
        self._fold_soon(replica)

    def _fold_soon(self, replica: Replica) -> None:
        if not replica.log.is_folded:
            self._folding[replica] = None
            self._folding_wake.set()

    async def _fold_forever(self) -> None:
        """After a truncation: read the state of the log's producers at its new end."""
        while True:
            await self._folding_wake.wait()
            self._folding_wake.clear()
            while self._folding:
                replica = next(iter(self._folding))
                del self._folding[replica]
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

    def _leave_closed(self, log_id: LogId, name: str, problem: StorageError) -> None:
        if log_id not in self.damaged:  # Logged once, not with every attempt.
            self._metrics.add(STORAGE_FAILURES)
            _log.error("left a log closed partition=%s log=%s problem=%s", name, log_id, problem)
        self.damaged[log_id] = problem

    def _samples(self) -> Iterator[Sample]:
        """Counted on request: a count with each of thousands of elections would take seconds."""
        leaders = sum(replica.is_leader for replica in self.replicas.values())
        yield Sample(LEADERS, (), leaders)

    # -- parts ---------------------------------------------------------------------------------

    def _hand_over(self, opening: Opening, outcome: Log | StorageError) -> None:
        log_id, problem = opening.log_id, self.commits.failure
        if isinstance(outcome, StorageError):
            problem = outcome
        elif problem is None:
            self._take_part(opening, outcome)
            return
        self._leave_closed(log_id, opening.name, problem)
        if problem.is_transient:
            self._unopened[log_id] = opening.founders, opening.settings, opening.name

    def _take_part(self, opening: Opening, log: Log) -> Replica:
        """Make a replica of an opened log: it belongs to the event loop from here on."""
        log_id = opening.log_id
        log.settings = opening.settings  # They may have changed meanwhile.
        log.use_cache(self._cache)
        replica = self._replica(opening, log)
        self.damaged.pop(log_id, None)
        self.replicas[log_id] = replica
        self._metrics.set(REPLICAS, len(self.replicas))
        self._follow_time(replica)
        if replica.core.voters == {self._me}:
            self._drive(replica, replica.core.tick)  # The only voter leads at once.
        return replica

    def _replica(self, opening: Opening, log: Log) -> Replica:
        log_id, founders, state = opening.log_id, opening.founders, opening.state
        assert state == self._journal.state(log_id), "only a replica changes what the journal says"
        kept = [b for b in state.boundaries if b.start_offset <= log.end_offset]
        if len(kept) < len(state.boundaries):
            self._journal.cut_epochs(log_id, kept[-1].epoch if kept else NO_EPOCH)
        consensus_log = ConsensusLog(
            log_id,
            log,
            self._journal,
            self._ports.clock,
            founders=founders,
            fetch_bytes_max=self._config.limits.replica_fetch_bytes_max,
        )
        core = Core(
            self._me, consensus_log, state.hard_state, self._ports.entropy, timing=self._timing
        )
        return Replica(
            log_id,
            consensus_log,
            core,
            self.commits,
            waiters_max=self._config.limits.append_waiters_max,
            name=opening.name,
        )
