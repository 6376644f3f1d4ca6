"""Queue of a subscription's records that are ready to be sent.

Redelivered records go first, by offset, then new ones in log order. Pure. The queue may hold
records that are no longer ready, which `pop` skips. Such a record never becomes ready again.

Invariant: a record is in the queue at most once.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from millstream.engine.push.cursor import InFlight, Phase
from millstream.model import Offset


class ReadyRecords:
    def __init__(self) -> None:
        self._fresh: deque[InFlight] = deque()
        self._again: list[tuple[Offset, int, InFlight]] = []  # A heap; numbers break ties.
        self._numbers = 0

    def append(self, in_flight: InFlight) -> None:
        """Add a new record, behind all others."""
        self._fresh.append(in_flight)

    def put_back(self, again: Iterable[InFlight]) -> None:
        """Add records that were sent before."""
        for in_flight in again:
            self._numbers += 1
            heappush(self._again, (in_flight.record.offset, self._numbers, in_flight))

    def pop(self) -> InFlight | None:
        """Take out the next ready record, to be sent or settled; None if there is none."""
        while self._again or self._fresh:
            in_flight = heappop(self._again)[2] if self._again else self._fresh.popleft()
            if in_flight.phase is Phase.READY:
                return in_flight
        return None

    def clear(self) -> None:
        self._fresh.clear()
        self._again.clear()
