"""`handle` for asyncio: as `handling`, with functions that may be awaited.

Owns the attempts. Retries wait, and dead letters are written, in the thread of the consumer, so the
loop turns meanwhile; a task that is cancelled leaves the record in hand undone.
"""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from inspect import isawaitable
from time import monotonic
from typing import TYPE_CHECKING, Any

from millstream.client._librdkafka.fetched import place_of
from millstream.client.errors import BadData, ClientError
from millstream.client.handling import (
    REJECTED,
    RETRIES_EXHAUSTED,
    UNREADABLE,
    Fate,
    Graveyard,
    Handled,
    Reject,
    RetryPolicy,
    check_handled,
    wait_step,
)
from millstream.client.models import Message

if TYPE_CHECKING:
    from millstream.client.aio.client import AsyncConsumer

# What it returns is awaited if it can be, and does not count otherwise.
Function = Callable[[Message], Any]


async def handle(
    consumer: "AsyncConsumer", function: Function, retry: RetryPolicy, graveyard: Graveyard
) -> Handled:
    """Until the consumer ends: call `function` with each record, and give up what keeps failing."""
    reader = await consumer.quiet()
    check_handled(reader)
    fates: Counter[Fate] = Counter()
    while True:
        try:
            try:
                message = await anext(consumer)
            except StopAsyncIteration:
                break
            except BadData as problem:
                fate = await _bury(consumer, graveyard, 1, UNREADABLE, problem)
            else:
                fate = await _attempt(consumer, message, function, retry, graveyard)
        except BaseException:
            held = reader.in_hand
            reader.drop_in_hand()
            if held is not None:
                with suppress(ClientError):  # Then another member reads it again.
                    await consumer.seek(place_of(held), held.offset() or 0)
            raise
        fates[fate] += 1
    return Handled(done=fates[Fate.DONE], given_up=fates[Fate.GIVEN_UP])


async def _attempt(
    consumer: "AsyncConsumer",
    message: Message,
    function: Function,
    retry: RetryPolicy,
    graveyard: Graveyard,
) -> Fate:
    attempt = 1
    while True:
        try:
            result = function(message)
            if isawaitable(result):
                await result
            return Fate.DONE
        except Reject as problem:
            return await _bury(consumer, graveyard, attempt, REJECTED, problem)
        except Exception as problem:
            if attempt > retry.max_retries:
                return await _bury(consumer, graveyard, attempt, RETRIES_EXHAUSTED, problem)
        if not await _wait(consumer, retry.wait_s(attempt, random.random())):
            return Fate.LOST
        attempt += 1


async def _wait(consumer: "AsyncConsumer", span_s: float) -> bool:
    """Let time pass as a member of the group; return whether the record is still in hand."""
    reader = await consumer.quiet()
    deadline = monotonic() + span_s
    try:
        while (left_s := deadline - monotonic()) > 0 and not reader.is_stopped:
            await consumer.call(wait_step, reader, left_s)
    finally:
        await consumer.resume()
    if reader.is_stopped:
        reader.drop_in_hand()
    return reader.in_hand is not None


async def _bury(
    consumer: "AsyncConsumer", graveyard: Graveyard, attempts: int, reason: str, problem: Exception
) -> Fate:
    return await consumer.call(
        graveyard.bury, await consumer.quiet(), attempts=attempts, reason=reason, problem=problem
    )
