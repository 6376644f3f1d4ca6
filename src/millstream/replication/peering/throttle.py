"""Lets so many bytes pass a second, on average. Pure: the time is passed in."""

BURST_MS = 100  # What was not used for longer is lost.


class Throttle:
    def __init__(self, bytes_per_second: int) -> None:
        """0: no limit."""
        self._bytes_per_second = bytes_per_second
        self._free_ms = 0.0  # When all that has passed is paid for.

    def wait_ms(self, now_ms: float) -> float:
        """How long the next bytes have to wait; 0 if they may pass now."""
        return max(0.0, self._free_ms - now_ms)

    def spend(self, count: int, now_ms: float) -> None:
        """So many bytes have passed. Never refused: the next ones wait the longer."""
        if self._bytes_per_second:
            cost_ms = count * 1000 / self._bytes_per_second
            self._free_ms = max(self._free_ms, now_ms - BURST_MS) + cost_ms
