"""Measures how long the event loop is held up, by a timer that should fire every 10 ms.

One timer instead of a clock around every callback: the hot path pays one comparison for a read, and
it works with any event loop. A turn of the loop that takes 15 ms or more always makes the timer
more than 5 ms late; a shorter one is seen if the timer falls due in it.

While the loop has little to do the timer rests: it fires once a second, and in 10 ms when a client
sends something or when the last second took more CPU time than one stall. A stall that no client
caused, after a second of rest, is seen only if the timer falls due in it.
"""

import asyncio
from collections.abc import Callable, Iterator

from millstream.metrics import (
    LOOP_LATE_SECONDS,
    LOOP_STALL_SECONDS_MAX,
    LOOP_STALLS,
    Metrics,
    Peaks,
    Sample,
)

PROBE_S = 0.010
STALL_S = 0.005
REST_S = 1.0
QUIET_S = 0.001  # The timer rests after a probe in which the loop took no more CPU time than this.
RECENT_S = 10.0
WINDOW_S = 60.0  # The longest stall is that of the last one to two windows.


class LoopMonitor:
    def __init__(
        self, metrics: Metrics, clock: Callable[[], float], cpu_clock: Callable[[], float]
    ) -> None:
        """`clock` gives seconds that pass evenly, whatever the time of the loop does; `cpu_clock`
        the CPU time of the loop's thread.
        """
        self.is_resting = False  # Then `wake` must be called when a client sends something.
        self._metrics = metrics
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._cpu_s = 0.0  # When the timer was set.
        self._window_began = clock()
        self._longest_s = 0.0
        self._longest_before_s = 0.0
        self._peaks = Peaks()
        self._late_seconds = metrics.histogram(LOOP_LATE_SECONDS)
        metrics.watch(self._samples)

    async def run(self) -> None:
        """Measure until cancelled."""
        self._set_timer(PROBE_S)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.is_resting = False
            assert self._timer is not None
            self._timer.cancel()

    def wake(self) -> None:
        """There is work: fire in 10 ms, not at the end of the rest."""
        assert self._timer is not None
        self._timer.cancel()
        self._set_timer(PROBE_S)

    def note(self, late_s: float) -> None:
        """Take how much later than expected the timer fired."""
        self._turn_window()
        self._late_seconds.observe(late_s)
        if late_s > STALL_S:
            self._metrics.add(LOOP_STALLS)
        self._longest_s = max(self._longest_s, late_s)
        self._peaks.note(self._clock(), late_s)

    def recent_late_s(self) -> float:
        """The most that the timer was late in the last 10 s."""
        return self._peaks.most(self._clock() - RECENT_S)

    def _set_timer(self, seconds: float) -> None:
        self.is_resting = seconds == REST_S
        self._due_s = self._clock() + seconds
        self._cpu_s = self._cpu_clock()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._probe)

    def _probe(self) -> None:
        self.note(self._clock() - self._due_s)
        used_s = self._cpu_clock() - self._cpu_s
        is_busy = used_s > (STALL_S if self.is_resting else QUIET_S)
        self._set_timer(PROBE_S if is_busy else REST_S)

    def _turn_window(self) -> None:
        now = self._clock()
        windows = int((now - self._window_began) / WINDOW_S)
        if windows:
            self._longest_before_s = self._longest_s if windows == 1 else 0.0
            self._longest_s = 0.0
            self._window_began += windows * WINDOW_S

    def _samples(self) -> Iterator[Sample]:
        self._turn_window()
        longest_s = max(self._longest_s, self._longest_before_s)
        yield Sample(LOOP_STALL_SECONDS_MAX, (), round(longest_s, 6))
