"""Work that is cut into steps, by generators that yield between them and return what came of it.

Owns taking them all in one go. Who must let others have a turn takes them one by one, see
`engine.steps`.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def all_at_once(steps: Generator[None, None, T]) -> T:
    """Take all steps of something that is short enough."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
