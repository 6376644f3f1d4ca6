"""All replicas of a node: opens, ticks and drops them, and gives them their messages.

`group_commit` applies the effects of their cores; `upkeep` does retention and compaction. A log
that cannot be opened is damaged: it stays as it is, requests for it get an error, and the node
lives.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID
from weakref import WeakValueDictionary

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
    REPLICAS,
    STORAGE_FAILURES,
    UNREADABLE_RECORDS,
    Metrics,
)
from millstream.metrics.traffic import TopicTraffic
from millstream.model import (
    CleanEnd,
    LastStop,
    LogId,
    NodeId,
    Offset,
    ReplicaId,
    node_of,
    replica_id,
)
from millstream.ports import Ports
from millstream.raft.member import Effects, Timing
from millstream.replication import opening as log_opening
from millstream.replication.folding import Folding
from millstream.replication.group_commit import GroupCommit
from millstream.replication.opening import Opening, Openings, Recovery, make_replica
from millstream.replication.peering.leadership import Leadership
from millstream.replication.peering.node_links import NodeLinks
from millstream.replication.removals import Removals, take_strides
from millstream.replication.repairing import log_name, read_all_skipped, report_damage, skip_damage
from millstream.replication.replica import Replica, wait_for_change
from millstream.replication.resting import Resting, at_rest
from millstream.replication.scrubbing import Scrubber
from millstream.replication.space import watch_space
from millstream.replication.storage_work import StorageWork
from millstream.replication.ticking import Ticker
from millstream.replication.upkeep import Upkeep
from millstream.settings import TopicSettings
from millstream.storage.journal.journal import Journal
from millstream.storage.log.cache import IndexRebuild, LogCache, Verification
from millstream.storage.log.log import Log
from millstream.storage.log.repair import Skipped
from millstream.storage.log.segment import Segment
from millstream.storage.log.verifying import BadRange

if TYPE_CHECKING:
    from millstream.storage.sealing.keyring import Keyring

_log = logging.getLogger(__name__)

ELECTION_TICKS_MIN = 5
OPEN_RETRY_S = 1.0


class Hub:
    def __init__(
        self,
        me: NodeId,
        ports: Ports,
        journal: Journal,
        *,
        config: Config,
        metrics: Metrics,
        last_stop: LastStop,
        keyring: "Keyring | None" = None,
    ) -> None:
        self.replicas: dict[LogId, Replica] = {}
        self.damaged: dict[LogId, StorageError] = {}
        # By topic; an entry goes with the last replica of its topic.
        self.traffic: WeakValueDictionary[UUID, TopicTraffic] = WeakValueDictionary()
        self._droppers: list[Callable[[LogId], None]] = []
        self.strays: list[LogId] = []  # On disk, and no topic speaks of them.
        self._me = me
        self._ports = ports
        self._journal = self.journal = journal
        self._config = config
        self._metrics = metrics
        self._watchers = 0
        # Could not be opened for want of resources, and are tried again.
        self._unopened: dict[LogId, Opening] = {}
        self.keyring = keyring
        self._removals = Removals(
            ports.files, ports.threads, journal, keyring=keyring, is_kept=self._is_kept
        )
        self._folding = Folding(metrics)
        self._work = StorageWork(ports.threads)
        self._cache = self._new_cache()
        self.topic_name: Callable[[LogId], str] = log_name  # Set by the node, which knows names.
        self.links = NodeLinks(me, self, ports, timing=config.timing, limits=config.limits)
        self.ticker = Ticker(self.links.tick, tick_ms=config.timing.tick_ms)
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
        self.resting = Resting(config.voters, last_stop)
        self._recovery = Recovery(ports.files, config, last_stop=last_stop, keyring=keyring)
        self._openings = Openings(
            ports, self._recovery, hand_over=self._hand_over, let_go=self._removals.add
        )
        self.upkeep = Upkeep(self.replicas, self.commits, ports, config=config, metrics=metrics)
        self.scrubber = Scrubber(self.replicas, ports, config=config, metrics=metrics)
        self.scrubber.resting, self.scrubber.awake = self.resting, self.awake
        self.leadership = Leadership(self, self.drive)
        self.commits.on_role = self._change_role
        self.commits.on_synced = self.upkeep.touch

    def _new_cache(self) -> LogCache:
        limits = self._config.limits
        cache = LogCache(
            index_bytes_max=limits.index_cache_bytes_max, open_files_max=limits.open_files_max
        )
        cache.on_damage = self._report_damage
        cache.work_soon = self._work.soon
        return cache

    def reconfigure(self, config: Config) -> None:
        """Follow settings that were changed at run time: those of upkeep and scrubbing."""
        self.upkeep.reconfigure(config)
        self.scrubber.reconfigure(config)

    # -- replicas ------------------------------------------------------------------------------

    def keep(
        self,
        log_id: LogId,
        founders: frozenset[ReplicaId],
        settings: TopicSettings,
        *,
        me: ReplicaId | None = None,
        name: str = "",
        may_rest: bool = False,
    ) -> None:
        """Open a replica of this log, or change its settings. `founders` vote in a new log; `me`
        is the replica here, the founder of this node unless it was placed here later.

        `name` is the topic and partition, for the log and for operators. It is opened on a thread,
        and there once `opened` says so. With `may_rest` a log that is as the last stop left it is
        opened when it is used.
        """
        replica = self.replicas.get(log_id)
        if replica is not None:
            replica.log.settings = settings
            self.upkeep.adopt(replica)
            return
        opening = self.resting.find(log_id)
        if opening is not None and opening.settings != settings:
            self.wake([log_id])
        opening = opening or self._openings.find(log_id)
        if opening is not None:
            opening.settings = settings
            return
        again = partial(self.keep, log_id, founders, settings, me=me, name=name)
        if self._removals.postpone(log_id, again):
            return  # It was moved away, and comes back as another replica.
        opening = self._opening(log_id, founders, settings, me=me, name=name)
        # The key of a topic is made on a thread, and a log that rests may be opened on the loop.
        has_key = self.keyring is None or self.keyring.has(log_id.topic_id)
        if may_rest and has_key and self.resting.add(opening):
            self._metrics.set(REPLICAS, self.log_count)
        else:
            self._openings.add(opening)

    def keep_now(
        self, log_id: LogId, founders: frozenset[ReplicaId], settings: TopicSettings, *, name: str
    ) -> Replica:
        """The same on the event loop, before anything else runs there; raises `StorageError`."""
        opening = self._opening(log_id, founders, settings, me=None, name=name)
        return self._take_part(opening, self._recovery.recover(opening))

    def get(self, log_id: LogId) -> Replica | None:
        """The replica here, if there is one. A log that rests is opened at once: it is short."""
        replica = self.replicas.get(log_id)
        if replica is None and (opening := self.resting.take(log_id)) is not None:
            self._hand_over(opening, self._openings.recover_now(opening))
            replica = self.replicas.get(log_id)
        return replica

    def wake(self, log_ids: Iterable[LogId]) -> None:
        """Have threads open those of these logs that rest."""
        for log_id in log_ids:
            if (opening := self.resting.take(log_id)) is not None:
                self._openings.add(opening)

    async def awake(self, log_ids: Iterable[LogId]) -> None:
        """Wait until those of these logs that are not open are, and led."""
        waking = self.resting.unled(log_ids, self._openings)
        self.wake(waking)
        await self.ready(waking)

    @property
    def has_unopened(self) -> bool:
        """Whether a log rests or is being opened. Each fetch asks: attributes, no calls."""
        return bool(self.resting.logs or self.resting.waking or self._openings.pending)

    async def opened(self, log_ids: Iterable[LogId] | None = None) -> None:
        """Wait until none of these, or of all, is being opened; what cannot be is `damaged`."""
        await self._openings.finished(log_ids)

    def is_opening(self, log_id: LogId) -> bool:
        return log_id in self._openings

    def drop(self, log_id: LogId) -> None:
        """Remove a replica with all its records. Only for what a command deleted or moved away."""
        replica = self.replicas.pop(log_id, None)
        for forget in self._droppers:
            forget(log_id)
        self.damaged.pop(log_id, None)
        self._unopened.pop(log_id, None)
        self.resting.drop(log_id)
        if replica is not None:
            replica.leave()
            replica.log.abandon()
            self.ticker.follow(replica)
            self.upkeep.forget(replica)
        self._metrics.set(REPLICAS, self.log_count)
        if self._openings.drop(log_id):
            self._removals.expect(log_id)
        else:
            self._removals.add(log_id)

    def on_drop(self, forget: Callable[[LogId], None]) -> None:
        """Call `forget` with every log that is dropped, before its files are removed."""
        self._droppers.append(forget)

    def find(self, log_id: LogId) -> Replica:
        replica = self.get(log_id)
        if replica is not None:
            return replica
        problem = self.damaged.get(log_id)
        if problem is not None:
            raise StorageUnavailable(str(problem))
        if self.is_opening(log_id):
            raise NotLeader(log_id, None)
        raise UnknownTopic(log_id)

    def log_ends(self) -> dict[str, CleanEnd]:
        """Where each log ends, by the name of its directory."""
        now = self._ports.clock.now_ms
        ends = {
            str(log_id): log_opening.clean_end(replica.log, at_rest(replica, now_ms=now()))
            for log_id, replica in self.replicas.items()
        }
        return ends | self.resting.ends()

    @property
    def log_count(self) -> int:
        """The logs that this node serves: those that are open, and those that rest."""
        return len(self.replicas) + len(self.resting)

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
        log_ids = log_opening.logs_on_disk(self._ports.files)
        return [log_id for log_id in log_ids if log_id not in self._removals]

    def _is_kept(self, topic_id: UUID) -> bool:
        """Whether some partition of the topic is here."""
        kept = (*self.replicas, *self.damaged, *self._unopened, *self.resting)
        return self._openings.opens(topic_id) or any(each.topic_id == topic_id for each in kept)

    async def verify(self, work: Verification | IndexRebuild) -> None:
        """Verify on a thread what a reader asked for. What the disk refuses counts as damage."""
        await self._work.verify(work)

    async def skip_damage(self, log_id: LogId, offset: Offset) -> Skipped:
        """Give up damaged records of a log, so that readers go on behind them."""
        return await skip_damage(self.find(log_id), offset, commits=self.commits, ports=self._ports)

    async def skipped(self) -> list[tuple[LogId, Skipped]]:
        """All damaged records that were given up here."""
        work = partial(read_all_skipped, self._ports.files, [*self.replicas, *self.resting])
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

    async def ready(self, log_ids: Iterable[LogId] | None = None) -> None:
        """Wait until these, or all replicas, are ready, but no longer than a few elections take."""
        limit_ms = 5 * self._config.timing.election_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                for log_id in list(self.replicas) if log_ids is None else log_ids:
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
        try:
            await wait_for_change(replicas, seconds)
        finally:
            self._watchers -= len(replicas)
        return True

    # -- driving -------------------------------------------------------------------------------

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.commits.run())
            group.create_task(self.ticker.run())
            group.create_task(self.links.run())
            group.create_task(self._openings.run())
            group.create_task(self._work.run())
            group.create_task(self._open_forever())
            group.create_task(self.resting.run(self.wake, self._ports.clock, self._config))
            group.create_task(watch_space(self.commits.refused, self._ports, self._metrics))
            group.create_task(self._folding.run())
            group.create_task(self._removals.run())
            group.create_task(self.upkeep.run())
            group.create_task(self.scrubber.run())
            if self.keyring is not None:
                group.create_task(take_strides(self.keyring, self._ports.threads))

    def close(self) -> bool:
        """Close all logs; return whether the next start may skip their verification."""
        self._ports.links.close()
        if self.commits.failure is not None or self.commits.is_syncing:
            for replica in self.replicas.values():
                replica.leave()
                replica.log.abandon()
            self._journal.abandon()
            return False
        for log_id, replica in self.replicas.items():
            if replica.core.needs_ticks and not replica.log.is_dirty and replica.failure is None:
                self._journal.note_durable(log_id, replica.core.start_offset_max)
        if (work := self._journal.begin_sync()) is not None:
            work()  # On the event loop: nothing is served any more.
            self._journal.end_sync()
        for replica in self.replicas.values():
            replica.leave()
            log_opening.close(replica.log, is_alone=replica.core.voters == {replica.me})
        self.upkeep.indexer.close()
        self._journal.close()
        return not self.damaged and not self._unopened and self._openings.is_idle

    def _change_role(self, replica: Replica) -> None:
        """Also a sync changes roles: a leader that was removed resigns when that is durable."""
        self.ticker.follow(replica)
        self.upkeep.touch(replica)
        self.leadership.changed(replica)

    async def _open_forever(self) -> None:
        """Try again to open what found no free descriptor or space."""
        while True:
            await asyncio.sleep(OPEN_RETRY_S)
            unopened, self._unopened = self._unopened, {}
            for log_id, each in unopened.items():
                self.keep(log_id, each.founders, each.settings, me=each.me, name=each.name)

    def drive(self, replica: Replica, step: Callable[[], Effects]) -> None:
        """Let the core take a step, and apply its effects."""
        if replica.failure is not None or replica.is_gone:
            return
        was_leader = replica.is_leader
        try:
            effects = step()
        except StorageError as problem:
            self._metrics.add(STORAGE_FAILURES)
            replica.stepped()  # It may have left its epoch before.
            replica.refused(problem)
            self._folding.follow(replica)
            return
        except (CorruptBatch, InvalidBatch) as problem:
            replica.stepped()
            _log.warning("dropped broken bytes log=%s problem=%s", replica.id, problem)
            return
        except AssertionError as problem:
            replica.stop(problem)
            return
        if replica.is_leader != was_leader:
            self._metrics.add(ELECTIONS_WON, int(replica.is_leader))
        self.commits.apply_effects(replica, effects)
        self.ticker.follow(replica)
        self._folding.follow(replica)

    def _leave_closed(self, log_id: LogId, name: str, problem: StorageError) -> None:
        if log_id not in self.damaged:  # Logged once, not with every attempt.
            self._metrics.add(STORAGE_FAILURES)
            _log.error("left a log closed partition=%s log=%s problem=%s", name, log_id, problem)
        self.damaged[log_id] = problem
        self.resting.woken(log_id, None)

    # -- parts ---------------------------------------------------------------------------------

    def _opening(
        self,
        log_id: LogId,
        founders: frozenset[ReplicaId],
        settings: TopicSettings,
        *,
        me: ReplicaId | None,
        name: str,
    ) -> Opening:
        if me is None:
            here = (founder for founder in founders if node_of(founder) == self._me)
            me = next(here, replica_id(self._me))
        return Opening(log_id, me, founders, settings, name, self._journal.state(log_id))

    def _hand_over(self, opening: Opening, outcome: Log | StorageError) -> None:
        log_id, problem = opening.log_id, self.commits.failure
        if isinstance(outcome, StorageError):
            problem = outcome
        elif problem is None:
            try:
                self._take_part(opening, outcome)
                return
            except StorageError as refusal:  # The journal is full.
                outcome.abandon()
                problem = refusal
        self._leave_closed(log_id, opening.name, problem)
        if problem.is_transient:
            self._unopened[log_id] = opening

    def _take_part(self, opening: Opening, log: Log) -> Replica:
        """Make a replica of an opened log: it belongs to the event loop from here on."""
        log_id = opening.log_id
        log.settings = opening.settings  # They may have changed meanwhile.
        log.use_cache(self._cache)
        replica = make_replica(
            opening,
            log,
            self._journal,
            self.commits,
            self._ports,
            timing=self._timing,
            limits=self._config.limits,
        )
        replica.traffic = self.traffic.setdefault(log_id.topic_id, replica.traffic)
        self.damaged.pop(log_id, None)
        self.replicas[log_id] = replica
        self._metrics.set(REPLICAS, self.log_count)
        self.upkeep.adopt(replica)
        self.links.adopt(replica)
        self.ticker.follow(replica)
        if replica.core.voters == {replica.me}:
            self.drive(replica, replica.core.tick)  # The only voter leads at once.
        self.resting.woken(log_id, replica)
        return replica
