"""Avro values: the types of a schema, and what is in bytes of it."""

import builtins
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from millstream.spark.errors import InvalidOption, LibraryMissing
from millstream.spark.values.avro import avro_decode, avro_type
from millstream.spark.values.decoding import one_by_one

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "order", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {
            "name": "to",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [{"name": "city", "type": "string"}],
            },
        },
        {"name": "via", "type": ["null", "Address"]},
        {"name": "weight", "type": ["float", "double"]},
        {"name": "daytime", "type": {"type": "int", "logicalType": "time-millis"}},
    ],
}
ROW = {
    "id": 7,
    "note": None,
    "order": "B",
    "tags": ["x", "y"],
    "counts": {"a": 1},
    "at": datetime(2026, 3, 1, 12, 0, 0, 5000, tzinfo=UTC),
    "day": date(2026, 3, 1),
    "price": Decimal("12.50"),
    "to": {"city": "Ulm"},
    "via": {"city": "Rom"},
    "weight": 1.5,
    "daytime": 5,
}


def spelt(schema: Any, row: object) -> bytes:
    plain = json.loads(json.dumps(schema).replace('"logicalType": "time-millis"', '"x": 1'))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), row)
    return out.getvalue()


def test_every_type_of_avro_has_one_of_spark() -> None:
    assert avro_type(json.dumps(ORDER)) == (
        "struct<`id`:bigint,`note`:string,`order`:string,`tags`:array<string>,"
        "`counts`:map<string,int>,`at`:timestamp,`day`:date,`price`:decimal(9,2),"
        "`to`:struct<`city`:string>,`via`:struct<`city`:string>,`weight`:double,`daytime`:int>"
    )


def test_values_are_what_was_written() -> None:
    assert avro_decode(json.dumps(ORDER))(spelt(ORDER, ROW)) == ROW


def test_a_value_that_is_cut_or_too_long_is_bad_and_no_other_is() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}]}
    good = spelt(schema, {"s": "miller"})
    read = one_by_one(avro_decode(json.dumps(schema)), pa.struct([("s", pa.string())]))

    records = read(pa.array([good, good[:-1], None, good + b"x", good, b""], pa.binary()))

    assert records.column.to_pylist() == [{"s": "miller"}, None, None, None, {"s": "miller"}, None]
    assert [failure.at for failure in records.failures] == [1, 3, 5]
    assert "1 bytes are left behind the record" in records.failures[1].why


def test_a_value_with_the_number_of_a_schema_before_it_is_told() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}]}
    framed = b"\0\0\0\0\x07" + spelt(schema, {"s": "miller"})

    with pytest.raises(ValueError, match="name the registry with schemaRegistryUrl"):
        avro_decode(json.dumps(schema))(framed)


def record(kind: object) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]})


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("{", "valueSchema is no Avro schema"),
        ('{"type": "record", "name": "R"}', "R is a record without fields"),
        ('{"type": "record", "fields": []}', "valueSchema is no Avro schema"),
        (record("nothing"), "unknown type nothing"),
        ('{"type": "array", "items": "int"}', "valueSchema is no Avro record"),
        (record(["null", "int", "string"]), "R.f is a union of int, string, expected null and one"),
        (record("null"), "R.f is null, which is no column"),
        (record(["null"]), "R.f is a union of nothing"),
        (record(["null", "R"]), "R.f is a R in a R, which has no end"),
        (record({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}), "R.f"),
        (
            record({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}),
            "R.f has 50 digits, Spark has at most 38",
        ),
    ],
)
def test_what_has_no_type_is_named(schema: str, sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        avro_type(schema)


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    known = builtins.__import__

    def missing(name: str, *names: Any) -> object:
        if name == "fastavro":
            raise ModuleNotFoundError(name)
        return known(name, *names)

    monkeypatch.setattr(builtins, "__import__", missing)

    with pytest.raises(LibraryMissing, match=r"pip install 'millstream\[avro\]'"):
        avro_type(json.dumps(ORDER))
