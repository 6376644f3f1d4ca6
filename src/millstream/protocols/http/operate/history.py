"""The main series of a node over time: 15 minutes by the second, 24 hours by the minute.

Counters are kept as rates. `note` is called once a second with the values of that second; memory
has a bound: a ring of doubles for each series and step.
"""

from array import array
from collections.abc import Mapping
from typing import Final, NamedTuple

SECONDS: Final = 15 * 60
LAG_STEP_S: Final = 15
LAG_POINTS: Final = 60 * 60 // LAG_STEP_S
LAG_GROUPS_MAX: Final = 100  # 600 KB of points at most.
MINUTES: Final = 24 * 60
# Of each series: the unit, for people.
SERIES: Final[Mapping[str, str]] = {
    "appended_records": "records/s",
    "appended_bytes": "bytes/s",
    "read_bytes": "bytes/s",
    "requests": "requests/s",
    "connections": "connections",
    "request_memory_bytes": "bytes",
    "loop_late_s": "seconds",
    "sync_s": "seconds",
    "dead_letters": "records/s",
    "delayed_records": "records",
    "cpu_cores": "cores",
    "memory_bytes": "bytes",
    "disk_used_share": "share",
}


class Ring:
    """The last values, oldest first; `start` is the number of the first one."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values = array("d")
        self.end = 0  # The number of the next value.

    def add(self, value: float) -> None:
        if len(self._values) < self._size:
            self._values.append(value)
        else:
            self._values[self.end % self._size] = value
        self.end += 1

    def last(self, count: int) -> list[float]:
        count = min(count, len(self._values))
        return [self._values[at % self._size] for at in range(self.end - count, self.end)]


class LagPoint(NamedTuple):
    at_ms: int
    records: int
    age_ms: int  # Of the oldest record that is not committed.


class LagHistory:
    """The lag of groups over the last hour. Groups beyond the bound are left out."""

    def __init__(self) -> None:
        self._rings: dict[str, tuple[Ring, Ring, Ring]] = {}  # One for each field of a point.

    def note(self, lags: Mapping[str, LagPoint]) -> None:
        """Add a point for each group, and forget the groups that are gone."""
        for group in self._rings.keys() - lags.keys():
            del self._rings[group]
        for group, point in lags.items():
            rings = self._rings.get(group)
            if rings is None:
                if len(self._rings) >= LAG_GROUPS_MAX:
                    continue
                rings = self._rings[group] = (Ring(LAG_POINTS), Ring(LAG_POINTS), Ring(LAG_POINTS))
            for ring, value in zip(rings, point, strict=True):
                ring.add(value)

    def of(self, group: str) -> list[LagPoint]:
        """Oldest first."""
        columns = (map(int, ring.last(LAG_POINTS)) for ring in self._rings.get(group, ()))
        return [LagPoint(*values) for values in zip(*columns, strict=True)]


class History:
    def __init__(self) -> None:
        self.lags = LagHistory()
        self.by_second = {name: Ring(SECONDS) for name in SERIES}
        self.by_minute = {name: Ring(MINUTES) for name in SERIES}
        self.last_ms = 0  # When the last second was noted.
        self._sums = dict.fromkeys(SERIES, 0.0)
        self._count = 0

    def note(self, now_ms: int, values: Mapping[str, float]) -> None:
        self.last_ms = now_ms
        self._count += 1
        for name, ring in self.by_second.items():
            value = values.get(name, 0.0)
            ring.add(value)
            self._sums[name] += value
        if self._count == 60:
            for name, ring in self.by_minute.items():
                ring.add(self._sums[name] / 60)
            self._sums = dict.fromkeys(SERIES, 0.0)
            self._count = 0

    def latest(self) -> dict[str, float]:
        return {name: (ring.last(1) or [0.0])[0] for name, ring in self.by_second.items()}
