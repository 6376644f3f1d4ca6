"""Decoded records of a partition from an offset on: what delivery, replays and pulls read.

Owns the step from the bytes of `Partitions.read` to records: skipping what lies before the offset,
markers, and records of transactions that were rolled back. Bounded in bytes and in records. The one
thing to know: a chunk without records may still move the reader on; `next_offset` says how far.
"""

from collections.abc import Iterator
from typing import NamedTuple

from millstream.codec.batch import read_header
from millstream.codec.excerpt import read_some
from millstream.codec.reading import read_batch
from millstream.codec.records import Record
from millstream.engine.filters import Filter
from millstream.engine.partitions import Partitions
from millstream.engine.reading import Slice, Want
from millstream.errors import CorruptBatch, InvalidBatch, StorageError, StorageUnavailable
from millstream.model import Isolation, Offset, Session, TopicPartition

CHUNK_BYTES_MAX = 256 * 2**10
CHUNK_RECORDS_MAX = 10_000
DECOMPRESSED_BYTES_MAX = 64 * 2**20
# Who wants no more than these may come back for the rest of a batch many times.
FEW_RECORDS = 5_000


class Chunk(NamedTuple):
    records: list[Record]
    next_offset: Offset  # Where reading goes on.
    end_offset: Offset  # What can be read at the moment ends here.
    log_start_offset: Offset


async def read_records(
    partitions: Partitions,
    session: Session,
    target: TopicPartition,
    offset: Offset,
    *,
    count_max: int = CHUNK_RECORDS_MAX,
    bytes_max: int = CHUNK_BYTES_MAX,
    deadline: float | None = None,
    filter: Filter | None = None,  # noqa: A002 It is what readers call it.
) -> Chunk:
    """Read some records from `offset` on, waiting for the first until `deadline` of the loop.

    With a `filter` only what it takes, as far as one request looks. Raises what stands in the way:
    `Denied`, `UnknownTopic`, `OffsetOutOfRange`, ...
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
        return _decode(part, offset, count_max)
    except (StorageError, CorruptBatch, InvalidBatch) as problem:
        raise StorageUnavailable(f"{target}: {problem}") from problem


def _decode(part: Slice, offset: Offset, count_max: int) -> Chunk:
    found: list[Record] = []
    next_offset = offset
    data = memoryview(b"" if part.records is None else part.records.read())
    for at, end_offset in _batches(data, part):
        if at is not None:
            room = count_max - len(found)
            decoded = _read(data, at, offset, room)
            if len(decoded) > room:
                found += decoded[:room]
                next_offset = found[-1].offset + 1
                break
            found += decoded
        next_offset = max(next_offset, end_offset)
    return Chunk(found, next_offset, part.last_stable_offset, part.log_start_offset)


def _read(data: memoryview, at: int, offset: Offset, room: int) -> list[Record]:
    """The records of a batch from `offset` on; of those beyond `room` the first may be the last."""
    if room < FEW_RECORDS:
        bytes_max = DECOMPRESSED_BYTES_MAX
        return read_some(data, at, offset, room + 1, decompressed_bytes_max=bytes_max)
    decoded = read_batch(data, at, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    if decoded and decoded[0].offset < offset:
        return [record for record in decoded if record.offset >= offset]
    return decoded


def _batches(data: memoryview, part: Slice) -> Iterator[tuple[int | None, Offset]]:
    """Where each batch lies, None for one that is not to be seen, and where its offsets end."""
    at = 0
    while at < len(data):
        header = read_header(data, at)
        is_hidden = header.is_control or (
            header.is_transactional
            and any(
                one.producer_id == header.producer_id
                and one.first_offset <= header.base_offset <= one.last_offset
                for one in part.aborted
            )
        )
        yield None if is_hidden else at, header.end_offset
        at += header.size
