"""JSON as values of Avro types: both encodings, defaults, bounds, and what fastavro reads back."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.avro.schema import AvroSchema
from tests.support.each import check_each

RECORD = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}


def encode(schema: Any, value: Any) -> bytes:
    return AvroSchema(json.dumps(schema), {}).value_encoder("")(json.dumps(value).encode())


def read_back(schema: Any, data: bytes) -> Any:
    stream = io.BytesIO(data)
    value = schemaless_reader(stream, parse_schema(schema), None)
    assert stream.tell() == len(data)
    return value


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


CASES: list[tuple[Any, Any, Any]] = [
    ("null", None, None),
    ("boolean", True, True),
    ("int", -5, -5),
    ("long", -(2**63), -(2**63)),
    ("double", 1, 1.0),
    ("double", "Infinity", float("inf")),
    ("string", "ä", "ä"),
    ("bytes", "\u0000ÿ", b"\x00\xff"),
    ({"type": "fixed", "name": "F", "size": 2}, "ab", b"ab"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    ({"type": "array", "items": "int"}, [1, 2, 300], [1, 2, 300]),
    ({"type": "array", "items": "int"}, [], []),
    ({"type": "map", "values": "int"}, {"a": 1}, {"a": 1}),
    (["null", "string"], "x", "x"),
    (["null", "string"], {"string": "x"}, "x"),
    (["int", "long"], 2**40, 2**40),
    (["null", RECORD], {"shop.Order": {"id": 1}}, {"id": 1, "note": None, "tags": []}),
    (RECORD, {"id": 7, "note": "n"}, {"id": 7, "note": "n", "tags": []}),
    (logical("int", "date"), "2026-11-17", date(2026, 11, 17)),
    (
        logical("long", "timestamp-millis"),
        "2026-11-17T10:00:00.250Z",
        datetime(2026, 11, 17, 10, 0, 0, 250_000, tzinfo=UTC),
    ),
    (
        logical("long", "timestamp-micros"),
        "1969-12-31T23:59:59.999999+00:00",
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ),
    (logical("long", "timestamp-millis"), 0, datetime(1970, 1, 1, tzinfo=UTC)),
    (logical("bytes", "decimal", precision=6, scale=2), "-12.50", Decimal("-12.50")),
    (logical("bytes", "decimal", precision=6, scale=2), 128, Decimal("128.00")),
]


def test_every_type_is_read_back_by_fastavro() -> None:
    def check(case: tuple[Any, Any, Any]) -> None:
        schema, value, expected = case
        assert read_back(schema, encode(schema, value)) == expected

    check_each(CASES, check)


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        (RECORD, {"id": "x"}, r"\$\.id: expected a number"),
        (RECORD, {}, "field id is missing"),
        (RECORD, {"id": 1, "size": 2}, "no field 'size'"),
        (RECORD, {"id": 1, "tags": [1]}, r"\$\.tags\[0\]: expected string, not 1"),
        (RECORD, {"id": True}, "expected long, not true"),
        ("int", 2**31, "does not fit int"),
        ("int", 1.5, "expected int"),
        ("float", 1e300, "too large for float"),
        ("bytes", "€", "U\\+00FF"),
        (["null", "int"], "x", "expected a number"),
        (["null", "boolean"], 1, "expected one of null, boolean, not 1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "no symbol of E"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", "3 bytes, expected 2"),
        (logical("int", "date"), "yesterday", "is no date"),
        (logical("bytes", "decimal", precision=4, scale=1), "1.25", "more than 1 digits"),
    ],
)
def test_another_value_is_refused_with_its_place(schema: Any, value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        encode(schema, value)


def test_a_message_of_avro_is_refused() -> None:
    with pytest.raises(ValueError, match="only a Protobuf schema"):
        AvroSchema('"int"', {}).value_encoder("Order")


@pytest.mark.parametrize(("depth", "problem"), [(300, "nested too deep"), (5_000, "not JSON")])
def test_deep_values_are_refused(depth: int, problem: str) -> None:
    nested = {
        "type": "record",
        "name": "N",
        "fields": [
            {"name": "next", "type": ["null", "N"]},
        ],
    }
    text = b'{"next":' * depth + b"null" + b"}" * depth
    with pytest.raises(ValueError, match=problem):
        AvroSchema(json.dumps(nested), {}).value_encoder("")(text)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.dictionaries(st.text(), st.floats(width=64)))
def test_any_value_survives(numbers: list[int], figures: dict[str, float]) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "numbers", "type": {"type": "array", "items": "long"}},
            {"name": "figures", "type": {"type": "map", "values": "double"}},
        ],
    }
    finite = {name: value for name, value in figures.items() if value == value}
    finite = {name: value for name, value in finite.items() if abs(value) != float("inf")}

    data = encode(schema, {"numbers": numbers, "figures": finite})

    assert read_back(schema, data) == {"numbers": numbers, "figures": finite}
