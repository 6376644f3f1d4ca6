"""Handlers of transactions. FlyMQ's clients do not read the content of a reply, only whether it is
an error, so a request without effect is an error.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from millstream.errors import InvalidRequest, TransactionNotFound
from millstream.protocols.flymq.context import Context
from millstream.protocols.flymq.gateway import Handler
from millstream.protocols.flymq.handlers.records import metadata_of
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import Opcode


async def begin(context: Context, request: bodies.Nothing) -> bodies.TransactionOutcome:
    name = await context.services.transactions.begin(context.session)
    return bodies.TransactionOutcome(name, True)


async def produce(context: Context, request: bodies.ProduceInTransaction) -> bodies.RecordMetadata:
    with _named_by_client(request.transaction):
        receipt = await context.services.transactions.produce(
            context.session, request.transaction, request.topic, request.value
        )
    return metadata_of(receipt, (None, request.value, ()))


async def commit(context: Context, request: bodies.TransactionId) -> bodies.TransactionOutcome:
    return await _end(context, request.transaction, commits=True)


async def abort(context: Context, request: bodies.TransactionId) -> bodies.TransactionOutcome:
    return await _end(context, request.transaction, commits=False)


async def _end(context: Context, name: str, *, commits: bool) -> bodies.TransactionOutcome:
    with _named_by_client(name):
        await context.services.transactions.end(context.session, name, commits=commits)
    return bodies.TransactionOutcome(name, True)


@contextmanager
def _named_by_client(name: str) -> Iterator[None]:
    """The listener owns the transactional ids; clients know their names."""
    try:
        yield
    except TransactionNotFound:
        raise InvalidRequest(f"transaction not found: {name}") from None


HANDLERS: dict[Opcode, Handler] = {
    Opcode.BEGIN_TX: begin,
    Opcode.PRODUCE_TX: produce,
    Opcode.COMMIT_TX: commit,
    Opcode.ABORT_TX: abort,
}
