"""Reads decoded records of a partition from an offset on, for push, replays and pulls.

Owns the step from the bytes of `Partitions.read` to records: skipping what lies before the offset,
markers, records of transactions that were rolled back, and batches that cannot be unpacked or
decoded. Bounded in bytes, compressed and decompressed, and in records. A chunk without records may
still move the reader on, to `next_offset`.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from millstream.codec.batch import Header, read_header, verify_batch
from millstream.codec.compression import Codec
from millstream.codec.records import (
    Record,
    Unpacked,
    decode_all,
    decode_range,
    verify_and_unpack_small,
)
from millstream.engine.filters.filter import Filter
from millstream.engine.partitions.service import Partitions
from millstream.engine.partitions.slices import Slice, Want
from millstream.engine.produce.unpacking import NotSmall, Unpacking
from millstream.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    StorageError,
    StorageUnavailable,
)
from millstream.model import Isolation, Offset, Session, TopicPartition

CHUNK_BYTES_MAX = 256 * 2**10
CHUNK_RECORDS_MAX = 10_000
# Of one chunk, in bytes of records: a few compressed bytes may become very many. One batch at
# least; a large one is decoded on a thread.
CHUNK_UNPACKED_BYTES_MAX = 2**20
# A reader of fewer records may return for the rest of the same batch many times.
FEW_RECORDS = 5_000

_UNREADABLE = (CorruptBatch, InvalidBatch, BatchTooLarge)


class Unreadable(NamedTuple):
    """An undamaged batch that cannot be decompressed or decoded."""

    raw: bytes
    offset: Offset  # The first that the reader has not passed.
    last_offset: Offset
    timestamp: int
    problem: str


class Chunk(NamedTuple):
    records: list[Record]
    next_offset: Offset  # Where reading goes on.
    end_offset: Offset  # What can be read at the moment ends here.
    log_start_offset: Offset
    unreadable: Unreadable | None = None  # Then there are no records.


async def read_records(
    partitions: Partitions,
    session: Session,
    target: TopicPartition,
    offset: Offset,
    *,
    count_max: int = CHUNK_RECORDS_MAX,
    bytes_max: int = CHUNK_BYTES_MAX,
    deadline: float | None = None,
    is_patient: bool = True,
    filter: Filter | None = None,  # noqa: A002 It is what readers call it.
) -> Chunk:
    """Read some records from `offset` on, waiting for the first until `deadline` of the loop.

    With a `filter` only what it takes, as far as one request looks. A large batch is decoded on a
    thread, unless the reader is not patient: then `NotSmall` is raised. Raises what stands in the
    way: `Denied`, `UnknownTopic`, `OffsetOutOfRange`, ...
    """
    (part,) = await partitions.read(
        session,
        [Want(target, offset, bytes_max)],
        min_bytes=0 if deadline is None else 1,
        deadline=deadline,
        isolation=Isolation.READ_COMMITTED,
        filter=filter,
    )
    if part.error is not None:
        raise part.error
    try:
        return await _decode(partitions.unpacking, part, offset, count_max, is_patient=is_patient)
    except (StorageError, CorruptBatch, InvalidBatch) as problem:
        raise StorageUnavailable(f"{target}: {problem}") from problem


async def _decode(
    unpacking: Unpacking, part: Slice, offset: Offset, count_max: int, *, is_patient: bool
) -> Chunk:
    chunk = Chunk([], offset, part.last_stable_offset, part.log_start_offset)
    records, next_offset = chunk.records, offset
    unpacked = 0
    data = memoryview(b"" if part.records is None else part.records.read())
    for at, header in _batches(data, part):
        if at is None:
            next_offset = max(next_offset, header.end_offset)
            continue
        if unpacked >= CHUNK_UNPACKED_BYTES_MAX:
            break
        room = count_max - len(records)
        try:
            small = _read_small(data, at, header, offset, room, unpacking.bytes_max)
            if small is None:
                if records:
                    break  # The records so far do not wait for the thread.
                if not is_patient:
                    raise NotSmall
                small = await _read_large(unpacking, data, at, header, offset, room)
            decoded, size = small
        except _UNREADABLE as problem:
            verify_batch(data, at)  # Raises for a wrong checksum: disk damage is never skipped.
            if records:
                break
            unpacking.report("push", part.target, header.base_offset, problem)
            batch = _unreadable(data[at : at + header.size], header, offset, problem)
            return chunk._replace(next_offset=header.end_offset, unreadable=batch)
        unpacked += size
        if len(decoded) > room:
            records += decoded[:room]
            next_offset = records[-1].offset + 1
            break
        records += decoded
        next_offset = max(next_offset, header.end_offset)
    return chunk._replace(next_offset=next_offset)


def _read_small(
    data: memoryview, at: int, header: Header, offset: Offset, room: int, bytes_max: int
) -> tuple[list[Record], int] | None:
    """The records of a batch from `offset` on, and the bytes that it holds; of those beyond `room`
    the first may be the last. None for a batch that is to be decoded on a thread."""
    if header.codec is Codec.NONE:
        return _records(data, at, offset, room, None, bytes_max), header.size
    if header.count > CHUNK_RECORDS_MAX:
        return None
    unpacked_batch = verify_and_unpack_small(data, at, bytes_max)
    if unpacked_batch is None:
        return None
    return _records(data, at, offset, room, unpacked_batch, bytes_max), len(unpacked_batch[1])


async def _read_large(
    unpacking: Unpacking, data: memoryview, at: int, header: Header, offset: Offset, room: int
) -> tuple[list[Record], int]:
    # Never the whole batch: a long decode delays the other users of the thread.
    read = partial(
        decode_range, data, at, offset, room + 1, decompressed_bytes_max=unpacking.bytes_max
    )
    return await unpacking.run(read, packed_bytes=header.size), CHUNK_UNPACKED_BYTES_MAX


def _records(
    data: memoryview,
    at: int,
    offset: Offset,
    room: int,
    unpacked_batch: Unpacked | None,
    bytes_max: int,
) -> list[Record]:
    if room < FEW_RECORDS:
        return decode_range(
            data, at, offset, room + 1, decompressed_bytes_max=bytes_max, unpacked=unpacked_batch
        )
    decoded = decode_all(data, at, decompressed_bytes_max=bytes_max, unpacked=unpacked_batch)
    if decoded and decoded[0].offset < offset:
        return [record for record in decoded if record.offset >= offset]
    return decoded


def _unreadable(
    batch: memoryview, header: Header, offset: Offset, problem: Exception
) -> Unreadable:
    first = max(header.base_offset, offset)
    return Unreadable(bytes(batch), first, header.last_offset, header.max_timestamp, str(problem))


def _batches(data: memoryview, part: Slice) -> Iterator[tuple[int | None, Header]]:
    """Position and header of each batch; position None for a hidden one."""
    at = 0
    while at < len(data):
        header = read_header(data, at)
        is_hidden = header.is_control or (
            header.is_transactional
            and any(
                transaction.producer_id == header.producer_id
                and transaction.first_offset <= header.base_offset <= transaction.last_offset
                for transaction in part.aborted
            )
        )
        yield None if is_hidden else at, header
        at += header.size
