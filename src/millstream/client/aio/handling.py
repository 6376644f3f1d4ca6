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
    DeadLetterWriter,
    Handled,
    Outcome,
    Reject,
    RetryPolicy,
    check_handled,
    wait_step,
)
from millstream.client.models import Message

if TYPE_CHECKING:
    from millstream.client.aio.client import AsyncConsumer

# Any: an awaitable result is awaited, any other is ignored.
Function = Callable[[Message], Any]


async def handle(
    consumer: "AsyncConsumer",
    function: Function,
    retry: RetryPolicy,
    dead_letters: DeadLetterWriter,
) -> Handled:
    """Call `function` with each record until the consumer ends; give up those that keep failing."""
    reader = await consumer.quiet()
    check_handled(reader)
    outcomes: Counter[Outcome] = Counter()
    while True:
        try:
            try:
                message = await anext(consumer)
            except StopAsyncIteration:
                break
            except BadData as problem:
                outcome = await _write(consumer, dead_letters, 1, UNREADABLE, problem)
            else:
                outcome = await _attempt(consumer, message, function, retry, dead_letters)
        except BaseException:
            held = reader.in_hand
            reader.drop_in_hand()
            if held is not None:
                with suppress(ClientError):  # Then another member reads it again.
                    await consumer.seek(place_of(held), held.offset() or 0)
            raise
        outcomes[outcome] += 1
    return Handled(done=outcomes[Outcome.DONE], given_up=outcomes[Outcome.GIVEN_UP])


async def _attempt(
    consumer: "AsyncConsumer",
    message: Message,
    function: Function,
    retry: RetryPolicy,
    dead_letters: DeadLetterWriter,
) -> Outcome:
    attempt = 1
    while True:
        try:
            result = function(message)
            if isawaitable(result):
                await result
            return Outcome.DONE
        except Reject as problem:
            return await _write(consumer, dead_letters, attempt, REJECTED, problem)
        except Exception as problem:
            if attempt > retry.max_retries:
                return await _write(consumer, dead_letters, attempt, RETRIES_EXHAUSTED, problem)
        if not await _wait(consumer, retry.wait_s(attempt, random.random())):
            return Outcome.LOST
        attempt += 1


async def _wait(consumer: "AsyncConsumer", span_s: float) -> bool:
    """Wait, and stay a member of the group; return whether the record is still in hand."""
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


async def _write(
    consumer: "AsyncConsumer",
    dead_letters: DeadLetterWriter,
    attempts: int,
    reason: str,
    problem: Exception,
) -> Outcome:
    return await consumer.call(
        dead_letters.write,
        await consumer.quiet(),
        attempts=attempts,
        reason=reason,
        problem=problem,
    )
