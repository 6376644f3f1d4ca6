"""Avro's resolution against Apache's own library, and its verdicts against real values."""

import json
from io import BytesIO
from typing import Any

import avro.compatibility
import avro.errors
import avro.schema
import fastavro
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millstream.schemas.avro.schema import AvroSchema
from tests.support.tiers import sized

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
# Two values, so that equal names and symbols are as likely as different ones.
names = st.sampled_from(["One", "Two"])
symbols = st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, max_size=3, unique=True)
DEFAULTS = {"int": 7, "long": 7, "string": "x", "boolean": True, "null": None}


def types(depth: int) -> st.SearchStrategy[Any]:
    primitive = st.sampled_from(PRIMITIVES)
    enum = st.builds(lambda n, s: {"type": "enum", "name": f"E{n}", "symbols": s}, names, symbols)
    fixed = st.builds(
        lambda n, s: {"type": "fixed", "name": f"F{n}", "size": s}, names, st.integers(1, 2)
    )
    if depth == 0:
        return st.one_of(primitive, enum, fixed)
    inner = types(depth - 1)
    array = st.builds(lambda item: {"type": "array", "items": item}, inner)
    mapping = st.builds(lambda item: {"type": "map", "values": item}, inner)
    union = st.lists(primitive, min_size=1, max_size=3, unique=True)
    return st.one_of(primitive, enum, fixed, array, mapping, union, records(inner))


def records(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    field = st.tuples(st.sampled_from(["a", "b", "c"]), inner, st.booleans())
    return st.builds(
        lambda n, fields: {
            "type": "record",
            "name": f"R{n}",
            "fields": [_field(*each) for each in fields],
        },
        names,
        st.lists(field, max_size=3, unique_by=lambda each: each[0]),
    )


def _field(name: str, declared: Any, has_default: bool) -> dict[str, Any]:
    field = {"name": name, "type": declared}
    if has_default and isinstance(declared, str) and declared in DEFAULTS:
        field["default"] = DEFAULTS[declared]
    return field


def is_declared_once(schema: Any) -> bool:
    try:
        avro.schema.parse(json.dumps(schema))
    except avro.errors.SchemaParseException:
        return False  # The same name twice.
    return True


@settings(max_examples=sized(100))
@given(types(2), types(2))
def test_verdicts_are_those_of_apache_avro(reader: Any, writer: Any) -> None:
    assume(is_declared_once(reader) and is_declared_once(writer))

    verdict = AvroSchema(json.dumps(reader), {}).differences(AvroSchema(json.dumps(writer), {}))

    apache = avro.compatibility.ReaderWriterCompatibilityChecker().get_compatibility(
        avro.schema.parse(json.dumps(reader)), avro.schema.parse(json.dumps(writer))
    )
    expected = apache.compatibility is avro.compatibility.SchemaCompatibilityType.compatible
    assert (not verdict) == expected, [each.text(reader="new", writer="old") for each in verdict]


@settings(max_examples=sized(100))
@given(types(2).flatmap(lambda writer: st.tuples(st.just(writer), evolved(writer))), st.data())
def test_what_a_verdict_calls_readable_is_read(pair: tuple[Any, Any], data: Any) -> None:
    writer, reader = pair
    assume(is_declared_once(reader) and is_declared_once(writer))
    assume(not AvroSchema(json.dumps(reader), {}).differences(AvroSchema(json.dumps(writer), {})))
    written = fastavro.parse_schema(writer)
    value = data.draw(values(writer))
    encoded = BytesIO()
    fastavro.schemaless_writer(encoded, written, value)

    encoded.seek(0)
    fastavro.schemaless_reader(encoded, written, fastavro.parse_schema(reader))

    assert encoded.tell() == len(encoded.getvalue())


@settings(max_examples=sized(50))
@given(types(2))
def test_the_canonical_text_means_the_same_and_is_its_own(schema: Any) -> None:
    assume(is_declared_once(schema))
    parsed = AvroSchema(json.dumps(schema), {})

    again = AvroSchema(parsed.canonical_text, {})

    assert again.canonical_text == parsed.canonical_text
    assert not again.differences(parsed)
    assert not parsed.differences(again)


def evolved(schema: Any) -> st.SearchStrategy[Any]:
    """Schemas of the next version: some of them can read the last one, some cannot."""
    match schema:
        case {"type": "record", "fields": fields}:
            added = {"name": "d", "type": "string", "default": "new"}
            kept = st.lists(st.sampled_from(fields), unique_by=id) if fields else st.just([])
            return kept.map(lambda kept: {**schema, "fields": [*kept, added]})
        case {"type": "enum", "symbols": listed}:
            return st.just({**schema, "symbols": [*listed, "D"]})
        case {"type": "array", "items": item}:
            return evolved(item).map(lambda item: {**schema, "items": item})
        case {"type": "map", "values": item}:
            return evolved(item).map(lambda item: {**schema, "values": item})
        case "int" | "long" | "float" | "bytes" | "string":
            return st.sampled_from([schema, "double", "string", "bytes", ["null", schema]])
        case _:
            return st.just(schema)


def values(schema: Any) -> st.SearchStrategy[Any]:
    match schema:
        case list():
            return st.one_of([values(branch) for branch in schema])
        case {"type": "enum"}:
            return st.sampled_from(schema["symbols"])
        case {"type": "fixed"}:
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case {"type": "array"}:
            return st.lists(values(schema["items"]), max_size=2)
        case {"type": "map"}:
            return st.dictionaries(st.text(max_size=2), values(schema["values"]), max_size=2)
        case {"type": "record"}:
            return st.fixed_dictionaries({f["name"]: values(f["type"]) for f in schema["fields"]})
        case _:
            return PRIMITIVE_VALUES[schema]


PRIMITIVE_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    # Text and bytes are promoted to each other: what is not UTF-8 cannot be read as text.
    "bytes": st.text(max_size=3).map(str.encode),
    "string": st.text(max_size=3),
}
