"""What the metrics say of an event loop that was held up."""

import asyncio
import time
from typing import Any

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
    monitor = LoopMonitor(metrics, Clock(), time.thread_time)

    for late_s in (0.0001, 0.0049, 0.0051, 0.2):
        monitor.note(late_s)

    assert metrics.value(LOOP_STALLS) == 2
    assert longest(metrics) == 0.2


def test_the_longest_stall_is_forgotten_after_two_windows() -> None:
    clock = Clock()
    metrics = Metrics()
    monitor = LoopMonitor(metrics, clock, time.thread_time)
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
        monitor = LoopMonitor(metrics, time.perf_counter, time.perf_counter)  # A busy loop.
        monitoring = asyncio.create_task(monitor.run())
        await asyncio.sleep(0.02)
        hold_up(0.1)
        await asyncio.sleep(0.02)
        monitoring.cancel()

        assert metrics.value(LOOP_STALLS) >= 1
        assert longest(metrics) > 0.05

    asyncio.run(story())


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the timers that are set."""

    timers = 0

    def call_at(self, *arguments: Any, **options: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        self.timers += 1
        return super().call_at(*arguments, **options)


def test_an_idle_loop_is_woken_once_a_second() -> None:
    async def story() -> None:
        cpu_s = 0.0  # The loop takes none.
        monitor = LoopMonitor(Metrics(), time.perf_counter, lambda: cpu_s)
        monitoring = asyncio.create_task(monitor.run())
        await asyncio.sleep(0.2)

        assert monitor.is_resting
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        before = loop.timers
        await asyncio.sleep(0.5)
        assert loop.timers - before <= 2  # This sleep, and one probe if a rest ended in it.
        monitoring.cancel()

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(story())


def test_a_turn_that_a_client_causes_after_a_rest_is_seen() -> None:
    async def story() -> None:
        metrics = Metrics()
        monitor = LoopMonitor(metrics, time.perf_counter, lambda: 0.0)
        monitoring = asyncio.create_task(monitor.run())
        while not monitor.is_resting:
            await asyncio.sleep(0.01)
        before = metrics.value(LOOP_STALLS)

        monitor.wake()  # As a connection does when bytes come, before it works on them.
        hold_up(0.1)
        await asyncio.sleep(0.02)
        monitoring.cancel()

        assert metrics.value(LOOP_STALLS) > before

    asyncio.run(story())


def test_the_timer_does_not_rest_while_the_loop_works() -> None:
    async def story() -> None:
        worked_s = 0.0

        def cpu_clock() -> float:
            nonlocal worked_s
            worked_s += 0.002  # In each probe.
            return worked_s

        monitor = LoopMonitor(Metrics(), time.perf_counter, cpu_clock)
        monitoring = asyncio.create_task(monitor.run())
        await asyncio.sleep(0.2)

        assert not monitor.is_resting
        monitoring.cancel()

    asyncio.run(story())
