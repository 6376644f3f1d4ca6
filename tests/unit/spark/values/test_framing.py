"""Values that clients of a schema registry wrote."""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.errors import InvalidOption, RegistryFailed
from millstream.spark.values.avro import avro_framed_decode, avro_type, inlined
from millstream.spark.values.decoding import one_by_one
from millstream.spark.values.formats import json_reader
from millstream.spark.values.framing import (
    FRAME,
    framed_message,
    framed_reader,
    message_path,
    unframed,
)
from millstream.spark.values.json_schema import json_schema_fields

OLD = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
NEW = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": "string", "default": "none"},
    ],
}
LIST = {
    "type": "record",
    "name": "L",
    "fields": [{"name": "next", "type": ["null", "L"], "default": None}],
}
SCHEMAS = {1: json.dumps(OLD), 2: json.dumps(NEW), 3: json.dumps(LIST)}


def framed(number: int, data: bytes) -> bytes:
    return FRAME.pack(0, number) + data


def spelt(schema: Any, row: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def schema_of(number: int) -> str:
    if number == 99:
        raise RegistryFailed("no schema registry answers")
    return SCHEMAS[number]


def test_values_of_older_schemas_are_read_as_the_schema_of_the_query() -> None:
    decode = avro_framed_decode(json.dumps(NEW), schema_of)

    assert decode(framed(1, spelt(OLD, {"id": 7}))) == {"id": 7, "note": "none"}
    assert decode(framed(2, spelt(NEW, {"id": 8, "note": "x"}))) == {"id": 8, "note": "x"}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"\x02", "does not begin with the id of a schema"),
        (framed(7, b"\x02"), "7"),
        (framed(3, b"\x00"), "schema 3 is recursive"),
        (framed(1, b"\x02\x02"), "1 bytes are left behind the record"),
    ],
)
def test_a_value_that_no_schema_reads_is_bad_with_the_reason(value: bytes, why: str) -> None:
    kind = pa.struct([("id", pa.int64()), ("note", pa.string())])
    read = one_by_one(avro_framed_decode(json.dumps(NEW), schema_of), kind)

    column, failures = read(pa.array([framed(1, b"\x02"), value, None], pa.binary()))

    assert column.to_pylist() == [{"id": 1, "note": "none"}, None, None]
    assert [failure.at for failure in failures] == [1]
    assert why in failures[0].why


def test_a_registry_that_is_gone_makes_no_value_bad() -> None:
    read = one_by_one(
        avro_framed_decode(json.dumps(NEW), schema_of), pa.struct([("id", pa.int64())])
    )

    with pytest.raises(RegistryFailed):
        read(pa.array([framed(99, b"\x02")], pa.binary()))


def test_references_stand_in_place_of_their_first_use() -> None:
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "to", "type": "Address"},
            {"name": "via", "type": ["null", "shop.Address"]},
        ],
    }
    address = {
        "type": "record",
        "name": "Address",
        "namespace": "shop",
        "fields": [{"name": "city", "type": "string"}],
    }

    text = inlined(json.dumps(order), {"shop.Address": json.dumps(address)})

    assert avro_type(text) == "struct<`to`:struct<`city`:string>,`via`:struct<`city`:string>>"


def test_json_behind_frames_keeps_good_and_bad_apart() -> None:
    read = framed_reader(json_reader(pa.struct([("id", pa.int64())])))

    column, failures = read(
        pa.array([framed(1, b'{"id": 1}'), b'{"id": 2}', framed(1, b"?"), None], pa.binary())
    )

    assert column.to_pylist() == [{"id": 1}, None, None, None]
    assert [failure.at for failure in failures] == [1, 2]


@given(st.lists(st.integers(0, 200), min_size=1, max_size=5), st.binary(max_size=5))
def test_the_place_of_a_message_is_read_as_clients_write_it(path: list[int], tail: bytes) -> None:
    def varint(number: int) -> bytes:
        low, high = number & 0x7F, number >> 7
        return bytes([low | 0x80]) + varint(high) if high else bytes([low])

    numbers = [len(path), *path]
    data = b"".join(varint(number << 1) for number in numbers)

    assert message_path(data + tail) == (path, len(data))
    assert message_path(b"\0" + tail) == ([0], 1)


def test_another_message_of_the_file_is_bad() -> None:
    decode = framed_message(lambda data: {"data": data}, [0])

    assert decode(framed(1, b"\0abc")) == {"data": b"abc"}
    with pytest.raises(ValueError, match=r"it is message \[1\] of its file"):
        decode(framed(1, b"\x02\x02abc"))
    with pytest.raises(ValueError, match="in the middle of a number"):
        decode(framed(1, b"\x80"))


def test_a_frame_has_an_id_and_the_bytes() -> None:
    assert unframed(b"\0\0\0\1\2abc") == (258, b"abc")


def test_a_json_schema_becomes_fields() -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "note": {"type": ["null", "string"]},
            "to": {"$ref": "#/definitions/Address"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "weight": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "definitions": {"Address": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }

    assert json_schema_fields(json.dumps(schema)) == (
        "`id` bigint, `note` string, `to` struct<`city`:string>, `tags` array<string>, "
        "`weight` double, `counts` map<string,bigint>"
    )


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string"}, "is of no object with properties"),
        ({"properties": {"a": {}}}, "does not say the type of a"),
        ({"properties": {"a": {"type": ["string", "integer"]}}}, "several types at a"),
        ({"properties": {"a": {"type": "object"}}}, "an object without properties at a"),
        ({"properties": {"a": {"$ref": "#"}}}, "which is another document"),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, "refers to itself at a"),
        (
            {"properties": {"a": {"type": "array", "items": {"$ref": "#/properties/a"}}}},
            "has no end at a",
        ),
    ],
)
def test_a_json_schema_without_columns_is_refused(schema: object, why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        json_schema_fields(json.dumps(schema))
