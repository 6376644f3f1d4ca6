"""The virtual loop that simulations stand on keeps its own promises."""

import asyncio
import time

import pytest

from tests.support.virtual_loop import NothingLeftToWaitFor, run


async def sleep_and_tell(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return asyncio.get_running_loop().time()


def test_an_hour_passes_at_once() -> None:
    started = time.monotonic()

    now = run(sleep_and_tell(3600))

    assert now == pytest.approx(3600)
    assert time.monotonic() - started < 1


def test_sleepers_wake_in_the_order_of_their_timers() -> None:
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        woken.append(await sleep_and_tell(seconds))

    async def all_of_them() -> None:
        await asyncio.gather(*(sleeper(seconds) for seconds in (3, 1, 2)))

    run(all_of_them())

    assert woken == pytest.approx([1, 2, 3])


def test_waiting_for_nothing_is_an_error_and_not_a_hang() -> None:
    async def forever() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(NothingLeftToWaitFor):
        run(forever())
