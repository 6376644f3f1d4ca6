"""Turns Ctrl-C into a flag: an exception raised inside a callback of librdkafka is lost."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruptible(*numbers: signal.Signals) -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether one of these signals came; the second one does raise."""
    count = 0

    def heard(number: int, frame: object) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, heard) for number in numbers}
    try:
        yield lambda: count > 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
