"""What is written to and read from a topic here, and when the records of a partition arrived.

One addition a batch. The arrival times tell how old the oldest record is that a group has yet to
read, without a look at the disk: a few points of each partition, dense for the last half minute and
ever sparser before.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from millstream.model import Offset

# Between two points of a tier, and how many points each keeps: 32 s, 5 min, 1 h and 16 h.
TIERS_MS = (1_000, 10_000, 120_000, 1_800_000)
TIER_POINTS_MAX = 32


class TopicTraffic:
    """Counts since the start. All replicas of a topic here share one."""

    __slots__ = ("__weakref__", "bytes", "read_bytes", "records")

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.read_bytes = 0


class Arrivals:
    """Points of one partition: an offset, and when its record arrived."""

    __slots__ = ("_offsets", "_times", "next_ms")

    def __init__(self, points: Iterable[tuple[Offset, int]]) -> None:
        """`points` are what is known of records from before the start, oldest first."""
        self._offsets = [array("q") for _ in TIERS_MS]
        self._times = [array("q") for _ in TIERS_MS]
        self.next_ms = 0  # Before it `note` has nothing to do.
        for offset, time_ms in points:
            self._add(len(TIERS_MS) - 1, offset, time_ms)

    def note(self, offset: Offset, now_ms: int) -> None:
        if now_ms < self.next_ms:
            return
        self.next_ms = now_ms + TIERS_MS[0]
        newest = self._offsets[0]
        if newest and newest[-1] >= offset:
            self._cut(offset)
        for tier, spacing_ms in enumerate(TIERS_MS):
            times = self._times[tier]
            if times and now_ms - times[-1] < spacing_ms:
                break  # Longer spacings have not passed either.
            self._add(tier, offset, now_ms)

    def age_ms(self, offset: Offset, now_ms: int) -> int:
        """How long ago the record at `offset` arrived, about; never more than is known."""
        before: tuple[int, int] | None = None
        behind: tuple[int, int] | None = None
        for offsets, times in zip(self._offsets, self._times, strict=True):
            at = bisect_right(offsets, offset)
            if at and (before is None or offsets[at - 1] > before[0]):
                before = offsets[at - 1], times[at - 1]
            if at < len(offsets) and (behind is None or offsets[at] < behind[0]):
                behind = offsets[at], times[at]
        if before is None and behind is None:
            return 0
        if before is None or behind is None:
            point = before or behind
            assert point is not None
            return max(0, now_ms - point[1])
        share = (offset - before[0]) / (behind[0] - before[0])
        return max(0, now_ms - int(before[1] + share * (behind[1] - before[1])))

    def _cut(self, end_offset: Offset) -> None:
        """Forget records that a new leader has cut off."""
        for offsets, times in zip(self._offsets, self._times, strict=True):
            while offsets and offsets[-1] >= end_offset:
                offsets.pop()
                times.pop()

    def _add(self, tier: int, offset: Offset, time_ms: int) -> None:
        offsets, times = self._offsets[tier], self._times[tier]
        if len(offsets) >= TIER_POINTS_MAX:
            del offsets[0], times[0]
        offsets.append(offset)
        times.append(time_ms)
