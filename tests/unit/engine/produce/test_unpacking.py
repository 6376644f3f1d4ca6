"""Large batches on few threads: how many at a time, how much memory, which first; and warnings."""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

import pytest

from millstream.config import Limits
from millstream.engine.produce.unpacking import JOBS_MAX, WARNING_INTERVAL_S, Unpacking
from millstream.errors import UnpackedTooLarge
from millstream.metrics import UNPACKED_BATCHES, UNPACKING_BYTES, UNREADABLE_BATCHES, Metrics
from tests.support.nodes import ORDERS, InlineThreads
from tests.support.virtual_loop import run

T = TypeVar("T")
MIB = 2**20


class SlowThreads:
    """Each job takes a second; says how many ran at the same time."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(1)
        self.running -= 1
        return work()


def unpacking_on(
    threads: SlowThreads | InlineThreads, metrics: Metrics | None = None, **limits: int
) -> Unpacking:
    return Unpacking(threads, "read", limits=Limits(**limits), metrics=metrics or Metrics())


def test_few_jobs_run_at_the_same_time_in_the_order_in_which_they_came() -> None:
    async def story() -> None:
        threads, done, metrics = SlowThreads(), [], Metrics()
        unpacking = unpacking_on(threads, metrics)

        async def unpack(number: int) -> None:
            done.append(await unpacking.run(lambda: number, packed_bytes=1))

        async with asyncio.TaskGroup() as group:
            for number in range(7):
                group.create_task(unpack(number))

        assert threads.most == JOBS_MAX
        assert done == list(range(7))
        assert metrics.value(UNPACKED_BATCHES, "read") == 7
        assert metrics.value(UNPACKING_BYTES, "read") == 0

    run(story())


def test_memory_is_reserved_by_the_size_of_a_batch_and_given_back_as_soon_as_it_is_known() -> None:
    async def story() -> None:
        metrics = Metrics()
        unpacking = unpacking_on(InlineThreads(), metrics, unpacking_bytes_max=80 * MIB)
        entered: list[str] = []

        async def enter(name: str) -> None:
            async with unpacking.room(1):  # 16 MiB, whatever the ratio.
                entered.append(name)

        async with unpacking.room(1) as first, unpacking.room(20_000) as second:
            assert metrics.value(UNPACKING_BYTES, "read") == 16 * MIB + 20_000 * 1_024
            task = asyncio.ensure_future(enter("third"))
            await asyncio.sleep(1)
            assert entered == []  # 40 MiB are there for readers.

            second.shrink(MIB)
            await asyncio.sleep(1)
            assert entered == ["third"]
            assert (first.size, second.size) == (16 * MIB, MIB)
        await task
        assert metrics.value(UNPACKING_BYTES, "read") == 0

    run(story())


def test_a_batch_that_takes_more_than_the_budget_is_unpacked_alone() -> None:
    async def story() -> None:
        unpacking = unpacking_on(SlowThreads(), unpacking_bytes_max=2)

        async with asyncio.timeout(3):
            outcomes = [unpacking.run(lambda: 1, packed_bytes=2**20) for _ in range(2)]
            assert await asyncio.gather(*outcomes) == [1, 1]

    run(story())


def test_who_gives_up_waiting_leaves_its_place_and_who_gives_up_work_keeps_it() -> None:
    async def story() -> None:
        threads, metrics = SlowThreads(), Metrics()
        unpacking = unpacking_on(threads, metrics, unpacking_bytes_max=2)
        working, waiting, last = (
            asyncio.ensure_future(unpacking.run(lambda: 1, packed_bytes=1)) for _ in range(3)
        )
        await asyncio.sleep(0.1)

        waiting.cancel()
        working.cancel()
        await asyncio.sleep(0.1)
        assert not working.done()  # The thread goes on.
        assert metrics.value(UNPACKING_BYTES, "read") == 16 * MIB

        assert await last == 1
        assert working.cancelled()
        assert waiting.cancelled()
        assert threads.most == 1
        assert metrics.value(UNPACKING_BYTES, "read") == 0

    run(story())


def test_all_unreadable_batches_are_counted_and_some_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        metrics = Metrics()
        unpacking = unpacking_on(InlineThreads(), metrics)

        with caplog.at_level(logging.WARNING, "millstream.engine.produce.unpacking"):
            for offset in range(1_000):
                unpacking.report("push", ORDERS, offset, UnpackedTooLarge(MIB))
            await asyncio.sleep(WARNING_INTERVAL_S)
            unpacking.report("refused", ORDERS, None, UnpackedTooLarge(MIB))

        assert metrics.value(UNREADABLE_BATCHES, "push") == 1_000
        first, second = (record.getMessage() for record in caplog.records)
        assert "outcome=push target=orders-0 offset=0" in first
        assert "outcome=refused target=orders-0 offset=none" in second
        assert "unreported=999" in second

    run(story())
