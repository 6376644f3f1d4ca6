"""Takes HTTP's turns of the event loop: short ones, and few while the loop is late.

Work that walks (lists, scans, rendering) is a generator that yields every millisecond or sooner.
While the loop is late, a turn of *t* is followed by a pause that keeps HTTP within
`http.loop_share_max` of the loop: a monitoring page must not slow down a producer.
"""

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeVar

from millstream.metrics import HTTP_LONG_TURNS, Metrics

if TYPE_CHECKING:
    from millstream.protocols.http.context import Services

_log = logging.getLogger(__name__)

T = TypeVar("T")

LATE_S = 0.002  # The loop counts as late if other work held a turn of ours up by so much.
LONG_TURN_S = 0.005
LONG_TURNS_LOGGED_EVERY_S = 10.0
PAUSE_S_MAX = 0.25


def turns_of(services: "Services") -> "Turns":
    """Turns of the node's loop, within the share that its configuration has for HTTP."""
    share_max = services.config.http.loop_share_max
    return Turns(services.elapsed_s, services.metrics, share_max=share_max)


class Turns:
    def __init__(
        self, elapsed_s: Callable[[], float], metrics: Metrics, *, share_max: float
    ) -> None:
        self._elapsed_s = elapsed_s
        self._metrics = metrics
        self._pause_factor = (1 - share_max) / share_max
        self._logged_at = float("-inf")

    async def run(self, steps: Generator[None, None, T], route: str) -> T:
        """Take one step per turn of the event loop, and return the generator's result."""
        clock = self._elapsed_s
        while True:
            began = clock()
            try:
                next(steps)
            except StopIteration as end:
                self.note(clock() - began, route)
                result: T = end.value
                return result
            ended = clock()
            took_s = ended - began
            self.note(took_s, route)
            await asyncio.sleep(0)
            if clock() - ended > LATE_S:
                await asyncio.sleep(min(took_s * self._pause_factor, PAUSE_S_MAX))

    def note(self, took_s: float, route: str) -> None:
        """Count a turn that took too long, and name its route in the log."""
        if took_s <= LONG_TURN_S:
            return
        self._metrics.add(HTTP_LONG_TURNS)
        now = self._elapsed_s()
        if now >= self._logged_at + LONG_TURNS_LOGGED_EVERY_S:
            self._logged_at = now
            _log.warning("a turn of HTTP took %.1f ms route=%s", took_s * 1000, route)
