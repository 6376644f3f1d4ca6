"""Decodes records of batches into columns of positions, with numpy and no object per record.

Pure. Only the chain of record lengths is walked one by one, and even that is skipped where records
of one size follow each other; all other varints are decoded at once, one field of all records after
the other. Invariant: a batch that `codec.records` refuses is refused here too; a test holds the two
against each other.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from millstream.codec.batch import RECORD_BYTES_MIN
from millstream.codec.records import RECORD_HEADER_BYTES_MIN
from millstream.errors import CorruptBatch, InvalidBatch
from millstream.model import Buffer
from millstream.spark.read.fetched import Payload

Ints: TypeAlias = NDArray[np.int64]

# A run of equal records is looked for with numpy, which pays only where runs are long.
_RUN_COUNT_MIN = 256
_WALK_COUNT = 1024  # Records walked one by one after a run that was short.


class Field(NamedTuple):
    """Where a field of each record lies; a size of -1 is null."""

    at: Ints
    sizes: Ints


class Rows(NamedTuple):
    """The records of some batches, as positions in `data`."""

    data: Buffer
    offsets: Ints
    timestamps_ms: Ints
    are_append_times: NDArray[np.bool_]
    keys: Field
    values: Field
    header_counts: Ints
    header_at: Ints
    ends: Ints

    def between(self, start: int, end: int) -> "Rows":
        """Those with offsets from `start` to `end`; offsets rise."""
        if len(self.offsets) and self.offsets[0] >= start and self.offsets[-1] < end:
            return self
        low, high = np.searchsorted(self.offsets, (start, end))
        return self.part(slice(int(low), int(high)))

    def part(self, chosen: slice | Ints) -> "Rows":
        """Some of the rows, in the order that they are named."""
        return Rows(
            self.data,
            self.offsets[chosen],
            self.timestamps_ms[chosen],
            self.are_append_times[chosen],
            Field(self.keys.at[chosen], self.keys.sizes[chosen]),
            Field(self.values.at[chosen], self.values.sizes[chosen]),
            self.header_counts[chosen],
            self.header_at[chosen],
            self.ends[chosen],
        )


class Headers(NamedTuple):
    """All headers of some rows, one after the other; row `i` has those up to `ends[i]`."""

    ends: NDArray[np.int32]
    names: Field
    contents: Field


def find_rows(data: Buffer, payloads: list[Payload]) -> Rows:
    """Find the records of uncompressed batches. Raises `CorruptBatch` or `InvalidBatch`."""
    view = np.frombuffer(data, np.uint8)
    counts = np.array([payload.header.count for payload in payloads], np.int64)
    at = np.concatenate([_record_starts(data, view, payload) for payload in payloads])
    try:
        lengths, at = _varints(view, at)
        ends = at + lengths
        if (lengths < 0).any():
            raise CorruptBatch("a record of negative length")
        time_deltas, at = _varints(view, at + 1, bits=64)
        offset_deltas, at = _varints(view, at)
        keys, at = _field(view, at)
        values, at = _field(view, at)
        header_counts, at = _varints(view, at)
    except IndexError:
        raise CorruptBatch("the data ends inside a record") from None
    room = (ends - at) // RECORD_HEADER_BYTES_MIN
    if ((header_counts < 0) | (header_counts > room)).any():
        raise CorruptBatch("more headers than fit in a record")
    if ((header_counts == 0) & (at != ends)).any() or (at > ends).any():
        raise CorruptBatch("a record does not end where its length says")
    headers = [payload.header for payload in payloads]
    _check_deltas(offset_deltas, counts, [header.last_offset_delta for header in headers])
    are_append_times = np.repeat([header.has_log_append_time for header in headers], counts)
    # Wraps around like Java's long, for any number of a producer.
    times = _repeat([header.base_timestamp for header in headers], counts) + time_deltas
    if are_append_times.any():
        newest = _repeat([header.max_timestamp for header in headers], counts)
        times = np.where(are_append_times, newest, times)
    offsets = _repeat([header.base_offset for header in headers], counts) + offset_deltas
    return Rows(data, offsets, times, are_append_times, keys, values, header_counts, at, ends)


def find_headers(rows: Rows) -> Headers:
    """Find all headers: the first of every row at once, then the second, and so on."""
    view = np.frombuffer(rows.data, np.uint8)
    ends = np.cumsum(rows.header_counts)
    total = int(ends[-1]) if len(ends) else 0
    slots = ends - rows.header_counts  # Where the next header of each row goes.
    names, contents = (Field(np.zeros(total, np.int64), np.zeros(total, np.int64)) for _ in "nc")
    at = rows.header_at.copy()
    left = np.flatnonzero(rows.header_counts)
    level = 0
    try:
        while left.size:
            name, behind = _field(view, at[left])
            if (name.sizes < 0).any():
                raise InvalidBatch("a header needs a key")
            content, behind = _field(view, behind)
            into = slots[left] + level
            names.at[into], names.sizes[into] = name
            contents.at[into], contents.sizes[into] = content
            at[left] = behind
            level += 1
            left = left[rows.header_counts[left] > level]
    except IndexError:
        raise CorruptBatch("the data ends inside a header") from None
    if (at != rows.ends)[rows.header_counts > 0].any():
        raise CorruptBatch("a record does not end where its length says")
    return Headers(ends.astype(np.int32), names, contents)


# -- the chain of lengths --------------------------------------------------------------------------


def _record_starts(data: Buffer, view: NDArray[np.uint8], payload: Payload) -> Ints:
    """Where each record of a batch starts, at its length; checks that they fill the batch."""
    count = payload.header.count
    if payload.end - payload.start < count * RECORD_BYTES_MIN:
        raise CorruptBatch(f"{count} records in {payload.end - payload.start} bytes")
    at, position_count, parts = payload.start, 0, []
    try:
        while position_count < count:
            walk_count = count - position_count
            if walk_count >= _RUN_COUNT_MIN:
                run, at = _run(data, view, at, payload.end, walk_count)
                parts.append(run)
                position_count += len(run)
                if len(run) >= _RUN_COUNT_MIN:
                    continue
                walk_count = min(_WALK_COUNT, count - position_count)
            walked, at = _walk(data, at, walk_count)
            parts.append(np.array(walked, np.int64))
            position_count += walk_count
    except IndexError:
        raise CorruptBatch("the data ends inside a record") from None
    if at != payload.end:
        raise CorruptBatch(f"records end at {at}, the batch at {payload.end}")
    return np.concatenate(parts)


def _walk(data: Buffer, at: int, count: int) -> tuple[list[int], int]:
    """Follow lengths one by one. A negative length is taken for another, and refused later."""
    starts: list[int] = []
    append = starts.append
    for _ in range(count):
        append(at)
        byte = data[at]
        if byte < 0x80:
            at += 1 + (byte >> 1)
            continue
        high = data[at + 1]
        if high < 0x80:
            at += 2 + (high << 6 | (byte & 0x7F) >> 1)
            continue
        length, shift, at = byte & 0x7F | (high & 0x7F) << 7, 14, at + 2
        while high >= 0x80:
            high = data[at]
            length |= (high & 0x7F) << shift
            shift += 7
            at += 1
            if shift > 35:
                raise CorruptBatch("the length of a record does not end")
        at += length >> 1
    return starts, at


def _run(data: Buffer, view: NDArray[np.uint8], at: int, end: int, count: int) -> tuple[Ints, int]:
    """The records from `at` on whose lengths are encoded like the first one's; at least that."""
    _, behind = _walk(data, at, 1)
    size = behind - at
    most = min(count, (end - at) // size)
    if most <= 1:
        return np.array([at], np.int64), behind
    starts = at + size * np.arange(most, dtype=np.int64)
    table = view[at : at + most * size].reshape(most, size)
    width = next(i for i in range(size) if data[at + i] < 0x80) + 1
    differs = (table[:, :width] != table[0, :width]).any(axis=1)
    alike = int(differs.argmax()) if differs.any() else most
    return starts[:alike], at + alike * size


# -- varints ---------------------------------------------------------------------------------------


def _field(view: NDArray[np.uint8], at: Ints) -> tuple[Field, Ints]:
    sizes, at = _varints(view, at)
    if (sizes < -1).any():
        raise CorruptBatch("a field of negative length")
    return Field(at, sizes), at + np.maximum(sizes, 0)


def _varints(view: NDArray[np.uint8], at: Ints, bits: int = 32) -> tuple[Ints, Ints]:
    """Decode the signed varints at all these positions; return where each ends, too."""
    low = view.take(at)
    behind = at + 1
    raw = (low & 0x7F).astype(np.uint64)
    longer = np.flatnonzero(low & 0x80)
    shift = 7
    while longer.size:
        byte = view.take(behind[longer])
        if shift + 7 > bits and (byte >> (bits - shift)).any():
            raise CorruptBatch(f"a varint of more than {bits} bits")
        raw[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[longer] += 1
        longer = longer[byte >= 0x80]
        shift += 7
    signs = (raw & np.uint64(1)).view(np.int64)
    return (raw >> np.uint64(1)).view(np.int64) ^ -signs, behind


# -- parts -----------------------------------------------------------------------------------------


def _repeat(numbers: list[int], counts: Ints) -> Ints:
    return np.repeat(np.array(numbers, np.int64), counts)


def _check_deltas(deltas: Ints, counts: Ints, last_deltas: list[int]) -> None:
    """Offsets rise within a batch, and stay within what its header says."""
    steps = np.diff(deltas, prepend=np.int64(-1))
    firsts = np.cumsum(counts) - counts
    steps[firsts] = deltas[firsts] + 1  # The first of a batch need only not be negative.
    if (steps <= 0).any() or (deltas > _repeat(last_deltas, counts)).any():
        raise InvalidBatch("offset deltas do not rise within the batch's last one")
