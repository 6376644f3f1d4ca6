"""Delayed records by their producer's sequence numbers, so a retried batch delays none twice.

Maps sequence numbers to numbers of delayed records, in runs: a batch whose records are all delayed
takes one entry, whatever its size. Pure. A producer retries only its last few batches, so the
producers that were silent longest are dropped first.
"""

from bisect import bisect_right
from collections import OrderedDict

from millstream.internal_topics.delayed import Sender
from millstream.model import Offset

RUNS_MAX = 50_000
_SEQUENCES = 2**31  # A sequence number wraps to 0 behind the last of these.


class SentRecords:
    def __init__(self, *, runs_max: int = RUNS_MAX) -> None:
        self._runs_max = runs_max
        self._count = 0
        # By place, producer id and epoch; the producer that sent last stands last.
        self._producers: OrderedDict[tuple[int, int, int], _Runs] = OrderedDict()

    def __len__(self) -> int:
        """The number of runs."""
        return self._count

    def find(self, place: int, sender: Sender) -> Offset | None:
        runs = self._producers.get((place, sender.producer_id, sender.epoch))
        return None if runs is None else runs.find(sender.sequence)

    def add(self, place: int, sender: Sender, number: Offset) -> None:
        key = (place, sender.producer_id, sender.epoch)
        runs = self._producers.get(key)
        if runs is None:
            runs = self._producers[key] = _Runs(sender.sequence)
        self._producers.move_to_end(key)
        self._count += runs.add(sender.sequence, number)
        while self._count > self._runs_max:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        key, runs = next(iter(self._producers.items()))
        runs.drop_first()
        self._count -= 1
        if not runs.firsts:
            del self._producers[key]


class _Runs:
    """Of one producer, ascending. Sequence numbers are kept as if they did not wrap."""

    __slots__ = ("_counts", "_newest", "_numbers", "firsts")

    def __init__(self, sequence: int) -> None:
        self._newest = sequence
        self.firsts: list[int] = []
        self._numbers: list[Offset] = []
        self._counts: list[int] = []

    def find(self, sequence: int) -> Offset | None:
        position = self._position(sequence)
        at = bisect_right(self.firsts, position) - 1
        if at < 0 or position - self.firsts[at] >= self._counts[at]:
            return None
        return self._numbers[at] + position - self.firsts[at]

    def add(self, sequence: int, number: Offset) -> bool:
        """Add a record; return whether it began a run."""
        position = self._position(sequence)
        self._newest = max(self._newest, position)
        at = bisect_right(self.firsts, position)
        if at:
            first, count = self.firsts[at - 1], self._counts[at - 1]
            if position == first + count and number == self._numbers[at - 1] + count:
                self._counts[at - 1] += 1
                return False
        self.firsts.insert(at, position)
        self._numbers.insert(at, number)
        self._counts.insert(at, 1)
        return True

    def drop_first(self) -> None:
        del self.firsts[0], self._numbers[0], self._counts[0]

    def _position(self, sequence: int) -> int:
        """The position with that sequence number that is nearest to the newest."""
        distance = (sequence - self._newest) % _SEQUENCES
        return self._newest + (distance - _SEQUENCES if distance > _SEQUENCES // 2 else distance)
