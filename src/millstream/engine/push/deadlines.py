"""When records of a subscription are due: those that were sent, and those that wait for a retry.

Owns both orders of time and the length of a back-off. Pure. The one thing to know: records that
were sent together share a deadline, and none of their payloads is kept for it once they are back.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from millstream.engine.push.cursor import InFlight, Phase, Sending
from millstream.internal_topics.deliveries import RetryPolicy

BACKOFF_EXPONENT_MAX = 64  # Beyond it every delay is the longest anyway.
SPARE = 64  # Finished ones that may be remembered beyond what is unsettled.


class Deadlines:
    def __init__(self) -> None:
        self._sendings: deque[Sending] = deque()  # All wait equally long: the first is due first.
        self._waiting: list[tuple[int, int, InFlight]] = []  # A heap; numbers break ties.
        self._numbers = 0

    def watch(self, sending: Sending, *, unsettled: int) -> None:
        """Remember when an answer is due. `unsettled` is how many records there can be at all."""
        self._sendings.append(sending)
        if len(self._sendings) > 2 * unsettled + SPARE:
            self._sendings = deque(one for one in self._sendings if one.left)

    def wait(self, until_ms: int, in_flight: InFlight, *, unsettled: int) -> None:
        self._numbers += 1
        heappush(self._waiting, (until_ms, self._numbers, in_flight))
        if len(self._waiting) > 2 * unsettled + SPARE:
            # Sorted is a heap too. What was acknowledged while it waited is kept no longer.
            self._waiting = sorted(one for one in self._waiting if one[2].phase is Phase.WAITING)

    def first_of(self, holder: int) -> InFlight | None:
        """What a member has had for longer than anything else that it still has."""
        for sending in self._sendings:
            for in_flight in sending.items:
                if in_flight.sending is sending and in_flight.holder == holder:
                    return in_flight
        return None

    def late(self, now_ms: int) -> list[InFlight]:
        """Take out what was sent and not answered in time."""
        found = []
        while self._sendings:
            sending = self._sendings[0]
            if sending.left and sending.deadline_ms > now_ms:
                break
            self._sendings.popleft()
            found += [in_flight for in_flight in sending.items if in_flight.sending is sending]
        return found

    def due(self, now_ms: int) -> list[InFlight]:
        """Take out what has waited long enough."""
        found = []
        while self._waiting and self._waiting[0][0] <= now_ms:
            in_flight = heappop(self._waiting)[2]
            if in_flight.phase is Phase.WAITING:
                found.append(in_flight)
        return found

    def next_ms(self) -> int | None:
        """When `late` or `due` may find something; None if they will not."""
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
    """How long a record waits after its so many attempts."""
    exponent = min(attempts - 1, BACKOFF_EXPONENT_MAX)
    delay = min(retry.retry_delay_ms * retry.multiplier**exponent, retry.retry_delay_ms_max)
    return int(delay * (1 + retry.jitter * (2 * chance() - 1)))
