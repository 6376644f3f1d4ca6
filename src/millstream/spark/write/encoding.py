"""Encodes rows as record batches: Arrow columns in, the bytes of Kafka's format v2 out.

Pure. numpy encodes all lengths at once, and Arrow itself joins them with keys and values, so no
Python object stands for a record. Invariant: `codec.records` decodes the bytes to the same rows; a
test holds the two against each other.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.codec.batch import TRANSACTIONAL, Header, seal
from millstream.codec.compression import Codec, compress
from millstream.model import Producer
from millstream.names import DELIVER_AT_HEADER, TTL_HEADER
from millstream.spark.errors import UnwritableRow
from millstream.spark.read.arrow import Array
from millstream.spark.write.partitioner import Columns, Share, parts

Ints: TypeAlias = NDArray[np.int64]

SEQUENCE_MAX = 2**31 - 1
# The most that a record takes besides its key, value and headers: five varints of 32 bits, one of
# 64, and a byte.
_RECORD_EXTRA_BYTES_MAX = 5 * 5 + 10 + 1
# The headers that the columns for Millstream become.


class Piece(NamedTuple):
    """Encoded records, without the header of their batch."""

    share_index: int
    count: int  # type: ignore[assignment]  # Hides tuple.count, which no caller needs.
    body: memoryview
    first_ms: int | None = None  # The time of its first record; None: all have that of writing.
    newest_ms: int | None = None


def encode_rows(rows: Columns, shares: Iterable[Share], *, bytes_max: int) -> list[Piece]:
    """Spell rows, sorted by share, as the records of batches of at most `bytes_max` each.

    A single record that is larger gets a batch of its own.
    """
    count = len(rows.values)
    value_sizes = _sizes(rows.values)
    key_sizes = np.full(count, -1, np.int64) if rows.keys is None else _sizes(rows.keys)
    header_counts, headers = _headers(rows, count)
    header_sizes = np.zeros(count, np.int64) if headers is None else np.diff(parts(headers)[0])
    content = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + header_sizes
    ends = np.cumsum(content + _RECORD_EXTRA_BYTES_MAX)
    cuts = _cuts(ends, [share.count for share in shares], bytes_max)
    starts = np.array([start for _, start, _ in cuts], np.int64)
    firsts = np.repeat(starts, [end - start for _, start, end in cuts])
    times = None if rows.times_ms is None else np.asarray(rows.times_ms)
    zero = np.zeros((count, 1), np.uint8), np.ones(count, np.int64)
    time_delta = zero if times is None else _varints(times - times[firsts])
    deltas = np.arange(count) - firsts
    delta, key_size, value_size = (_varints(n) for n in (deltas, key_sizes, value_sizes))
    header_count = _varints(header_counts)
    # The attributes are a zero, and so is the delta of the time where all have that of writing.
    length = content + 1 + time_delta[1] + delta[1] + key_size[1] + value_size[1] + header_count[1]
    pieces = [
        _joined([_varints(length), zero, time_delta, delta, key_size]),
        *([] if rows.keys is None else [rows.keys]),
        _joined([value_size]),
        rows.values,
        _joined([header_count]) if headers is not None else pa.scalar(b"\0", pa.binary()),
        *([] if headers is None else [headers]),
    ]
    records = pc.binary_join_element_wise(
        *pieces, _nothing(), null_handling="replace", null_replacement=""
    )
    borders, data = parts(records)
    view = memoryview(data.data)
    return [
        Piece(
            share,
            end - start,
            view[int(borders[start]) : int(borders[end])],
            None if times is None else int(times[start]),
            None if times is None else int(times[start:end].max()),
        )
        for share, start, end in cuts
    ]


def batch(
    piece: Piece,
    producer: Producer,
    sequence: int,
    *,
    codec: Codec,
    is_transactional: bool,
    now_ms: int,
) -> bytes:
    """Make a batch of a piece."""
    header = Header(
        base_offset=0,
        size=0,
        epoch=-1,
        crc=0,
        attributes=codec | (TRANSACTIONAL if is_transactional else 0),
        last_offset_delta=piece.count - 1,
        base_timestamp=now_ms if piece.first_ms is None else piece.first_ms,
        max_timestamp=now_ms if piece.newest_ms is None else piece.newest_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        count=piece.count,
    )
    return seal(header, compress(codec, piece.body))[1]


def next_sequence(sequence: int, count: int) -> int:
    """The sequence behind `count` records; after 2**31 - 1 comes 0."""
    return (sequence + count) & SEQUENCE_MAX


# -- parts -----------------------------------------------------------------------------------------


def _nothing() -> Any:  # An Arrow scalar.
    """An empty separator: made when needed, as the first scalar has Arrow import pandas."""
    return pa.scalar(b"", pa.binary())


def _sizes(array: Array) -> Ints:
    """The size of each element, -1 for null."""
    sizes = np.diff(parts(array)[0])
    if array.null_count:
        sizes[~np.asarray(array.is_valid())] = -1
    return sizes


def _cuts(ends: Ints, counts: list[int], bytes_max: int) -> list[tuple[int, int, int]]:
    """Cut each share into batches: the share, its first row, the row behind its last."""
    cuts = []
    start = 0
    for share, count in enumerate(counts):
        share_end = start + count
        while start < share_end:
            room = bytes_max + (int(ends[start - 1]) if start else 0)
            fits = int(np.searchsorted(ends, room, side="right"))
            end = min(max(fits, start + 1), share_end)
            cuts.append((share, start, end))
            start = end
    assert start == len(ends)
    return cuts


def _headers(rows: Columns, count: int) -> tuple[Ints, Array | None]:
    """How many headers each row has, and the bytes of all of them."""
    counts, encoded = np.zeros(count, np.int64), []
    if rows.headers is not None:
        counts, own = _own_headers(rows.headers)
        encoded.append(own)
    for name, numbers in ((DELIVER_AT_HEADER, rows.due_ms), (TTL_HEADER, rows.lives_ms)):
        if numbers is not None:
            counts = counts + np.asarray(numbers.is_valid())
            encoded.append(_number_headers(name, numbers))
    if len(encoded) < 2:
        return counts, encoded[0] if encoded else None
    joined = pc.binary_join_element_wise(
        *encoded, _nothing(), null_handling="replace", null_replacement=""
    )
    return counts, joined


def _number_headers(name: str, numbers: Array) -> Array:
    """A header of this name for each row that has a number; nothing for the others."""
    texts = as_binary(numbers.cast(pa.string()))
    assert len(name) < 64  # So its length is one byte.
    before = pa.scalar(bytes([2 * len(name)]) + name.encode(), pa.binary())
    # A row that is null in one of its parts is null, and becomes empty.
    joined = pc.binary_join_element_wise(
        before, _joined([_varints(_sizes(texts))]), texts, _nothing()
    )
    return joined.fill_null(b"")


def _own_headers(lists: Array) -> tuple[Ints, Array]:
    counts = np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)
    pairs = pc.list_flatten(lists)
    names, contents = pairs.field(0), pairs.field(1)
    if pairs.null_count or names.null_count:
        raise UnwritableRow("a header has a null key")
    names, contents = as_binary(names), as_binary(contents)
    encoded = pc.binary_join_element_wise(
        _joined([_varints(_sizes(names))]),
        names,
        _joined([_varints(_sizes(contents))]),
        contents,
        _nothing(),
        null_handling="replace",
        null_replacement="",
    )
    borders, data = parts(encoded)
    row_ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return counts, _binary(borders[row_ends], data)


def as_binary(column: Array) -> Array:
    """Text or bytes, in Arrow's 32 or 64 bits, as bytes with 32-bit borders; one chunk."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _varints(numbers: Ints) -> tuple[NDArray[np.uint8], Ints]:
    """Spell numbers: a table with a row for each, and how many bytes of each row count."""
    raw = (numbers << 1 ^ numbers >> 63).view(np.uint64)
    width = max(1, -(-int(raw.max(initial=0)).bit_length() // 7))
    table = np.empty((len(raw), width), np.uint8)
    sizes = np.ones(len(raw), np.int64)
    for index in range(width):
        remaining = raw >> np.uint64(7 * (index + 1))
        goes_on = remaining > 0
        table[:, index] = (raw >> np.uint64(7 * index)) & np.uint64(0x7F)
        table[:, index] |= goes_on.astype(np.uint8) << 7
        if index + 1 < width:
            sizes += goes_on
    return table, sizes


def _joined(columns: list[tuple[NDArray[np.uint8], Ints]]) -> Array:
    """Join the used bytes of some tables, row by row."""
    table = np.concatenate([table for table, _ in columns], axis=1)
    counts = [np.arange(part.shape[1]) < sizes[:, None] for part, sizes in columns]
    sizes = np.sum([sizes for _, sizes in columns], axis=0)
    borders = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return _binary(borders, table[np.concatenate(counts, axis=1)])


def _binary(borders: Ints, data: NDArray[np.uint8]) -> Array:
    buffers = [None, pa.py_buffer(borders.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(borders) - 1, buffers)
