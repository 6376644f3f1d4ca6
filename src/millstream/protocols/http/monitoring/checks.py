"""The checks of a node's health: pure, from its vital figures to a verdict for each.

`Vitals` are gathered by the node. Each check compares figures with limits; `HealthRecord` adds
since when a check has its status, and tells of changes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

DISK_FREE_SHARE_MIN: Final = 0.10
DISK_FREE_BYTES_MIN: Final = 2 * 2**30
SYNC_S_MAX: Final = 1.0
UNPROVEN_S_MAX: Final = 600.0
LEADERLESS_S_MAX: Final = 10.0
LOOP_LATE_S_MAX: Final = 0.250
LOOP_STUCK_S: Final = 10.0
SHARE_MAX: Final = 0.9
LOADING_S_MAX: Final = 30.0
DELAYED_LATE_S_MAX: Final = 5.0
CLOCK_STEP_S_MAX: Final = 1.0
CERTIFICATE_DAYS_MIN: Final = 7.0


class Status(IntEnum):
    """Ordered: the worst check is the status of the node."""

    HEALTHY = 0
    DEGRADED = 1
    UNHEALTHY = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """Figures of a node. None or 0 stands for what a node does not have."""

    disk_free_bytes: int | None = None  # None: logs are in memory.
    disk_total_bytes: int = 0
    is_disk_full: bool = False  # An append was refused for space, and none has succeeded since.
    is_reserve_used: bool = False
    slowest_sync_s: float = 0.0  # Of the last minute.
    has_sync_failed: bool = False
    damaged_logs: int = 0
    is_control_log_damaged: bool = False
    unproven_s: float = 0.0  # How long an index has not been proven.
    partitions: int = 0  # With a replica here.
    leaderless: int = 0  # For more than `LEADERLESS_S_MAX`.
    loop_late_s: float = 0.0  # The most in the last 10 s.
    memory_bytes: int = 0
    memory_bytes_max: int = 1
    connections: int = 0
    connections_max: int = 1
    coordinators_loading_s: float = 0.0
    registry_loading_s: float = 0.0
    delayed_late_s: float = 0.0
    clock_step_s: float = 0.0  # Since the last look.
    certificate_days: float | None = None  # Until the first one ends; None without TLS.


class Verdict(NamedTuple):
    name: str
    status: Status
    message: str
    value: float | None = None
    limit: float | None = None


def verdicts(vitals: Vitals) -> list[Verdict]:
    """A verdict for each check, in a fixed order."""
    return [check(vitals) for check in CHECKS]


def _disk(vitals: Vitals) -> Verdict:
    free = vitals.disk_free_bytes
    if vitals.is_disk_full or vitals.is_reserve_used:
        message = "appends are refused: the disk is full"
        if not vitals.is_disk_full:
            message = "the space that was set aside for a start is in use"
        return Verdict("disk", Status.UNHEALTHY, message, free, DISK_FREE_BYTES_MIN)
    if free is None:
        return Verdict("disk", Status.HEALTHY, "records are kept in memory")
    limit = max(DISK_FREE_BYTES_MIN, int(vitals.disk_total_bytes * DISK_FREE_SHARE_MIN))
    if free < limit:
        return Verdict("disk", Status.DEGRADED, "the disk is nearly full", free, limit)
    return Verdict("disk", Status.HEALTHY, "there is space", free, limit)


def _sync(vitals: Vitals) -> Verdict:
    slowest = round(vitals.slowest_sync_s, 3)
    if vitals.has_sync_failed:
        message = "a sync failed: all partitions stopped until a restart"
        return Verdict("sync", Status.UNHEALTHY, message)
    if slowest > SYNC_S_MAX:
        return Verdict("sync", Status.DEGRADED, "syncs are slow", slowest, SYNC_S_MAX)
    return Verdict("sync", Status.HEALTHY, "syncs are fast", slowest, SYNC_S_MAX)


def _logs(vitals: Vitals) -> Verdict:
    if vitals.is_control_log_damaged:
        return Verdict("logs", Status.UNHEALTHY, "the control log is damaged")
    if vitals.damaged_logs:
        message = "records are damaged; `millstream inspect` names them"
        return Verdict("logs", Status.DEGRADED, message, vitals.damaged_logs, 0)
    if vitals.unproven_s > UNPROVEN_S_MAX:
        message = "an index has not been proven"
        return Verdict("logs", Status.DEGRADED, message, vitals.unproven_s, UNPROVEN_S_MAX)
    return Verdict("logs", Status.HEALTHY, "no damage is known")


def _partitions(vitals: Vitals) -> Verdict:
    count = vitals.leaderless
    if count and count >= vitals.partitions:
        message = "no partition here has a leader"
        return Verdict("partitions", Status.UNHEALTHY, message, count, 0)
    if count:
        message = "partitions here have no leader"
        return Verdict("partitions", Status.DEGRADED, message, count, 0)
    return Verdict("partitions", Status.HEALTHY, "all partitions here have a leader", count, 0)


def _loop(vitals: Vitals) -> Verdict:
    late = round(vitals.loop_late_s, 3)
    if late > LOOP_STUCK_S:
        return Verdict("loop", Status.UNHEALTHY, "the event loop stood still", late, LOOP_STUCK_S)
    if late > LOOP_LATE_S_MAX:
        return Verdict("loop", Status.DEGRADED, "the event loop is late", late, LOOP_LATE_S_MAX)
    return Verdict("loop", Status.HEALTHY, "the event loop turns", late, LOOP_LATE_S_MAX)


def _share(name: str, thing: str, used: float, most: float) -> Verdict:
    limit = most * SHARE_MAX
    if used > limit:
        return Verdict(name, Status.DEGRADED, f"{thing} near their limit", used, limit)
    return Verdict(name, Status.HEALTHY, f"{thing} within their limit", used, limit)


def _memory(vitals: Vitals) -> Verdict:
    return _share("memory", "requests are", vitals.memory_bytes, vitals.memory_bytes_max)


def _connections(vitals: Vitals) -> Verdict:
    thing = "connections are"
    return _share("connections", thing, vitals.connections, vitals.connections_max)


def _lasting(name: str, thing: str, seconds: float, limit: float) -> Verdict:
    seconds = round(seconds, 3)
    if seconds > limit:
        return Verdict(name, Status.DEGRADED, f"{thing} for too long", seconds, limit)
    return Verdict(name, Status.HEALTHY, "in time", seconds, limit)


def _coordinators(vitals: Vitals) -> Verdict:
    seconds = vitals.coordinators_loading_s
    return _lasting("coordinators", "coordinators have been loading", seconds, LOADING_S_MAX)


def _registry(vitals: Vitals) -> Verdict:
    seconds = vitals.registry_loading_s
    return _lasting("registry", "the schema registry has been loading", seconds, LOADING_S_MAX)


def _delayed(vitals: Vitals) -> Verdict:
    seconds = vitals.delayed_late_s
    return _lasting("delayed", "a delayed record has been due", seconds, DELAYED_LATE_S_MAX)


def _clock(vitals: Vitals) -> Verdict:
    step = round(vitals.clock_step_s, 3)
    if abs(step) > CLOCK_STEP_S_MAX:
        return Verdict("clock", Status.DEGRADED, "the clock stepped", step, CLOCK_STEP_S_MAX)
    return Verdict("clock", Status.HEALTHY, "the clock runs evenly", step, CLOCK_STEP_S_MAX)


def _certificates(vitals: Vitals) -> Verdict:
    days, limit = vitals.certificate_days, CERTIFICATE_DAYS_MIN
    if days is None:
        return Verdict("certificates", Status.HEALTHY, "no listener has TLS")
    days = round(days, 2)
    if days <= 0:
        return Verdict("certificates", Status.UNHEALTHY, "a certificate has ended", days, limit)
    if days < limit:
        return Verdict("certificates", Status.DEGRADED, "a certificate ends soon", days, limit)
    return Verdict("certificates", Status.HEALTHY, "certificates are valid", days, limit)


CHECKS: Final[tuple[Callable[[Vitals], Verdict], ...]] = (
    _disk,
    _sync,
    _logs,
    _partitions,
    _loop,
    _memory,
    _connections,
    _coordinators,
    _registry,
    _delayed,
    _clock,
    _certificates,
)


class HealthRecord:
    """Since when each check has its status."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Status, int]] = {}

    def since_ms(self, name: str) -> int:
        return self._since[name][1]

    def note(self, current: list[Verdict], now_ms: int) -> Iterator[tuple[Verdict, Status]]:
        """Take verdicts; yield each that changed with its status before."""
        for verdict in current:
            before = self._since.get(verdict.name)
            if before is None or before[0] is not verdict.status:
                self._since[verdict.name] = verdict.status, now_ms
                if before is not None or verdict.status is not Status.HEALTHY:
                    yield verdict, Status.HEALTHY if before is None else before[0]
