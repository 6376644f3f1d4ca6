"""Helpers for the futures of appended batches: copy an outcome, ignore it, join several.

A request may be cancelled while its batch is written, and without acks no request waits at all.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from millstream.codec.batch import Header
from millstream.metrics import APPENDED_BATCHES, APPENDED_BYTES, APPENDED_RECORDS, Metrics
from millstream.model import Appended

AppendFuture = asyncio.Future[Appended]


def copy_outcome(to: AppendFuture, written: AppendFuture) -> None:
    """Give `to` the result or the exception of `written`."""
    problem = written.exception()
    if to.done():
        return  # The request was cancelled; the batch is written.
    if problem is None:
        to.set_result(written.result())
    else:
        to.set_exception(problem)


def ignore_outcome(future: AppendFuture) -> None:
    """Retrieve the exception, which asyncio would log if no request waits for it."""
    if not future.cancelled():
        future.exception()


def count_batch(metrics: Metrics, header: Header) -> None:
    """Count a batch that was written for a client."""
    metrics.add(APPENDED_BATCHES)
    metrics.add(APPENDED_BYTES, header.size)
    metrics.add(APPENDED_RECORDS, header.count)


def when_all(waits: Sequence[asyncio.Future[Any]], result: Appended) -> AppendFuture:
    """Future of `result`, done when all `waits` are; it has the first exception of any of them."""
    done: AppendFuture = asyncio.get_running_loop().create_future()
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
