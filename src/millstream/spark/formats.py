"""Values with a schema: JSON text becomes a column of structs.

Pure. Arrow parses a whole batch of values at once. Where that fails, the batch is halved until the
bad values stand alone, so good rows stay cheap and a bad one costs a few more parses.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millstream.spark.arrow import Array, ValueReader
from millstream.spark.errors import UnreadableValue
from millstream.spark.options import OnError

_SHOWN_BYTES_MAX = 80
_LINE = b"\n"


def json_reader(kind: Any, on_error: OnError) -> ValueReader:  # An Arrow struct type.
    """Read values as JSON objects of the type `kind`; a null value stays null."""
    options = pj.ParseOptions(
        explicit_schema=pa.schema(list(kind)),
        newlines_in_values=True,
        unexpected_field_behavior="ignore",
    )

    def read(values: Array) -> Array:
        present = values.drop_null()
        parts = _parse(present, kind, options, on_error)
        parsed = pa.concat_arrays(parts) if parts else pa.nulls(0, kind)
        if len(present) == len(values):
            return parsed
        # Each present value takes the next parsed one; nulls take none.
        is_present = pc.is_valid(values)
        ranks = pc.subtract(pc.cumulative_sum(is_present.cast(pa.int64())), 1)
        return parsed.take(pc.if_else(is_present, ranks, pa.scalar(None, pa.int64())))

    return read


def _parse(values: Array, kind: Any, options: Any, on_error: OnError) -> list[Array]:
    if not len(values):
        return []
    try:
        return [_parse_all(values, kind, options)]
    except pa.ArrowInvalid as problem:
        if len(values) > 1:
            middle = len(values) // 2
            halves = (values[:middle], values[middle:])
            return [part for half in halves for part in _parse(half, kind, options, on_error)]
        if on_error is OnError.FAIL:
            shown = values[0].as_py()[:_SHOWN_BYTES_MAX]
            raise UnreadableValue(
                f"the value {shown!r} is not JSON of the valueSchema ({problem}); set onError to "
                "null to read such values as null"
            ) from None
        return [pa.nulls(1, kind)]


def _parse_all(values: Array, kind: Any, options: Any) -> Array:
    lines = pc.binary_join(pa.array([values.to_pylist()], pa.list_(pa.binary())), _LINE)
    text = lines[0].as_buffer()
    read = pj.ReadOptions(use_threads=False, block_size=max(text.size + 1, 1))
    table = pj.read_json(pa.BufferReader(text), read_options=read, parse_options=options)
    if table.num_rows != len(values):
        raise pa.ArrowInvalid(f"{table.num_rows} JSON objects in {len(values)} values")
    fields = list(kind)
    columns = [table[field.name].combine_chunks() for field in fields]
    return pa.StructArray.from_arrays(columns, fields=fields)
