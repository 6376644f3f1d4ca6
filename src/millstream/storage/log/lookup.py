"""Searches segments by offset, by size, and from the end. By time: see `time_lookup`.

Functions over files and tables of the cache; they change nothing. The index leads to within one
interval of the position, so every search by offset or size reads at most the headers of that
interval and one batch.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millstream.codec.batch import HEADER_BYTES, Header
from millstream.errors import DamagedBatch
from millstream.model import Offset
from millstream.storage.log.cache import LogCache, Verification, View
from millstream.storage.log.segment import FileRange, Segment

STEP_HEADERS = 1_000  # Looked at in one step, in about 2 ms.
# Verified in one step, where the bytes were not since the node started: in about 2 ms, too.
STEP_VERIFIED_BYTES = 4 * 2**20


class Span(NamedTuple):
    """The offsets that a search may see. Batches that reach beyond the end are not seen."""

    start_offset: Offset
    end_offset: Offset


def step_cost(view: View, header: Header) -> int:
    """What a header costs of the `STEP_HEADERS` of a step."""
    if view.is_plain:
        return 1
    return 1 + header.size * STEP_HEADERS // STEP_VERIFIED_BYTES


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
    # An entry is a safe end: all batches before it end at or before its offset.
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
    in_question, table = view.segment.unverified, view.table
    if in_question is None or not table.positions:
        return None
    start = table.positions[table.floor_offset(offset)]
    if in_question.covers(start, start + bytes_max):
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
            # One byte more: the header behind the range proves that it ends there.
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


def one_step(
    headers: Iterator[tuple[View, int, Header]], count_max: int
) -> Iterator[tuple[View, int, Header]]:
    """The next `count_max` of them; fewer where batches are verified on the way."""
    cost = 0
    while cost < STEP_HEADERS:
        item = next(headers, None)
        if item is None:
            return
        view, _, header = item
        cost += max(step_cost(view, header), STEP_HEADERS // count_max)
        yield item


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
    cost = 0
    for view, header in _backwards(cache, segments, span):
        if header.end_offset <= start_offset:
            break
        if cost >= STEP_HEADERS:
            return Tail(offset, missing)
        cost += step_cost(view, header)
        offset = header.base_offset
        if header.is_control:
            continue
        if missing <= header.count:
            if header.count == header.last_offset_delta + 1:
                offset = header.end_offset - missing
            return Tail(max(start_offset, offset), 0)
        missing -= header.count
    return Tail(start_offset, 0)


def _backwards(
    cache: LogCache, segments: Sequence[Segment], span: Span
) -> Iterator[tuple[View, Header]]:
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
            yield from ((view, h) for h in reversed(stretch) if h.end_offset <= span.end_offset)
            end = positions[at]
