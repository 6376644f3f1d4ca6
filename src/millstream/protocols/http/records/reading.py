"""Reads records for pages and streams: whole batches from the engine, decoded in short turns.

Markers and records of aborted transactions are left out. A search says how far it came.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from millstream.codec.batch import read_header
from millstream.codec.records import (
    Record,
    decode_all,
    verify_and_unpack,
    verify_and_unpack_small,
)
from millstream.engine.filters.filter import Filter
from millstream.engine.partitions.slices import (
    AtTime,
    Earliest,
    FilteredBatches,
    Latest,
    Slice,
    Want,
)
from millstream.errors import CorruptBatch, InvalidBatch
from millstream.model import Isolation, Offset, Session, TopicPartition
from millstream.protocols.http.context import Services
from millstream.storage.log.aborted import Aborted

CHUNK_BYTES = 64 * 1024  # Of batches: about a millisecond's worth of records.


class Chunk(NamedTuple):
    records: list[Record]
    next_offset: Offset
    end_offset: Offset  # What a reader may see, exclusive.
    read_bytes: int
    log_bytes: int = 0  # Read for it, also of batches that did not pass.
    skipped_bytes: int = 0  # Of the log, passed over by an index.


async def read_chunk(
    services: Services,
    session: Session,
    target: TopicPartition,
    offset: Offset,
    *,
    where: Filter | None = None,
    bytes_max: int = CHUNK_BYTES,
) -> Chunk:
    """The records from `offset` on, as far as one read goes; raises what the engine refuses."""
    [part] = await services.partitions.read(
        session,
        [Want(target, offset, bytes_max)],
        isolation=Isolation.READ_COMMITTED,
        filter=where,
    )
    return await decode_slice(services, part, offset)


async def decode_slice(services: Services, part: Slice, offset: Offset) -> Chunk:
    if part.error is not None:
        raise part.error
    end = part.last_stable_offset
    if part.records is None:
        return Chunk([], offset, end, 0)
    data = await services.threads.run(part.records.read)
    records: list[Record] = []
    aborted = _Aborted(part.aborted)
    at = 0
    while at < len(data):
        header = read_header(data, at)
        if not header.is_control and not aborted.hides(header.base_offset, header.producer_id):
            records += await _decode(services, data, at, header.size)
            await asyncio.sleep(0)
        elif header.is_control:
            aborted.ended(header.producer_id)
        at += header.size
    visible = [record for record in records if record.offset >= offset]
    read_bytes, skipped_bytes = len(data), 0
    if isinstance(part.records, FilteredBatches):
        read_bytes, skipped_bytes = part.records.read_bytes, part.records.skipped_bytes
    return Chunk(visible, part.records.end_offset, end, len(data), read_bytes, skipped_bytes)


async def _decode(services: Services, data: bytes, at: int, size: int) -> list[Record]:
    most = services.config.limits.batch_decompressed_bytes_max
    try:
        unpacked = verify_and_unpack_small(data, at, most)
        if unpacked is None:
            work = partial(verify_and_unpack, data, at, most)
            unpacked = await services.unpacking.run(work, packed_bytes=size)
        return decode_all(data, at, decompressed_bytes_max=most, unpacked=unpacked)
    except (CorruptBatch, InvalidBatch):
        return []  # Of an older format, or not what it says; the page goes on behind it.


class _Aborted:
    """The producers whose transaction was aborted, at one place of the log."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._opening = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._producers: set[int] = set()

    def hides(self, base_offset: Offset, producer_id: int) -> bool:
        while self._opening and self._opening[0].first_offset <= base_offset:
            self._producers.add(self._opening.popleft().producer_id)
        return producer_id in self._producers

    def ended(self, producer_id: int) -> None:
        self._producers.discard(producer_id)


class Bounds(NamedTuple):
    start: Offset
    end: Offset


async def bounds_of(services: Services, session: Session, target: TopicPartition) -> Bounds:
    """The first offset there is, and the end of what a reader may see."""
    first = await services.partitions.find(session, target, Earliest())
    last = await services.partitions.find(
        session, target, Latest(), isolation=Isolation.READ_COMMITTED
    )
    start = 0 if first is None else first.offset
    return Bounds(start, start if last is None else last.offset)


async def offset_at(
    services: Services, session: Session, target: TopicPartition, timestamp_ms: int, end: Offset
) -> Offset:
    """The first record that is not older; the end if there is none."""
    place = await services.partitions.find(session, target, AtTime(timestamp_ms))
    return end if place is None else min(place.offset, end)
