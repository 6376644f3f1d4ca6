"""Chooses the decoder of each `valueFormat`, and decodes JSON.

Pure, apart from the libraries of the formats. Arrow parses a whole batch of JSON values at once. If
that fails, the batch is halved until the bad values stand alone, so good rows stay cheap and a bad
one costs a few more parses.
"""

from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millstream.spark.options.values import ValueFormat, ValueOptions
from millstream.spark.read.arrow import Array
from millstream.spark.values.decoding import (
    Decode,
    Decoded,
    Failure,
    ValueReader,
    failure,
    one_by_one,
)
from millstream.spark.values.framing import framed_message, framed_reader

_LINE = b"\n"


def value_reader(values: ValueOptions, kind: Any) -> ValueReader:  # An Arrow struct type.
    """Read values as structs of the type `kind`; a null value stays null."""
    match values.form:
        case ValueFormat.JSON:
            read = json_reader(kind)
            return read if values.registry is None else framed_reader(read)
        case ValueFormat.AVRO:
            return one_by_one(_avro(values), kind)
        case ValueFormat.PROTOBUF:
            return one_by_one(_protobuf(values), kind)
        case other:
            assert_never(other)


def _avro(values: ValueOptions) -> Decode:
    from millstream.spark.values.avro import avro_decode, avro_framed_decode

    if values.registry is None:
        return avro_decode(values.schema)
    from millstream.spark.registry import registry_for

    return avro_framed_decode(values.schema, registry_for(values.registry).schema)


def _protobuf(values: ValueOptions) -> Decode:
    from millstream.spark.values.protobuf import protobuf_decode, protobuf_path

    assert values.message is not None
    decode = protobuf_decode(values.schema, values.message)
    if values.registry is None:
        return decode
    return framed_message(decode, protobuf_path(values.schema, values.message))


def json_reader(kind: Any) -> ValueReader:  # An Arrow struct type.
    options = pj.ParseOptions(
        explicit_schema=pa.schema(list(kind)),
        newlines_in_values=True,
        unexpected_field_behavior="ignore",
    )

    def read(values: Array) -> Decoded:
        present = values.drop_null()
        bad: list[Failure] = []
        parts = _parse(present, 0, kind, options, bad)
        parsed = pa.concat_arrays(parts) if parts else pa.nulls(0, kind)
        if len(present) == len(values):
            return Decoded(parsed, bad)
        # Each present value takes the next parsed one; nulls take none.
        is_present = pc.is_valid(values)
        ranks = pc.subtract(pc.cumulative_sum(is_present.cast(pa.int64())), 1)
        column = parsed.take(pc.if_else(is_present, ranks, pa.scalar(None, pa.int64())))
        places = pc.indices_nonzero(is_present)
        return Decoded(column, [Failure(places[rank].as_py(), why) for rank, why in bad])

    return read


def _parse(values: Array, first: int, kind: Any, options: Any, bad: list[Failure]) -> list[Array]:
    """Parse values, the first of which is number `first`; those that can't be go to `bad`."""
    if not len(values):
        return []
    try:
        return [_parse_all(values, kind, options)]
    except pa.ArrowInvalid as problem:
        if len(values) > 1:
            middle = len(values) // 2
            return [
                *_parse(values[:middle], first, kind, options, bad),
                *_parse(values[middle:], first + middle, kind, options, bad),
            ]
        bad.append(failure(first, problem))
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
