"""Waits between retries: each twice as long as the one before, up to a bound."""

import asyncio

RETRY_MS_MIN = 20
RETRY_MS_MAX = 5_000


class Backoff:
    """Each wait is twice as long as the one before, up to a bound."""

    def __init__(self, first_ms: int = RETRY_MS_MIN, longest_ms: int = RETRY_MS_MAX) -> None:
        self._first_ms = self._next_ms = first_ms
        self._longest_ms = longest_ms

    async def wait(self) -> None:
        await asyncio.sleep(self.next_ms() / 1000)

    def next_ms(self) -> int:
        """How long to wait this time."""
        wait_ms = self._next_ms
        self._next_ms = min(2 * wait_ms, self._longest_ms)
        return wait_ms

    def reset(self) -> None:
        """Start again with the first wait, after a success."""
        self._next_ms = self._first_ms
