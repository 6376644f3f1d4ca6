"""An event loop that measures its own turns, in CPU time of its thread.

CPU time, not wall time: what else the machine does must not make a turn look long.
"""

import asyncio
import gc
import selectors
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class _TimedSelector(selectors.DefaultSelector):
    """The loop calls `select` once in every turn: what lies between two calls is the turn."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_s = 0.0
        self._began: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._began is not None:
            self.longest_s = max(self.longest_s, time.thread_time() - self._began)
        ready = super().select(timeout)
        self._began = time.thread_time()
        return ready


class TimedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._timed = _TimedSelector()
        super().__init__(self._timed)

    @asynccontextmanager
    async def turns_at_most(self, seconds: float) -> AsyncIterator[None]:
        """Fail if a turn inside of the block takes longer."""
        gc.collect()
        gc.disable()  # A collection belongs to no step.
        await asyncio.sleep(0)  # What came before the block is another turn.
        self._timed.longest_s = 0.0
        try:
            yield
            await asyncio.sleep(0)
        finally:
            gc.enable()
        longest_ms = 1000 * self._timed.longest_s
        assert longest_ms <= 1000 * seconds, f"a turn of the event loop took {longest_ms:.1f} ms"


def run_timed(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        return runner.run(main)


def timed_loop() -> TimedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TimedLoop)
    return loop
