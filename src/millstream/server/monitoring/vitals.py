"""Gathers the vital figures of a node for its health checks.

Looked at when a probe asks, for a hundredth of the time at most, and every `WATCH_S`, so that a
change is logged. Nothing here waits: free space and the ends of certificates come from a thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from millstream import __version__
from millstream.errors import NoSpace
from millstream.metrics import (
    APPENDED_BYTES,
    APPENDED_RECORDS,
    BUILD_INFO,
    DEAD_LETTERS,
    DISK_BYTES,
    DISK_FREE_BYTES,
    HEALTH,
    PROCESS_OPEN_FDS,
    READ_BYTES,
    REQUEST_MEMORY_BYTES,
    REQUESTS,
    SYNC_ROUNDS,
    SYNC_SECONDS,
    Sample,
)
from millstream.model import CONTROL_LOG, LogId
from millstream.protocols.http.monitoring.checks import (
    LEADERLESS_S_MAX,
    HealthRecord,
    Status,
    Verdict,
    Vitals,
    verdicts,
)
from millstream.protocols.http.operate.history import LAG_GROUPS_MAX, LAG_STEP_S, LagPoint
from millstream.replication.replica import Replica
from millstream.replication.space import refusals
from millstream.server.listeners import Listeners
from millstream.server.node import Node, Phase
from millstream.server.system.loop_monitor import LoopMonitor
from millstream.server.system.machine import DiskSpace
from millstream.server.system.process import (
    PROCESS_METRICS,
    open_descriptors,
    process_figures,
    python_version,
)

_log = logging.getLogger(__name__)

LONG_LOOK_S = 0.001
LOOK_SHARE = 100  # A look that took 1 ms holds for 100: thousands of partitions take so long.
WATCH_S = 10
INDEXES_S = 60
STEP_LOGS = 100  # Looked at in one step: half a millisecond.
SYNC_WINDOW_S = 60.0
LOG_LINES_MAX = 1_000
LOG_LINE_LENGTH_MAX = 1_000  # Of which the beginning is kept.
LOG_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Checked(NamedTuple):
    verdict: Verdict
    since_ms: int
    latency_s: float


class RecentLines(logging.Handler):
    """The last lines of the log, for a person who looks for the cause: at most a megabyte.

    Sees what the loggers of the broker let pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(LOG_LINE))
        self._lines: deque[str] = deque(maxlen=LOG_LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record)[:LOG_LINE_LENGTH_MAX])

    def lines(self) -> list[str]:
        return list(self._lines)

    def watch(self) -> None:
        logging.getLogger("millstream").addHandler(self)

    def leave(self) -> None:
        logging.getLogger("millstream").removeHandler(self)


class VitalSigns:
    def __init__(
        self,
        node: Node,
        listeners: Listeners,
        monitor: LoopMonitor,
        *,
        elapsed_s: Callable[[], float],
        disk_space: Callable[[], DiskSpace | None],
        certificate_ends_s: Callable[[], float | None],
    ) -> None:
        """`disk_space` and `certificate_ends_s`, the seconds until the first certificate ends, may
        block: a thread calls them."""
        self.on_change: list[Callable[[Verdict, Status], None]] = []
        self._node = node
        self._listeners = listeners
        self._monitor = monitor
        self._elapsed_s = elapsed_s
        self._disk_space = disk_space
        self._certificate_ends_s = certificate_ends_s
        self._record = HealthRecord()
        self.log_lines = RecentLines()
        self._leaderless_since: dict[LogId, float] = {}
        self._unproven_since: dict[LogId, float] = {}
        self._loading_since: dict[str, float] = {}  # Coordinators, registry.
        self._space: DiskSpace | None = None
        self._ends_at_s: float | None = None
        self._clock_ahead_s: float | None = None  # The wall clock before the even one.
        self._clock_step_s = 0.0
        self._stepped_at = float("-inf")
        self._last: list[Checked] = []
        self._looked_at = float("-inf")
        self._totals: dict[str, float] = {}
        self._rounds = (0.0, 0.0)  # Seconds and number of sync rounds.
        self._cpu_s = process_figures().cpu_s
        self._noted_at = elapsed_s()
        self._open_descriptors: int | None = None
        node.metrics.watch(self._samples)

    async def run(self) -> None:
        """Look every 10 s and note the figures of each second, until cancelled."""
        self.log_lines.watch()
        try:
            await self._look()
        finally:
            self.log_lines.leave()

    async def _look(self) -> None:
        seconds = 0
        while True:
            if seconds % WATCH_S == 0:
                await self.refresh()
                self.checks()
            if seconds % INDEXES_S == 0:
                await self.look_at_indexes()
            if seconds % LAG_STEP_S == 0:
                await self.note_lags()
            await asyncio.sleep(1.0)
            seconds += 1
            self._note_figures()

    async def note_lags(self) -> None:
        """Add the lags of this moment to the history of the groups that are coordinated here."""
        lags: dict[str, LagPoint] = {}
        for group, _, coordinator in self._node.group_lags.groups():
            if len(lags) >= LAG_GROUPS_MAX:
                break
            parts = self._node.group_lags.lags(group, coordinator)
            lags[group] = LagPoint(
                self._node.clock.now_ms(),
                sum(part.records for part in parts),
                max((part.age_ms for part in parts), default=0),
            )
            await asyncio.sleep(0)
        self._node.history.lags.note(lags)

    def _note_figures(self) -> None:
        metrics = self._node.metrics
        totals = {
            "appended_records": metrics.value(APPENDED_RECORDS),
            "appended_bytes": metrics.value(APPENDED_BYTES),
            "read_bytes": metrics.value(READ_BYTES),
            "requests": metrics.total(REQUESTS),
            "dead_letters": metrics.total(DEAD_LETTERS),
        }
        sync_s, rounds = metrics.value(SYNC_SECONDS), metrics.value(SYNC_ROUNDS)
        before, now = self._totals, self._elapsed_s()
        passed_s = max(now - self._noted_at, 0.001)
        values = {
            name: (total - before.get(name, 0.0)) / passed_s for name, total in totals.items()
        }
        new_rounds = rounds - self._rounds[1]
        values["sync_s"] = (sync_s - self._rounds[0]) / new_rounds if new_rounds else 0.0
        values["connections"] = self._listeners.connection_count
        values["request_memory_bytes"] = self._listeners.held_bytes
        values["loop_late_s"] = self._monitor.recent_late_s()
        values["delayed_records"] = self._node.delayed_count()
        process = process_figures()
        values["cpu_cores"] = max(0.0, process.cpu_s - self._cpu_s) / passed_s
        values["memory_bytes"] = process.resident_bytes
        if self._space is not None and self._space.total_bytes:
            values["disk_used_share"] = 1 - self._space.free_bytes / self._space.total_bytes
        self._totals, self._noted_at, self._rounds = totals, now, (sync_s, rounds)
        self._cpu_s = process.cpu_s
        self._node.history.note(self._node.clock.now_ms(), values)

    async def refresh(self) -> None:
        """Ask the outside: free space, and the ends of certificates."""
        self._space = await self._node.threads.run(self._disk_space)
        ends_s = await self._node.threads.run(self._certificate_ends_s)
        self._ends_at_s = None if ends_s is None else self._elapsed_s() + ends_s
        self._open_descriptors = await self._node.threads.run(open_descriptors)
        self._look_at_clock()

    def checks(self) -> list[Checked]:
        """All checks; those of a moment ago if looking takes long."""
        began = self._elapsed_s()
        took_s = self._last[0].latency_s if self._last else 0.0
        if took_s > LONG_LOOK_S and began - self._looked_at < took_s * LOOK_SHARE:
            return self._last
        self._looked_at = began
        current = verdicts(self.vitals())
        now_ms = self._node.clock.now_ms()
        for verdict, before in self._record.note(current, now_ms):
            level = logging.INFO if verdict.status is Status.HEALTHY else logging.WARNING
            _log.log(
                level,
                "health check=%s is %s, was %s: %s value=%s limit=%s",
                verdict.name,
                verdict.status.word,
                before.word,
                verdict.message,
                verdict.value,
                verdict.limit,
            )
            for tell in self.on_change:
                tell(verdict, before)
        took_s = self._elapsed_s() - began
        self._last = [
            Checked(verdict, self._record.since_ms(verdict.name), took_s) for verdict in current
        ]
        return self._last

    def vitals(self) -> Vitals:
        node, now = self._node, self._elapsed_s()
        hub, limits = node.hub, node.config.limits
        refused = refusals(hub.replicas, hub.damaged)
        damaged = {log_id for log_id, problem in refused.items() if not problem.is_transient}
        damaged |= {log_id for log_id, replica in hub.replicas.items() if replica.log.damage()}
        loop = asyncio.get_running_loop()
        return Vitals(
            disk_free_bytes=None if self._space is None else self._space.free_bytes,
            disk_total_bytes=0 if self._space is None else self._space.total_bytes,
            is_disk_full=any(isinstance(problem, NoSpace) for problem in refused.values()),
            is_reserve_used=self._space is not None and not node.has_reserve,
            slowest_sync_s=hub.commits.slow_rounds.most(loop.time() - SYNC_WINDOW_S),
            has_sync_failed=hub.commits.failure is not None,
            damaged_logs=len(damaged),
            is_control_log_damaged=CONTROL_LOG in damaged,
            partitions=len(hub.replicas),
            leaderless=self._leaderless(now),
            loop_late_s=self._monitor.recent_late_s(),
            memory_bytes=self._listeners.held_bytes,
            memory_bytes_max=limits.request_bytes_max,
            connections=self._listeners.connection_count,
            connections_max=limits.connections_max,
            coordinators_loading_s=self._loading(
                "coordinators", node.are_coordinators_loading(), now
            ),
            registry_loading_s=self._loading("registry", node.is_registry_loading(), now),
            unproven_s=self._unproven(now),
            delayed_late_s=node.delayed_late_ms() / 1000,
            clock_step_s=self._clock_step_s if now - self._stepped_at < SYNC_WINDOW_S else 0.0,
            certificate_days=None
            if self._ends_at_s is None
            else (self._ends_at_s - now) / (24 * 60 * 60),
        )

    # -- parts -------------------------------------------------------------------------------------

    def _leaderless(self, now: float) -> int:
        """Partitions that have had no leader for longer than an election takes."""
        if self._node.phase is not Phase.READY:
            return 0
        without = {
            log_id
            for log_id, replica in self._node.hub.replicas.items()
            if replica.leader is None or not _has_majority(replica)
        }
        _follow(self._leaderless_since, without, now)
        return sum(now - began > LEADERLESS_S_MAX for began in self._leaderless_since.values())

    async def look_at_indexes(self) -> None:
        """Note the logs with a sealed segment whose index is not proven, in short steps."""
        unproven: set[LogId] = set()
        for count, (log_id, replica) in enumerate(list(self._node.hub.replicas.items()), start=1):
            if replica.log.health().index_gaps:
                unproven.add(log_id)
            if count % STEP_LOGS == 0:
                await asyncio.sleep(0)
        _follow(self._unproven_since, unproven, self._elapsed_s())

    def _unproven(self, now: float) -> float:
        return max((now - began for began in self._unproven_since.values()), default=0.0)

    def _loading(self, name: str, is_loading: bool, now: float) -> float:
        if not is_loading:
            self._loading_since.pop(name, None)
            return 0.0
        return now - self._loading_since.setdefault(name, now)

    def _look_at_clock(self) -> None:
        ahead_s = self._node.clock.now_ms() / 1000 - self._elapsed_s()
        before, self._clock_ahead_s = self._clock_ahead_s, ahead_s
        if before is not None and abs(ahead_s - before) > 1.0:
            self._clock_step_s = ahead_s - before
            self._stepped_at = self._elapsed_s()

    def _samples(self) -> Iterator[Sample]:
        if self._space is not None:
            yield Sample(DISK_FREE_BYTES, (), self._space.free_bytes)
            yield Sample(DISK_BYTES, (), self._space.total_bytes)
        yield Sample(REQUEST_MEMORY_BYTES, (), self._listeners.held_bytes)
        for checked in self._last or self.checks():  # At most `WATCH_S` old.
            yield Sample(HEALTH, (checked.verdict.name,), checked.verdict.status)
        yield Sample(BUILD_INFO, (__version__, python_version()), 1)
        figures = process_figures()
        for metric, value in PROCESS_METRICS.items():
            if (figure := value(figures)) is not None:
                yield Sample(metric, (), figure)
        if self._open_descriptors is not None:
            yield Sample(PROCESS_OPEN_FDS, (), self._open_descriptors)


def _has_majority(replica: Replica) -> bool:
    """Whether a leader hears a majority that holds what is committed; others cannot tell."""
    return not replica.is_leader or replica.in_step_count > len(replica.core.voters) // 2


def _follow(since: dict[LogId, float], present: set[LogId], now: float) -> None:
    """Keep since when each is there; forget those that are not."""
    for log_id in since.keys() - present:
        del since[log_id]
    for log_id in present:
        since.setdefault(log_id, now)
