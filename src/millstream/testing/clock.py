"""A clock that a test can move forward, for the broker's timestamps and for its timers alike.

Invariant: it never stands still and never goes back, so the broker sees what it would see after a
long sleep of the machine.
"""

import asyncio
import time


class MovableClock:
    """Implements `ports.Clock`."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


class MovableLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers go by such a clock; wake it after a move."""

    def __init__(self, clock: MovableClock) -> None:
        self._clock = clock
        super().__init__()

    def time(self) -> float:
        return super().time() + self._clock.ahead_ms / 1000
