"""Applies quotas: a client over its quota gets a throttle time, and its connection is not read.

The engine keeps the accounts.
"""

import asyncio
from collections.abc import Iterable

from millstream.control.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from millstream.engine.partitions.slices import Slice
from millstream.protocols.kafka.context import Context


def throttle_produce(context: Context) -> int:
    """Charge for a request; return its answer's `throttle_time_ms`, if it will have an answer."""
    usage = context.broker.usage
    if not usage.limited:
        return 0
    return _mute(context, usage.charge(context.session, PRODUCER_BYTE_RATE, context.request_bytes))


def throttle_fetch(context: Context) -> int:
    """Return how long the client must wait before it gets anything; 0: it may be served."""
    usage = context.broker.usage
    if not usage.limited:
        return 0
    return _mute(context, usage.charge(context.session, CONSUMER_BYTE_RATE, 0))


def fetch_bytes_max(context: Context, bytes_max: int) -> int:
    """The bytes to read: never more at once than a burst, or the next answer would be long due."""
    usage = context.broker.usage
    if not usage.limited:
        return bytes_max
    burst = usage.burst_bytes(context.session, CONSUMER_BYTE_RATE)
    return bytes_max if burst is None else min(bytes_max, burst)


def charge_fetch(context: Context, slices: Iterable[Slice]) -> None:
    """Charge for what was read; if that was too much, the next fetch is the one to wait."""
    usage = context.broker.usage
    if usage.limited:
        size = sum(part.size for part in slices)
        usage.charge(context.session, CONSUMER_BYTE_RATE, size)


def _mute(context: Context, throttle_ms: int) -> int:
    if throttle_ms:
        resume_at = asyncio.get_running_loop().time() + throttle_ms / 1000
        context.pace.resume_at = max(context.pace.resume_at, resume_at)
    return throttle_ms
