"""Records of a subscription that wait to be sent, in the order in which they will be.

Owns the order: what was sent before goes first, in the order of the log, then what was not. Pure.
The one thing to know: it may also hold records that are ready no more, which `pop` passes over;
no record comes back after that, so none is ever in it twice.
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
        """It came from the log, behind all others."""
        self._fresh.append(in_flight)

    def put_back(self, again: Iterable[InFlight]) -> None:
        """These were sent before."""
        for in_flight in again:
            self._numbers += 1
            heappush(self._again, (in_flight.record.offset, self._numbers, in_flight))

    def pop(self) -> InFlight | None:
        """Take out the next one, to be sent or settled; None if there is none."""
        while self._again or self._fresh:
            in_flight = heappop(self._again)[2] if self._again else self._fresh.popleft()
            if in_flight.phase is Phase.READY:
                return in_flight
        return None

    def clear(self) -> None:
        self._fresh.clear()
        self._again.clear()
