"""Background work on logs: retention, sealing by age, compaction, expiry of producers, indexes.

Owns when it is done and on which replicas: those that were touched since the last check (written,
given other settings, of another role) and those whose deadline has come. A log that nothing happens
to costs nothing until its records are due. What is done is decided elsewhere:
`storage.compaction.policy` says what is removed. The leader moves the start of a log, and followers
follow; compaction keeps offsets, so every replica compacts for itself.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

from millstream.config import Config
from millstream.errors import DamagedLog, RequestError, StorageError
from millstream.metrics import CLEANED_BYTES, Metrics
from millstream.model import LogId
from millstream.ports import Ports
from millstream.replication.group_commit import GroupCommit
from millstream.replication.indexing import Indexer
from millstream.replication.replica import Replica
from millstream.storage.compaction.driver import Compactor, facts
from millstream.storage.compaction.policy import (
    next_due_ms,
    retention_start,
    rewrites,
    should_seal,
)

_log = logging.getLogger(__name__)


# Partitions whose retention is checked in one turn of the event loop: about 12 us each, unless
# there is something to remove.
RETAINED_AT_ONCE = 100


class Upkeep:
    def __init__(
        self,
        replicas: Mapping[LogId, Replica],
        commits: GroupCommit,
        ports: Ports,
        *,
        config: Config,
        metrics: Metrics,
    ) -> None:
        self._replicas = replicas
        self._commits = commits
        self._ports = ports
        self._config = config
        self._metrics = metrics
        self._compactors: dict[Replica, Compactor] = {}
        self.indexer = Indexer(ports, config=config, metrics=metrics)
        self._rewritten: dict[Replica, None] = {}  # Of which single records go.
        self._resealed: dict[Replica, None] = {}  # Of which old batches get the keys of today.
        self._touched: dict[Replica, None] = {}
        # By time; the number keeps replicas from being compared. `_deadlines` has the one entry of
        # each replica that counts.
        self._heap: list[tuple[int, int, Replica]] = []
        self._deadlines: dict[Replica, int] = {}
        self._heap_entries = 0
        self.checked_count = 0  # Logs whose retention was checked since the start.

    def reconfigure(self, config: Config) -> None:
        """Use the settings of `config` from the next check on."""
        self._config = config
        self._compactors.clear()  # They hold a limit; what they remember is in files.
        self.indexer.reconfigure(config)
        for replica in self._replicas.values():
            self.touch(replica)

    def adopt(self, replica: Replica) -> None:
        """Follow a log that is new here, or has other settings."""
        self.touch(replica)
        self.indexer.follow(replica)
        if rewrites(replica.log.settings):
            self._rewritten[replica] = None
        else:
            self._rewritten.pop(replica, None)

    def touch(self, replica: Replica) -> None:
        """Check the log next time: it was written, or its role has changed."""
        self._touched[replica] = None

    def rewrite_soon(self, replicas: Iterable[Replica]) -> None:
        """Have all batches of these logs sealed with the keys of today."""
        self._resealed.update(dict.fromkeys(replicas))

    @property
    def rewriting_count(self) -> int:
        return len(self._resealed)

    def forget(self, replica: Replica) -> None:
        """The replica is gone. Its entry in the heap counts no more."""
        self._touched.pop(replica, None)
        self._deadlines.pop(replica, None)
        self._rewritten.pop(replica, None)
        self._resealed.pop(replica, None)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._retain_forever())
            group.create_task(self._compact_forever())
            group.create_task(self.indexer.run())

    def retain(self, replica: Replica) -> bool:
        """Seal what is old, and let the log start where its retention says; True if it did."""
        log, now_ms = replica.log, self._ports.clock.now_ms()
        settings, active = log.settings, log.active
        self.checked_count += 1
        expiration_ms = self._config.timing.producer_expiration_ms
        self._plan(replica, log.producers.expire(now_ms, expiration_ms))
        is_due = active is not None and should_seal(facts(active), now_ms=now_ms, settings=settings)
        if is_due:
            log.roll()
            self._commits.include(replica)
        if not (replica.is_leader and replica.is_ready):
            return is_due
        start = retention_start(
            [facts(segment) for segment in log.sealed()],
            active_bytes=0 if log.active is None else log.active.size,
            limit_offset=replica.high_watermark,
            now_ms=now_ms,
            settings=settings,
        )
        if start is None or start <= log.start_offset:
            return is_due
        before = log.health().size_bytes
        replica.advance_start(start)
        freed = before - log.health().size_bytes
        self._metrics.add(CLEANED_BYTES, max(0, freed), "retention")
        _log.info("retention log=%s start=%d freed_bytes=%d", replica.id, start, freed)
        return True

    async def compact(self, replica: Replica) -> None:
        """Rewrite what is worth it; the log stays in use."""
        log = replica.log
        if not rewrites(log.settings):
            return
        compactor = self._compactors.get(replica)
        if compactor is None:
            compactor = Compactor(log, self._ports.files, self._config.limits)
            self._compactors[replica] = compactor
        before = log.health().size_bytes
        is_done = await compactor.run(
            self._ports.threads,
            durable=lambda: self._commits.synced(replica),
            now_ms=self._ports.clock.now_ms(),
            limit_offset=replica.last_stable_offset,
        )
        if is_done:
            freed = max(0, before - log.health().size_bytes)
            self._metrics.add(CLEANED_BYTES, freed, "compaction")

    async def reseal(self, replica: Replica) -> bool:
        """Seal anew what another key has sealed, or none; False if it is to be tried again."""
        from millstream.storage.sealing.rewriting import Rewriting

        log, threads = replica.log, self._ports.threads
        if log.sealer is None:
            return True
        log.roll()
        self._commits.include(replica)
        await self._commits.synced(replica)
        interval_bytes = log.settings.index_interval_bytes
        is_done = True
        for segment in log.sealed():
            if segment.damage:
                continue  # Its bytes stay as they are until an operator gives them up.
            stored = log.contents(segment)
            work = Rewriting(self._ports.files, segment, stored, log.sealer, interval_bytes)
            new = await threads.run(work.run)
            if new is None:
                continue
            await threads.run(log.begin_replace([segment]))
            if log.replace([segment], new):
                await self._commits.synced(replica)
            else:
                is_done = False
        return is_done

    async def _reseal_some(self) -> None:
        for replica in list(self._resealed):
            is_done = replica.is_gone or replica.failure is not None
            try:
                is_done = is_done or await self.reseal(replica)
            except DamagedLog as problem:
                _log.error("rewriting stopped log=%s problem=%s", replica.id, problem)
                is_done = True
            except (StorageError, OSError) as problem:
                _log.warning("rewriting waits log=%s problem=%s", replica.id, problem)
            if is_done:
                self._resealed.pop(replica, None)

    async def _retain_forever(self) -> None:
        while True:
            await asyncio.sleep(self._config.timing.retention_check_ms / 1000)
            for count, replica in enumerate(self._take_due(), start=1):
                if replica.is_gone or replica.failure is not None:
                    continue
                has_worked = True
                try:
                    has_worked = self.retain(replica)
                except StorageError as problem:
                    self.touch(replica)
                    replica.refused(problem)
                except RequestError as problem:
                    self.touch(replica)
                    _log.warning("retention waits log=%s problem=%s", replica.id, problem)
                if has_worked or count % RETAINED_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _take_due(self) -> list[Replica]:
        """The replicas that were touched, and those whose deadline has come."""
        taken, self._touched = self._touched, {}
        now_ms = self._ports.clock.now_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, _, replica = heappop(self._heap)
            if self._deadlines.get(replica) == due_ms:
                del self._deadlines[replica]
                taken[replica] = None
        return list(taken)

    def _plan(self, replica: Replica, producer_due_ms: int | None) -> None:
        """Note when the log is to be checked again, if it is not written before."""
        log, now_ms = replica.log, self._ports.clock.now_ms()
        active = log.active
        segment_due_ms = next_due_ms(
            [facts(segment) for segment in log.sealed()],
            None if active is None else facts(active),
            settings=log.settings,
        )
        times_ms = [each for each in (producer_due_ms, segment_due_ms) if each is not None]
        due_ms = min(times_ms, default=None)
        is_open = replica.high_watermark < log.end_offset or not replica.is_ready
        if is_open or (due_ms is not None and due_ms <= now_ms):
            self.touch(replica)  # What is due now may have to wait, for a commit or the leader.
        elif due_ms is not None and due_ms < self._deadlines.get(replica, due_ms + 1):
            self._deadlines[replica] = due_ms
            self._heap_entries += 1
            heappush(self._heap, (due_ms, self._heap_entries, replica))

    async def _compact_forever(self) -> None:
        while True:
            await asyncio.sleep(self._config.timing.compaction_check_ms / 1000)
            await self._reseal_some()
            for replica in list(self._rewritten):
                if replica.is_gone or replica.failure is not None:
                    continue
                try:
                    await self.compact(replica)
                except DamagedLog as problem:
                    # The next run ends before it; readers are refused those offsets alone.
                    _log.error("compaction stopped log=%s problem=%s", replica.id, problem)
                except StorageError as problem:
                    if not replica.is_gone:
                        replica.refused(problem)
            self._compactors = {r: c for r, c in self._compactors.items() if not r.is_gone}
