"""Queues of a subscription: records ready to be sent, and deadlines of those that were sent.

Also the length of a retry delay. Pure.
"""

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from millstream.engine.push.cursor import InFlight, Phase, Sending
from millstream.internal_topics.deliveries import RetryPolicy
from millstream.model import Offset

BACKOFF_EXPONENT_MAX = 64  # Beyond it every delay is `retry_delay_ms_max` anyway.
SPARE = 64  # Finished entries kept beyond the number of unsettled records.


class ReadyRecords:
    """Records that are ready to be sent: redelivered ones first, by offset, then new ones in order.

    May hold records that are no longer ready, which `pop` skips: they never become ready again.
    Invariant: a record is in the queue at most once.
    """

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


class Deadlines:
    """Deadlines of acknowledgements, and of records that wait for a retry.

    Records that were sent together share a deadline; an acknowledged record's payload is not kept
    for it.
    """

    def __init__(self) -> None:
        self._sendings: deque[Sending] = deque()  # One timeout for all: the first is due first.
        self._waiting: list[tuple[int, int, InFlight]] = []  # A heap; numbers break ties.
        self._numbers = 0

    def watch(self, sending: Sending, *, unsettled: int) -> None:
        """Add a deadline. `unsettled`, the number of unsettled records, bounds the queue."""
        self._sendings.append(sending)
        if len(self._sendings) > 2 * unsettled + SPARE:
            self._sendings = deque(entry for entry in self._sendings if entry.left)

    def wait(self, until_ms: int, in_flight: InFlight, *, unsettled: int) -> None:
        self._numbers += 1
        heappush(self._waiting, (until_ms, self._numbers, in_flight))
        if len(self._waiting) > 2 * unsettled + SPARE:
            # A sorted list is a heap. Drops records that were acknowledged while they waited.
            self._waiting = sorted(
                entry for entry in self._waiting if entry[2].phase is Phase.WAITING
            )

    def first_of(self, holder: int) -> InFlight | None:
        """The record that a member has held longest."""
        for sending in self._sendings:
            for in_flight in sending.items:
                if in_flight.sending is sending and in_flight.holder == holder:
                    return in_flight
        return None

    def late(self, now_ms: int) -> list[InFlight]:
        """Take out the records that were not acknowledged in time."""
        late = []
        while self._sendings:
            sending = self._sendings[0]
            if sending.left and sending.deadline_ms > now_ms:
                break
            self._sendings.popleft()
            late += [in_flight for in_flight in sending.items if in_flight.sending is sending]
        return late

    def due(self, now_ms: int) -> list[InFlight]:
        """Take out the records whose retry delay is over."""
        due = []
        while self._waiting and self._waiting[0][0] <= now_ms:
            in_flight = heappop(self._waiting)[2]
            if in_flight.phase is Phase.WAITING:
                due.append(in_flight)
        return due

    def next_ms(self) -> int | None:
        """Earliest time at which `late` or `due` may return a record; None without any."""
        while self._sendings and not self._sendings[0].left:
            self._sendings.popleft()
        times = [self._sendings[0].deadline_ms] if self._sendings else []
        if self._waiting:
            times.append(self._waiting[0][0])
        return min(times, default=None)

    def clear(self) -> None:
        self._sendings.clear()
        self._waiting.clear()


def delay_ms(retry: RetryPolicy, attempts: int, chance: Callable[[], float]) -> int:
    """Retry delay of a record after `attempts` attempts."""
    exponent = min(attempts - 1, BACKOFF_EXPONENT_MAX)
    delay = min(retry.retry_delay_ms * retry.multiplier**exponent, retry.retry_delay_ms_max)
    return int(delay * (1 + retry.jitter * (2 * chance() - 1)))
