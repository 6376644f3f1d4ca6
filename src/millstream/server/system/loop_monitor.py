"""Measures how long the event loop is held up, by a timer that should fire every 10 ms.

One timer instead of a clock around every callback: the hot path pays nothing, and it works with
any event loop. A turn of the loop that takes 15 ms or more always makes the timer more than 5 ms
late; a shorter one is seen if the timer falls due in it.
"""

import asyncio
from collections.abc import Callable, Iterator

from millstream.metrics import LOOP_STALL_SECONDS_MAX, LOOP_STALLS, Metrics, Sample

PROBE_S = 0.010
STALL_S = 0.005
WINDOW_S = 60.0  # The longest stall is that of the last one to two windows.


class LoopMonitor:
    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        """`clock` gives seconds that pass evenly, whatever the time of the loop does."""
        self._metrics = metrics
        self._clock = clock
        self._window_began = clock()
        self._longest_s = 0.0
        self._longest_before_s = 0.0
        metrics.watch(self._samples)

    async def run(self) -> None:
        while True:
            began = self._clock()
            await asyncio.sleep(PROBE_S)
            self.note(self._clock() - began - PROBE_S)

    def note(self, late_s: float) -> None:
        """Take how much later than expected the timer fired."""
        self._turn_window()
        if late_s > STALL_S:
            self._metrics.add(LOOP_STALLS)
        self._longest_s = max(self._longest_s, late_s)

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
