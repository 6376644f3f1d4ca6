"""Handlers of dead letters: look at them, send one back, purge them.

Owns the translation between FlyMQ's requests and the engine's dead letters, and the id of one: its
partition and offset. The topic may be the one that failed or the one with its dead letters. A
request without effect is an error, because clients do not read the content of a reply.
"""

import re

from millstream.engine.dead_letters.service import DeadLetter
from millstream.errors.deliveries import UnknownDeadLetter
from millstream.model import TopicPartition
from millstream.protocols.flymq.context import Context
from millstream.protocols.flymq.gateway import Handler
from millstream.protocols.flymq.handlers.records import REPLY_BYTES_MAX, checked_offset
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import Opcode

COUNT_DEFAULT = 100
COUNT_MAX = 1_000
TEXT_LENGTH_MAX = 4_096  # Of an error, which may be a stack trace.

_ID = re.compile(r"(\d{1,9})-(\d{1,18})", re.ASCII)


async def fetch(context: Context, request: bodies.FetchDeadLetters) -> bodies.DeadLetters:
    count_max = min(request.count_max or COUNT_DEFAULT, COUNT_MAX)
    letters: list[bodies.DeadLetter] = []
    size = 0
    for letter in await context.services.dead_letters.list(
        context.session, request.topic, count_max=count_max
    ):
        size += len(letter.record.value or b"") + TEXT_LENGTH_MAX
        if letters and size > REPLY_BYTES_MAX:
            break
        letters.append(_body(letter))
    return bodies.DeadLetters(tuple(letters))


async def replay(
    context: Context, request: bodies.ReplayById | bodies.ReplayByOffset
) -> bodies.Replayed:
    if isinstance(request, bodies.ReplayById):
        match = _ID.fullmatch(request.id)
        if match is None:
            raise UnknownDeadLetter(request.id)
        partition, offset = map(int, match.groups())
    else:
        partition, offset = 0, checked_offset(request.offset)
    place = TopicPartition(request.topic, partition)
    await context.services.dead_letters.replay(context.session, place, offset)
    return bodies.Replayed(True, 0)


async def purge(context: Context, request: bodies.TopicOnly) -> bodies.Message:
    count = await context.services.dead_letters.purge(context.session, request.topic)
    return bodies.Message(True, f"{count} purged")


def _body(letter: DeadLetter) -> bodies.DeadLetter:
    origin = letter.origin
    return bodies.DeadLetter(
        f"{letter.target.partition}-{letter.record.offset}",
        letter.record.value or b"",
        (origin.error or origin.reason)[:TEXT_LENGTH_MAX],
        origin.attempts,
    )


HANDLERS: dict[Opcode, Handler] = {
    Opcode.FETCH_DLQ: fetch,
    Opcode.REPLAY_DLQ: replay,
    Opcode.PURGE_DLQ: purge,
}
