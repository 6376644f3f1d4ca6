"""Alarms at times of the loop's clock."""

import asyncio
from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")


def loop_ms() -> int:
    """The loop's time, which never steps back: for durations, not for dates."""
    return int(asyncio.get_running_loop().time() * 1000)


class Alarms(Generic[T]):
    """Times of the loop's clock, earliest first. An outdated alarm does no harm."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, T]] = []  # The number keeps items from being compared.
        self._made = 0
        self._wake = asyncio.Event()

    def set(self, at_ms: int, item: T) -> None:
        self._made += 1
        heappush(self._heap, (at_ms, self._made, item))
        if self._heap[0][1] == self._made:
            self._wake.set()

    def wake(self) -> None:
        """End the current wait: there is other work."""
        self._wake.set()

    def due(self, now_ms: int) -> list[T]:
        """Remove and return the due items."""
        items = []
        while self._heap and self._heap[0][0] <= now_ms:
            items.append(heappop(self._heap)[2])
        return items

    async def wait(self, *, ms_max: int) -> None:
        """Return when something is due, or may be, and after `ms_max` at the latest."""
        self._wake.clear()
        left_ms = self._heap[0][0] - loop_ms() if self._heap else ms_max
        try:
            async with asyncio.timeout(min(left_ms, ms_max) / 1000):
                await self._wake.wait()
        except TimeoutError:
            return
