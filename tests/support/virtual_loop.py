"""An asyncio event loop on virtual time: it never sleeps, it moves its clock to the next timer.

A test of hours runs in milliseconds and the same way every time. Nothing real may be waited for:
no sockets, no threads. When nothing is ready and no timer is set the loop says so instead of
hanging for ever.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class NothingLeftToWaitFor(AssertionError):
    """Every task waits, and no timer is set."""


class _Selector(selectors.SelectSelector):
    """Registers the loop's own wake-up pipe and never looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeftToWaitFor
        self.now += max(timeout, 0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a fresh virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
