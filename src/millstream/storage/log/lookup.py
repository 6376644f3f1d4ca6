"""Finding places in segments: by offset, by size, by time, from the end.

Functions over what the cache opens; nothing here changes anything. The one thing to know: the index
leads to within one interval of the place, so every search by offset or size walks at most that far
and one batch. Only time may need more, where timestamps run backwards around the log start.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millstream.codec.batch import HEADER_BYTES, Header, verify_batch
from millstream.codec.records import Record, decode_all
from millstream.errors import CorruptBatch, DamagedBatch, DamagedLog, InvalidBatch, RequestError
from millstream.model import Offset
from millstream.storage.log.cache import LogCache, Verification, View
from millstream.storage.log.index import NO_TIMESTAMP
from millstream.storage.log.segment import FileRange, Segment

STEP_HEADERS = 1_000  # Looked at in one step backwards, in about 2 ms.


class Span(NamedTuple):
    """The offsets that a search may see. Batches that reach beyond the end are not seen."""

    start_offset: Offset
    end_offset: Offset


def first_behind(
    view: View, offset: Offset, *, leaves_damage_out: bool = False
) -> tuple[int, Offset] | None:
    """Position and base offset of the first batch of the segment that ends behind `offset`."""
    segment, table = view.segment, view.table
    if not table.positions:
        return None
    index = table.floor_offset(offset)
    at, base_offset = table.positions[index], table.first_offset + table.offsets[index]
    if base_offset >= offset:
        return at, base_offset
    after = segment.end_offset if leaves_damage_out else offset
    for position, header in view.headers(at, segment.size, after=after):
        if header.end_offset > offset:
            return position, header.base_offset
    return None


def read_range(view: View, offset: Offset, bytes_max: int, end_offset: Offset) -> FileRange | None:
    """Whole batches from the first that ends behind `offset`, none that ends past `end_offset`."""
    segment, file, table = view.segment, view.file, view.table
    if not view.is_plain and not _is_sound(view, offset, bytes_max):
        return _read_up_to_damage(view, offset, bytes_max, end_offset)
    place = first_behind(view, offset)
    if place is None:
        return None
    at, base_offset = place
    end_max = at + bytes_max
    if segment.end_offset <= end_offset:
        if segment.size <= end_max:
            return FileRange(file, at, segment.size - at, base_offset, segment.end_offset, segment)
        index = table.floor_position(end_max)
    else:
        index = min(table.floor_position(end_max), table.floor_offset(end_offset))
    # An entry tells a safe end: all batches before it end at or before its offset.
    end, end_of_range = table.positions[index], table.first_offset + table.offsets[index]
    if end <= at:
        end, end_of_range = at, base_offset
    if end == at or end_max - end >= HEADER_BYTES:
        try:
            for position, header in view.headers(end, segment.size):
                position += header.size
                if header.end_offset > end_offset or (position > end_max and end > at):
                    break
                end, end_of_range = position, header.end_offset
        except DamagedBatch:
            if end == at:
                raise
    if end <= at:
        return None
    return FileRange(file, at, end - at, base_offset, end_of_range, segment)


def unverified(view: View, offset: Offset, bytes_max: int) -> Verification | None:
    """What `read_range` would have to verify; None if it was verified before."""
    rest, table = view.segment.unverified, view.table
    if rest is None or not table.positions:
        return None
    start = table.positions[table.floor_offset(offset)]
    if rest.covers(start, start + bytes_max):
        return None
    return view.verification(start, start + bytes_max)


def _is_sound(view: View, offset: Offset, bytes_max: int) -> bool:
    """Verify all that `read_range` looks at; False if the segment is known to be damaged."""
    table = view.table
    if table.positions:
        start = table.positions[table.floor_offset(offset)]
        view.verify(start, start + 1)
        place = None if view.segment.damage else first_behind(view, offset)
        if place is not None:
            # One byte more: the header behind the range tells that it ends there.
            view.verify(start, place[0] + bytes_max + 1)
    return not view.segment.damage


def _read_up_to_damage(
    view: View, offset: Offset, bytes_max: int, end_offset: Offset
) -> FileRange | None:
    """`read_range` in a segment with damage: ends before it; `DamagedBatch` if it comes first."""
    segment, table = view.segment, view.table
    start = table.positions[table.floor_offset(offset)]
    base_offset: Offset | None = None
    at = end = end_of_range = 0
    try:
        for position, header in view.headers(start, segment.size, after=offset):
            if header.end_offset <= offset:
                continue
            behind = position + header.size
            is_too_far = header.end_offset > end_offset
            if is_too_far or (base_offset is not None and behind - at > bytes_max):
                break
            if base_offset is None:
                at, base_offset = position, header.base_offset
            elif position != end:
                break  # Damage that was left out lies between.
            end, end_of_range = behind, header.end_offset
    except DamagedBatch as problem:
        if base_offset is None and problem.base_offset < end_offset:
            raise
    if base_offset is None:
        return None
    return FileRange(view.file, at, end - at, base_offset, end_of_range, segment)


def headers_between(
    cache: LogCache, segments: Sequence[Segment], span: Span, *, leaves_damage_out: bool = False
) -> Iterator[tuple[View, int, Header]]:
    """The batches with offsets in `span`, also those that reach beyond it."""
    after = span.end_offset if leaves_damage_out else span.start_offset
    for segment in segments:
        if segment.end_offset <= span.start_offset or segment.size == 0:
            continue
        if segment.base_offset >= span.end_offset:
            return
        view = cache.view(segment)
        place = first_behind(view, span.start_offset, leaves_damage_out=leaves_damage_out)
        if place is None:
            continue
        for position, header in view.headers(place[0], segment.size, after=after):
            if header.base_offset >= span.end_offset:
                return
            yield view, position, header


def first_at_time(
    cache: LogCache,
    segments: Sequence[Segment],
    timestamp: int,
    span: Span,
    *,
    decompressed_bytes_max: int,
) -> Record | None:
    """The first record in `span` with a timestamp at or after `timestamp`."""
    for segment in segments:
        if segment.base_offset >= span.end_offset:
            return None
        if segment.max_timestamp < timestamp or segment.end_offset <= span.start_offset:
            continue
        view = cache.view(segment)
        if not view.table:
            continue
        start = view.table.positions[view.table.floor_time(timestamp)]
        for position, header in _from(view, start, span.start_offset):
            if header.end_offset > span.end_offset:
                return None
            if header.max_timestamp < timestamp:
                continue
            for record in _records(view, position, header, decompressed_bytes_max):
                if record.timestamp >= timestamp and record.offset >= span.start_offset:
                    return record
    return None


def newest(
    cache: LogCache, segments: Sequence[Segment], span: Span, *, decompressed_bytes_max: int
) -> Record | None:
    """The first of the records in `span` that have the greatest timestamp; None if none has one.

    Trusts the batch headers to find the batch, as Kafka does.
    """
    max_timestamp = NO_TIMESTAMP
    best: Segment | None = None
    for segment in segments:
        if segment.base_offset >= span.end_offset:
            break
        if segment.max_timestamp <= max_timestamp or segment.end_offset <= span.start_offset:
            continue
        inside = _max_timestamp(cache.view(segment), span)
        if inside > max_timestamp:
            max_timestamp, best = inside, segment
    if best is None:
        return None
    view = cache.view(best)
    start = view.table.positions[view.table.floor_time(max_timestamp)]
    for position, header in _from(view, start, span.start_offset):
        if header.max_timestamp >= max_timestamp and header.count:
            found = _records(view, position, header, decompressed_bytes_max)
            seen = [record for record in found if record.offset >= span.start_offset]
            return max(seen, key=lambda record: record.timestamp, default=None)
    return None


class Tail(NamedTuple):
    """How far a search for the last records of a log has come, from its end back."""

    offset: Offset
    missing: int  # Records still to be counted before `offset`; 0: the search is over.


def extend_tail(
    cache: LogCache, segments: Sequence[Segment], tail: Tail, *, start_offset: Offset
) -> Tail:
    """Count records back from `tail.offset`, in a step of `STEP_HEADERS`; markers do not count.

    Exact but in a compacted batch, where only its header is known: there all of it is included.
    Each step searches the log as it is then, so the log may change between two steps.
    """
    offset, missing = tail
    if missing <= 0:
        return tail
    span = Span(start_offset, max(start_offset, offset))
    for seen, header in enumerate(_backwards(cache, segments, span)):
        if header.end_offset <= start_offset:
            break
        if seen >= STEP_HEADERS:
            return Tail(offset, missing)
        offset = header.base_offset
        if header.is_control:
            continue
        if missing <= header.count:
            if header.count == header.last_offset_delta + 1:
                offset = header.end_offset - missing
            return Tail(max(start_offset, offset), 0)
        missing -= header.count
    return Tail(start_offset, 0)


def _backwards(cache: LogCache, segments: Sequence[Segment], span: Span) -> Iterator[Header]:
    """Headers from the end of `span` back, a stretch between two index entries at a time."""
    for segment in reversed(segments):
        if segment.base_offset >= span.end_offset or segment.size == 0:
            continue
        if segment.end_offset <= span.start_offset:
            return
        view = cache.view(segment)
        positions = view.table.positions
        last = view.table.floor_offset(span.end_offset)
        end = positions[last + 1] if last + 1 < len(positions) else segment.size
        for at in range(last, -1, -1):
            stretch = [header for _, header in view.headers(positions[at], end)]
            yield from (h for h in reversed(stretch) if h.end_offset <= span.end_offset)
            end = positions[at]


def _max_timestamp(view: View, span: Span) -> int:
    """The greatest timestamp of a segment's batches in `span`, by their headers."""
    segment, table = view.segment, view.table
    position, max_timestamp = 0, NO_TIMESTAMP
    if span.start_offset <= segment.base_offset:
        if segment.end_offset <= span.end_offset:
            return segment.max_timestamp
        index = table.floor_offset(span.end_offset)
        position, max_timestamp = table.positions[index], table.times[index]
    for _, header in _from(view, position, span.start_offset):
        if header.end_offset > span.end_offset:
            break
        if header.count:
            max_timestamp = max(max_timestamp, header.max_timestamp)
    return max_timestamp


def _from(view: View, position: int, start_offset: Offset) -> Iterator[tuple[int, Header]]:
    """Walk from `position`, or from where `start_offset` is if that lies behind it."""
    if start_offset > view.segment.base_offset:
        place = first_behind(view, start_offset)
        position = max(position, view.segment.size if place is None else place[0])
    return view.headers(position, view.segment.size, after=start_offset)


def _records(
    view: View, position: int, header: Header, decompressed_bytes_max: int
) -> list[Record]:
    """The records of one batch; its header's word for them where its producer wrote nonsense.

    A checksum that is wrong is the disk's fault and `DamagedLog`. Records that contradict a header
    under a right checksum are their producer's: they must not cost everyone else the partition.
    """
    batch = FileRange(view.file, position, header.size, header.base_offset, header.end_offset)
    data = batch.read()
    try:
        verify_batch(data)
    except (CorruptBatch, InvalidBatch) as problem:
        raise DamagedLog(f"batch at offset {header.base_offset}: {problem}") from problem
    try:
        return decode_all(data, decompressed_bytes_max=decompressed_bytes_max)
    except RequestError:
        return [Record(header.base_offset, header.max_timestamp, None, None)]
