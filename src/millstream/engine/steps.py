"""Long work on the event loop: step by step, with a turn for everybody else in between."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


async def one_by_one(steps: Generator[None, None, T]) -> T:
    """Take the steps that `codec.steps.all_at_once` takes, and let others run after each."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
