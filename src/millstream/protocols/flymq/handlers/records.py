"""Handlers of records: producing them, with a delay or a time to live too, and reading them.

Owns the translation between FlyMQ's requests and the engine's publisher and reader. Invariant: a
read with a filter goes on until something matches, because a client that gets nothing asks again
from the same place. A search that takes too long is cut, and goes on when asked again.
"""

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import NamedTuple

from millstream.codec.encoding import Message
from millstream.codec.records import Record
from millstream.engine.filters.filter import Filter, flymq_filter
from millstream.engine.partitions.slices import Latest
from millstream.engine.produce.options import NUMBER_MAX
from millstream.engine.publish.receipts import Receipt
from millstream.engine.push.records import CHUNK_BYTES_MAX, Chunk, read_records
from millstream.errors import DelayTooLong, InvalidRequest, OffsetOutOfRange
from millstream.model import Acks, Offset, TopicPartition
from millstream.names import DELAY_HEADER, TTL_HEADER
from millstream.protocols.flymq.context import Context, Scan
from millstream.protocols.flymq.gateway import Handler
from millstream.protocols.flymq.handlers.topics import find_offset
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import PAYLOAD_BYTES_MAX, Opcode

COUNT_DEFAULT = 10
COUNT_MAX = 10_000  # Records in one reply.
REPLY_BYTES_MAX = 16 * 2**20  # A record more may still fit into a frame.
# Bytes read for a few records; larger ones take another read.
READ_BYTES_MIN = 16 * 2**10
READ_BYTES_PER_RECORD = 2**10
SEARCH_S_MAX = 2.0  # Clients give up on a reply after ten seconds.
OFFSET_MAX = 2**63 - 1  # Larger ones have a place on the wire, but not in a log.

_RECORD_BYTES_OVERHEAD = 16
_NO_KEY_BYTES = -1


# -- producing -----------------------------------------------------------------------------------


def produce(
    context: Context, request: bodies.Produce
) -> bodies.RecordMetadata | Awaitable[bodies.RecordMetadata]:
    partition = None if request.partition < 0 else request.partition
    return _publish(context, request.topic, (request.key or None, request.value, ()), partition)


def produce_with_ttl(
    context: Context, request: bodies.ProduceWithTtl
) -> bodies.RecordMetadata | Awaitable[bodies.RecordMetadata]:
    headers = ((TTL_HEADER, b"%d" % request.ttl_ms),) if request.ttl_ms else ()
    return _publish(context, request.topic, (None, request.value, headers))


async def produce_delayed(
    context: Context, request: bodies.ProduceDelayed
) -> bodies.DelayedMetadata:
    delay_ms = min(request.delay_ms, NUMBER_MAX)  # The most that fits into the header.
    headers = ((DELAY_HEADER, b"%d" % delay_ms),) if delay_ms else ()
    message = (None, request.value, headers)
    publisher = context.services.publisher
    try:
        receipt = await publisher.publish_one(context.session, request.topic, message)
    except DelayTooLong as problem:  # In FlyMQ's words.
        raise InvalidRequest(
            f"delay {request.delay_ms} ms exceeds maximum allowed delay {problem.delay_ms_max} ms"
        ) from None
    return bodies.DelayedMetadata(*metadata_of(receipt, message), receipt.delayed_id or "")


async def cancel_delayed(context: Context, request: bodies.CancelDelayed) -> bodies.Message:
    await context.services.delayed.cancel(context.session, request.id)
    return bodies.Message(True, "OK")


def _publish(
    context: Context, topic: str, message: Message, partition: int | None = None
) -> bodies.RecordMetadata | Awaitable[bodies.RecordMetadata]:
    """Write it now; answer now too if there is nothing to wait for."""
    publishing = context.services.publisher.publish_one(
        context.session, topic, message, partition=partition, acks=context.acks
    )
    if publishing.is_known:
        return metadata_of(publishing.result(), message)
    return _metadata(publishing, message)


async def _metadata(publishing: Awaitable[Receipt], message: Message) -> bodies.RecordMetadata:
    return metadata_of(await publishing, message)


def metadata_of(receipt: Receipt, message: Message) -> bodies.RecordMetadata:
    """The metadata of a record for the client; without an offset yet it has 0."""
    key, value, _ = message
    return bodies.RecordMetadata(
        receipt.target.topic,
        receipt.target.partition,
        max(0, receipt.offset),
        receipt.timestamp_ms,
        _NO_KEY_BYTES if key is None else len(key),
        len(value or b""),
    )


# -- reading -------------------------------------------------------------------------------------


class Collected(NamedTuple):
    records: list[Record]
    next_offset: Offset


async def consume(context: Context, request: bodies.Consume) -> bodies.Consumed:
    """Exactly the record at the offset: its reply has no room to say that it is another."""
    target = TopicPartition(request.topic, request.partition)
    offset = checked_offset(request.offset)
    collected = await _collect(context, target, offset, 1, None)
    if not collected.records:
        raise InvalidRequest(f"EOF: {target} ends at offset {collected.next_offset}")
    (record,) = collected.records
    if record.offset != offset:
        raise InvalidRequest(
            f"{target} has no record at offset {offset}, the next is at {record.offset}"
        )
    return bodies.Consumed(record.key or b"", record.value or b"")


async def fetch(context: Context, request: bodies.Fetch) -> bodies.Fetched:
    target = TopicPartition(request.topic, request.partition)
    offset = checked_offset(request.offset)
    count_max = min(request.count_max, COUNT_MAX) if request.count_max > 0 else COUNT_DEFAULT
    if request.filter:
        collected = await _search(context, target, offset, count_max, flymq_filter(request.filter))
    else:
        collected = await _collect(context, target, offset, count_max, None)
    return bodies.Fetched(
        len(collected.records),
        collected.next_offset,
        tuple(
            bodies.FetchedRecord(record.offset, record.key or b"", record.value or b"")
            for record in collected.records
        ),
    )


def checked_offset(offset: int) -> Offset:
    if offset > OFFSET_MAX:
        raise InvalidRequest(f"offset {offset}, at most {OFFSET_MAX}")
    return offset


async def _search(
    context: Context, target: TopicPartition, offset: Offset, count_max: int, filter_: Filter
) -> Collected:
    """Collect matching records, from where the last search from this offset was cut."""
    topic = context.services.topics.describe(context.session, target.topic)
    scan = Scan(topic.topic_id, target.partition, filter_.text, offset)
    reached = context.conversation.reached(scan)
    collected = await _collect(context, target, reached, count_max, filter_)
    if not collected.records and collected.next_offset > offset:
        context.conversation.note(scan, collected.next_offset)
    return collected


async def _collect(
    context: Context,
    target: TopicPartition,
    offset: Offset,
    count_max: int,
    filter_: Filter | None,
) -> Collected:
    """Read until there is enough, or no more, or no more time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SEARCH_S_MAX
    # About the requested size; with a filter, the engine reads on until as much has passed.
    bytes_max = min(READ_BYTES_MIN + READ_BYTES_PER_RECORD * count_max, CHUNK_BYTES_MAX)
    records: list[Record] = []
    size = 0
    while True:
        chunk = await _read(context, target, offset, count_max, bytes_max, filter_)
        for record in chunk.records:
            size += _record_bytes(record)
            if records and size > REPLY_BYTES_MAX:
                return Collected(records, record.offset)
            _check_size(target, record)
            records.append(record)
            if len(records) == count_max:
                return Collected(records, record.offset + 1)
        is_end = chunk.next_offset == offset or chunk.next_offset >= chunk.end_offset
        offset = chunk.next_offset
        if is_end and (records or not await _has_more(context, target, offset)):
            return Collected(records, offset)
        if loop.time() > deadline:
            return Collected(records, offset)
        await asyncio.sleep(0)


async def _has_more(context: Context, target: TopicPartition, offset: Offset) -> bool:
    """Whether there is more once all that was answered is there to be read: where a produce waits
    for its write only, the fetch sent along with it may come a moment too early.
    """
    if context.acks is Acks.ALL:
        return False
    return await find_offset(context, target, Latest()) > offset


async def _read(
    context: Context,
    target: TopicPartition,
    offset: Offset,
    count_max: int,
    bytes_max: int,
    filter_: Filter | None,
) -> Chunk:
    """Read some. Before the start of the log is its start, and behind its end is nothing: a client
    that begins at 0 does not know the log start.
    """
    read = partial(
        read_records,
        context.services.partitions,
        context.session,
        target,
        count_max=count_max,
        bytes_max=bytes_max,
        filter=filter_,
    )
    try:
        return await read(offset)
    except OffsetOutOfRange as problem:
        if offset >= problem.start_offset:
            return Chunk([], offset, problem.end_offset, problem.start_offset)
        return await read(problem.start_offset)


def _record_bytes(record: Record) -> int:
    return _RECORD_BYTES_OVERHEAD + len(record.key or b"") + len(record.value or b"")


def _check_size(target: TopicPartition, record: Record) -> None:
    size = _record_bytes(record)
    if size + _RECORD_BYTES_OVERHEAD > PAYLOAD_BYTES_MAX:
        raise InvalidRequest(
            f"the record at offset {record.offset} of {target} has {size} bytes, "
            f"more than a frame of FlyMQ's can hold"
        )


HANDLERS: dict[Opcode, Handler] = {
    Opcode.PRODUCE: produce,
    Opcode.PRODUCE_DELAYED: produce_delayed,
    Opcode.PRODUCE_WITH_TTL: produce_with_ttl,
    Opcode.CANCEL_DELAYED: cancel_delayed,
    Opcode.CONSUME: consume,
    Opcode.CONSUME_ZERO_COPY: consume,
    Opcode.FETCH: fetch,
    Opcode.FETCH_BINARY: fetch,
}
