"""Background work on every log: retention, sealing by age, compaction, expiry of producers.

Owns when it is done and on which replicas; `storage.compaction.policy` decides what is removed. The
leader moves the start of a log, and followers follow; compaction keeps offsets, so every replica
compacts for itself.
"""

import asyncio
import logging
from collections.abc import Mapping

from millstream.config import Config
from millstream.errors import DamagedLog, RequestError, StorageError
from millstream.metrics import CLEANED_BYTES, Metrics
from millstream.model import LogId
from millstream.ports import Ports
from millstream.replication.group_commit import GroupCommit
from millstream.replication.replica import Replica
from millstream.storage.compaction.driver import Compactor, facts
from millstream.storage.compaction.policy import retention_start, rewrites, should_seal

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

    def reconfigure(self, config: Config) -> None:
        """Use the settings of `config` from the next check on."""
        self._config = config
        self._compactors.clear()  # They hold a limit; what they remember is in files.

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._retain_forever())
            group.create_task(self._compact_forever())

    def retain(self, replica: Replica) -> bool:
        """Seal what is old, and let the log start where its retention says; True if it did."""
        log, now_ms = replica.log, self._ports.clock.now_ms()
        settings, active = log.settings, log.active
        log.producers.expire(now_ms, self._config.timing.producer_expiration_ms)
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

    async def _retain_forever(self) -> None:
        while True:
            await asyncio.sleep(self._config.timing.retention_check_ms / 1000)
            for count, replica in enumerate(self._working(), start=1):
                if replica.is_gone or replica.failure is not None:
                    continue
                has_worked = True
                try:
                    has_worked = self.retain(replica)
                except StorageError as problem:
                    replica.refused(problem)
                except RequestError as problem:
                    _log.warning("retention waits log=%s problem=%s", replica.id, problem)
                if has_worked or count % RETAINED_AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def _compact_forever(self) -> None:
        while True:
            await asyncio.sleep(self._config.timing.compaction_check_ms / 1000)
            for replica in self._working():
                try:
                    await self.compact(replica)
                except DamagedLog as problem:
                    # The next run ends before it; readers are refused those offsets alone.
                    _log.error("compaction stopped log=%s problem=%s", replica.id, problem)
                except StorageError as problem:
                    if not replica.is_gone:
                        replica.refused(problem)
            self._compactors = {r: c for r, c in self._compactors.items() if not r.is_gone}

    def _working(self) -> list[Replica]:
        return [replica for replica in self._replicas.values() if replica.failure is None]
