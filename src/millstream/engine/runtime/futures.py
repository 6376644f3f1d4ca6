"""Futures of batches that are being written: how one outcome becomes another's.

Owns nothing but the rules: whoever asked may be gone, and nobody may look at the outcome.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from millstream.codec.batch import Header
from millstream.metrics import APPENDED_BATCHES, APPENDED_BYTES, APPENDED_RECORDS, Metrics
from millstream.model import Appended

Writing = asyncio.Future[Appended]


def pass_on(waiting: Writing, written: Writing) -> None:
    """Tell who waits what became of it."""
    problem = written.exception()
    if waiting.done():
        return  # Whoever asked is gone; the batch is not.
    if problem is None:
        waiting.set_result(written.result())
    else:
        waiting.set_exception(problem)


def see(waiting: Writing) -> None:
    """Without acks nobody looks at the outcome."""
    if not waiting.cancelled():
        waiting.exception()


def count_batch(metrics: Metrics, header: Header) -> None:
    """Take note of a batch that was written for a client."""
    metrics.add(APPENDED_BATCHES)
    metrics.add(APPENDED_BYTES, header.size)
    metrics.add(APPENDED_RECORDS, header.count)


def when_all(waits: Sequence[asyncio.Future[Any]], result: Appended) -> Writing:
    """Yield `result` when all are done, or raise the first problem. What they yield is dropped."""
    done: Writing = asyncio.get_running_loop().create_future()
    left = len(waits)

    def count(wait: asyncio.Future[Any]) -> None:
        nonlocal left
        left -= 1
        problem = wait.exception()
        if done.done():
            return
        if problem is not None:
            done.set_exception(problem)
        elif left == 0:
            done.set_result(result)

    for wait in waits:
        wait.add_done_callback(count)
    if not waits:
        done.set_result(result)
    return done
