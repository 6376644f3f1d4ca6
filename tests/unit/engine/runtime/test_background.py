"""Background work: done in full while the node runs, and dropped cleanly when it stops."""

import asyncio
import gc
import warnings
from collections.abc import Coroutine
from typing import Any

import pytest

from millstream.engine.runtime.background import BackgroundTasks
from tests.support.virtual_loop import run


async def ended(tasks: BackgroundTasks, *, turns: int) -> None:
    """Run it, let the loop turn so often, and cancel it."""
    running = asyncio.create_task(tasks.run())
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def collected(story: Coroutine[Any, Any, None]) -> None:
    """A coroutine that was never awaited is an error."""
    with warnings.catch_warnings(record=True) as problems:
        warnings.simplefilter("always")
        run(story)
        gc.collect()
    assert [str(problem.message) for problem in problems] == []


async def work() -> int:
    return 7


def test_work_runs_and_its_result_is_there() -> None:
    async def story() -> None:
        tasks = BackgroundTasks()
        done = tasks.begin(work())
        await ended(tasks, turns=5)
        assert await done == 7

    collected(story())


@pytest.mark.parametrize("turns", range(1, 5))
def test_work_that_has_not_begun_is_dropped_when_the_node_stops(turns: int) -> None:
    """Taken as a task without a step, in the middle, and done."""

    async def story() -> None:
        tasks = BackgroundTasks()
        life = asyncio.create_task(ended(tasks, turns=turns))
        jobs = []
        while not life.done():
            jobs.append(tasks.begin(work()))  # Some before, some after it ends.
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert all(job.done() for job in jobs)

    collected(story())


def test_work_is_dropped_after_the_stop() -> None:
    async def story() -> None:
        tasks = BackgroundTasks()
        await ended(tasks, turns=1)
        assert tasks.begin(work()).cancelled()

    collected(story())
