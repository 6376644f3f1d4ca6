"""Runs long work that is cut into steps: a generator yields between its steps and returns a result.

`all_at_once` is for threads and for work that is short; `one_by_one` is for the event loop, where
other tasks run between two steps.
"""

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def all_at_once(steps: Generator[None, None, T]) -> T:
    """Take all steps without a pause, and return the generator's result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def one_by_one(steps: Generator[None, None, T]) -> T:
    """Take one step per turn of the event loop, and return the generator's result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
