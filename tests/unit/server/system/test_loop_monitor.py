"""What the metrics say of an event loop that was held up."""

import asyncio
import time

from millstream.metrics import LOOP_STALL_SECONDS_MAX, LOOP_STALLS, Metrics
from millstream.server.system.loop_monitor import WINDOW_S, LoopMonitor


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def longest(metrics: Metrics) -> float:
    return next(s.value for s in metrics.samples() if s.metric is LOOP_STALL_SECONDS_MAX)


def test_only_stalls_over_five_milliseconds_are_counted() -> None:
    metrics = Metrics()
    monitor = LoopMonitor(metrics, Clock())

    for late_s in (0.0001, 0.0049, 0.0051, 0.2):
        monitor.note(late_s)

    assert metrics.value(LOOP_STALLS) == 2
    assert longest(metrics) == 0.2


def test_the_longest_stall_is_forgotten_after_two_windows() -> None:
    clock = Clock()
    metrics = Metrics()
    monitor = LoopMonitor(metrics, clock)
    monitor.note(0.2)

    clock.now += 1.5 * WINDOW_S
    assert longest(metrics) == 0.2
    monitor.note(0.1)
    clock.now += WINDOW_S
    assert longest(metrics) == 0.1
    clock.now += 2 * WINDOW_S
    assert longest(metrics) == 0.0


def hold_up(seconds: float) -> None:
    time.sleep(seconds)


def test_a_turn_that_holds_up_the_loop_is_seen() -> None:
    async def story() -> None:
        metrics = Metrics()
        monitoring = asyncio.create_task(LoopMonitor(metrics, time.perf_counter).run())
        await asyncio.sleep(0.02)
        hold_up(0.1)
        await asyncio.sleep(0.02)
        monitoring.cancel()

        assert metrics.value(LOOP_STALLS) >= 1
        assert longest(metrics) > 0.05

    asyncio.run(story())
