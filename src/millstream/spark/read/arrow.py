"""Builds one Arrow record batch of fetched rows, with the columns of Spark's schema, in its order.

Pure. Arrow itself gathers keys and values out of the fetched bytes. Invariant: `headers` is an
empty list and never null, because Spark is slow with null lists.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.model import Buffer, TopicPartition
from millstream.spark.read.rows import Field, Rows, find_headers

# Arrow ships no types: what is made of it is `Any` to mypy.
Array: TypeAlias = Any
Schema: TypeAlias = Any

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_MICROSECONDS = 1_000
_MILLISECONDS_MAX = (2**63 - 1) // _MICROSECONDS


def record_batch(
    target: TopicPartition, rows: Rows, schema: Schema, values: Array | None = None
) -> Array:
    """Build the columns of `schema`, and no others; `values` where they are not to stay bytes."""
    count = len(rows.offsets)
    makers: dict[str, Callable[[], Array]] = {
        "key": lambda: gather(rows.data, rows.keys),
        "value": lambda: gather(rows.data, rows.values) if values is None else values,
        "topic": lambda: _repeated(target.topic, count),
        "partition": lambda: _numbers(np.full(count, target.partition, np.int32), pa.int32()),
        "offset": lambda: _numbers(rows.offsets, pa.int64()),
        "timestamp": lambda: _timestamps(rows.timestamps_ms),
        "timestampType": lambda: _numbers(rows.are_append_times.astype(np.int32), pa.int32()),
        "headers": lambda: headers(rows, schema.field("headers").type),
    }
    return pa.RecordBatch.from_arrays([makers[name]() for name in schema.names], schema=schema)


def gather(data: Buffer, field: Field) -> Array:
    """Copy the bytes of a field, record after record, into one binary array.

    An array over all the data, in which fields and what lies between them take turns, is a view;
    taking every second of it is a copy that Arrow makes.
    """
    count = len(field.at)
    is_null = field.sizes < 0
    borders = np.empty(2 * count + 1, np.int32)
    borders[0:-1:2] = field.at
    borders[1::2] = field.at + np.maximum(field.sizes, 0)
    borders[-1] = borders[-2] if count else 0
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(data)]
    turns = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    chosen = np.arange(0, 2 * count, 2, dtype=np.int32)
    return turns.take(_numbers(chosen, pa.int32(), is_null))


def _timestamps(milliseconds: NDArray[np.int64]) -> Array:
    # The time of a producer may be out of the range of microseconds.
    bounded = np.clip(milliseconds, -_MILLISECONDS_MAX, _MILLISECONDS_MAX)
    return _numbers(bounded * _MICROSECONDS, pa.timestamp("us", tz="UTC"))


def _numbers(numbers: NDArray[Any], kind: Any, is_null: NDArray[np.bool_] | None = None) -> Array:
    """A column over the numbers, which are as wide as the Arrow type `kind`.

    Arrow would make the same of `pa.array`, and import pandas for it where there is one: half a
    second of every worker's first task.
    """
    bits = None
    if is_null is not None and is_null.any():
        bits = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    data = pa.py_buffer(np.ascontiguousarray(numbers))
    assert kind.bit_width == 8 * numbers.itemsize
    return pa.Array.from_buffers(kind, len(numbers), [bits, data])


def _repeated(text: str, count: int) -> Array:
    raw = text.encode()
    borders = np.arange(count + 1, dtype=np.int32) * np.int32(len(raw))
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(raw * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def headers(rows: Rows, kind: Any) -> Array:  # An Arrow type.
    """The headers of each row, as a list of pairs of this type."""
    parsed = find_headers(rows)
    ends = np.concatenate([np.zeros(1, np.int32), parsed.ends])
    names = _text(gather(rows.data, parsed.names))
    contents = gather(rows.data, parsed.contents)
    pairs = pa.StructArray.from_arrays([names, contents], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(_numbers(ends, pa.int32()), pairs, type=kind)


def _text(names: Array) -> Array:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:  # Not UTF-8: as rare as it is wrong, so one by one will do.
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()])
