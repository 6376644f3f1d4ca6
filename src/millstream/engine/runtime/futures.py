"""Helpers for the futures of appended batches: copy an outcome, ignore it, join several.

A request may be cancelled while its batch is written, and without acks no request waits at all.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from millstream.codec.batch import Header
from millstream.metrics import APPENDED_BATCHES, APPENDED_BYTES, APPENDED_RECORDS, Metrics
from millstream.model import Appended, Buffer
from millstream.ports import Clock
from millstream.replication.replica import Replica

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


def ignore_outcome(future: asyncio.Future[Any]) -> None:  # Its result is not looked at.
    """Retrieve the exception, which asyncio would log if no request waits for it."""
    if not future.cancelled():
        future.exception()


class BatchCount:
    """Appends the batches of clients, and counts them."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._clock = clock
        self._batches = metrics.counter(APPENDED_BATCHES)
        self._bytes = metrics.counter(APPENDED_BYTES)
        self._records = metrics.counter(APPENDED_RECORDS)

    def append(self, replica: Replica, data: Buffer, header: Header) -> Appended:
        """See `Replica.append`."""
        arrivals = replica.arrivals or replica.arrival_times()
        appended = replica.append(data, header)
        size, count, traffic = header.size, header.count, replica.traffic
        self._batches.value += 1
        self._bytes.value += size
        self._records.value += count
        traffic.bytes += size
        traffic.records += count
        now_ms = self._clock.now_ms()
        if now_ms >= arrivals.next_ms:
            arrivals.note(appended.base_offset, now_ms)
        return appended


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
