"""Decodes Avro values: a schema becomes a type of Spark's, values of it become structs.

Pure, apart from the library `fastavro`. Types are those that Spark's own `from_avro` gives. Types
without a simple counterpart are refused by the name of the field: unions of several types, and
recursive records. Bytes behind the record make a value bad, because bytes of another schema often
read as a shorter record of this one.
"""

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from millstream.spark.errors import InvalidOption, LibraryMissing
from millstream.spark.values.decoding import Decode, struct
from millstream.spark.values.framing import FRAME, MAGIC, unframed

# Any: an Avro schema as JSON, which no type describes.
Schema = Any

_PRIMITIVES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
# Unions of two numbers of which one holds the other.
_WIDER = {
    frozenset({"int", "bigint"}): "bigint",
    frozenset({"float", "double"}): "double",
}
_DECIMAL_DIGITS_MAX = 38  # Of Spark.
WRITERS_MAX = 1_000  # Schemas that one task keeps.


def avro_type(text: str) -> str:
    """The DDL of what values of the schema are. Raises `InvalidOption`."""
    schema, named = _parsed(text)
    if not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        raise InvalidOption("valueSchema is no Avro record, and a column of structs is made of it")
    return _Types(named).of(schema, schema["name"], ())


def avro_framed_decode(text: str, schema_of: Callable[[int], str]) -> Decode:
    """Decode values behind the id of the schema that they were written with, as this schema.

    `schema_of` gives the text of an id. It raises `LookupError` for an unknown one, which makes the
    value bad; its other errors are passed on.
    """
    import fastavro

    reader, _ = _parsed(text, keeps_defaults=True)
    writers: dict[int, Schema] = {}

    def decode(value: bytes) -> dict[str, object]:
        schema_id, content = unframed(value)
        if schema_id not in writers:
            if len(writers) >= WRITERS_MAX:
                writers.clear()
            writers[schema_id] = _writer(schema_of(schema_id), schema_id)
        data = BytesIO(content)
        record = fastavro.schemaless_reader(data, writers[schema_id], reader)
        if data.tell() != len(content):
            raise ValueError(f"{len(content) - data.tell()} bytes are left behind the record")
        assert isinstance(record, dict)  # As the schema is one of a record.
        return record

    return decode


def _writer(text: str, schema_id: int) -> Schema:
    """Raises `ValueError` for a recursive schema: fastavro follows values of it without a bound."""
    try:
        schema, named = _parsed(text, keeps_defaults=True)
    except InvalidOption as problem:
        raise ValueError(f"schema {schema_id}: {problem}") from None
    if _is_recursive(schema, named, ()):
        raise ValueError(f"schema {schema_id} is recursive, which is not read")
    return schema


def _is_recursive(schema: Schema, named: Mapping[str, Schema], inside: tuple[str, ...]) -> bool:
    if isinstance(schema, list):
        return any(_is_recursive(part, named, inside) for part in schema)
    if isinstance(schema, str):
        if schema in inside:
            return True
        return schema in named and _is_recursive(named[schema], named, inside)
    within = (*inside, schema["name"]) if "name" in schema else inside
    fields = [field["type"] for field in schema.get("fields", ())]
    parts = [*fields, *(schema[key] for key in ("items", "values") if key in schema)]
    kind = schema["type"]
    if isinstance(kind, dict | list):
        parts.append(kind)
    return any(_is_recursive(part, named, within) for part in parts)


def inlined(text: str, references: Mapping[str, str]) -> str:
    """The schema with the schemas that it refers to by name in place of their first use."""
    known = {name: json.loads(other) for name, other in references.items()}

    def walk(schema: Schema, namespace: str) -> Schema:
        if isinstance(schema, list):
            return [walk(part, namespace) for part in schema]
        if isinstance(schema, str):
            for name in (schema, f"{namespace}.{schema}"):
                if name in known:
                    return walk(known.pop(name), namespace)  # Names stand for it from now on.
            return schema
        if not isinstance(schema, dict):
            return schema
        own = str(schema.get("namespace", namespace))
        walked = dict(schema)
        for key in ("type", "items", "values"):
            if key in walked:
                walked[key] = walk(walked[key], own)
        if "fields" in walked:
            walked["fields"] = [
                {**field, "type": walk(field["type"], own)} for field in walked["fields"]
            ]
        return walked

    return json.dumps(walk(json.loads(text), ""))


def avro_decode(text: str) -> Decode:
    import fastavro

    schema, _ = _parsed(text)

    def decode(value: bytes) -> dict[str, object]:
        data = BytesIO(value)
        try:
            record = fastavro.schemaless_reader(data, schema, None)
            if data.tell() != len(value):
                raise ValueError(f"{len(value) - data.tell()} bytes are left behind the record")
        except Exception as problem:
            if len(value) > FRAME.size and value[0] == MAGIC:
                hint = (
                    "; it may have the id of a schema before it: name the registry with "
                    "schemaRegistryUrl"
                )
                raise ValueError(f"{problem!r}{hint}") from None
            raise
        assert isinstance(record, dict)  # As the schema is one of a record.
        return record

    return decode


def _parsed(text: str, *, keeps_defaults: bool = False) -> tuple[Schema, dict[str, Schema]]:
    try:
        import fastavro
    except ModuleNotFoundError:
        raise LibraryMissing("valueFormat avro", "fastavro", "avro") from None
    named: dict[str, Schema] = {}
    try:
        schema = json.loads(text)
        plain = _plain(schema, keeps_defaults=keeps_defaults)
        return fastavro.parse_schema(plain, named_schemas=named), named
    except fastavro.schema.UnknownType as problem:
        raise InvalidOption(f"valueSchema is no Avro schema: unknown type {problem}") from None
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as problem:
        raise InvalidOption(f"valueSchema is no Avro schema: {problem}") from None


def _plain(schema: Schema, *, keeps_defaults: bool) -> Schema:
    """The schema without the logical types that Spark has no type for: those stay numbers."""
    if isinstance(schema, list):
        return [_plain(part, keeps_defaults=keeps_defaults) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        name: part if name == "default" else _plain(part, keeps_defaults=keeps_defaults)
        for name, part in schema.items()
        if keeps_defaults or name != "default"
    }
    kind, logical = plain.get("type"), plain.get("logicalType")
    if logical != "decimal" and isinstance(kind, str) and (kind, logical) not in _LOGICAL:
        plain.pop("logicalType", None)
    return plain


class _Types:
    """Types of Spark's for those of Avro, where records may be named before they are used."""

    def __init__(self, named: Mapping[str, Schema]) -> None:
        self._named = named

    def of(self, schema: Schema, place: str, inside: tuple[str, ...]) -> str:
        if isinstance(schema, list):
            return self._union(schema, place, inside)
        if isinstance(schema, str):
            if schema in self._named:
                return self.of(self._named[schema], place, inside)
            return self._primitive({"type": schema}, place)
        match schema["type"]:
            case "record" | "error":
                return self._record(schema, place, inside)
            case "array":
                return f"array<{self.of(schema['items'], place, inside)}>"
            case "map":
                return f"map<string,{self.of(schema['values'], place, inside)}>"
            case dict() | list():
                return self.of(schema["type"], place, inside)
            case _:
                return self._primitive(schema, place)

    def _record(self, schema: Schema, place: str, inside: tuple[str, ...]) -> str:
        name = schema["name"]
        if name in inside:
            raise InvalidOption(f"valueSchema: {place} is a {name} in a {name}, which has no end")
        if not schema["fields"]:
            raise InvalidOption(f"valueSchema: {place} is a record without fields")
        return struct(
            [
                (field["name"], self.of(field["type"], f"{place}.{field['name']}", (*inside, name)))
                for field in schema["fields"]
            ]
        )

    def _union(self, choices: list[Schema], place: str, inside: tuple[str, ...]) -> str:
        """Null and one type: that type, as every column may be null."""
        kinds = {self.of(choice, place, inside) for choice in choices if choice != "null"}
        if len(kinds) == 1:
            return kinds.pop()
        wider = _WIDER.get(frozenset(kinds))
        if wider is None:
            raise InvalidOption(
                f"valueSchema: {place} is a union of {', '.join(sorted(kinds)) or 'nothing'}, "
                "expected null and one type"
            )
        return wider

    def _primitive(self, schema: Schema, place: str) -> str:
        kind, logical = schema["type"], schema.get("logicalType")
        if kind not in _PRIMITIVES or (kind == "fixed" and schema["size"] < 1):
            raise InvalidOption(f"valueSchema: {place} is {kind}, which is no column")
        if logical == "decimal":
            precision, scale = schema["precision"], schema.get("scale", 0)
            if precision > _DECIMAL_DIGITS_MAX:
                raise InvalidOption(
                    f"valueSchema: {place} has {precision} digits, Spark has at most "
                    f"{_DECIMAL_DIGITS_MAX}"
                )
            return f"decimal({precision},{scale})"
        return _LOGICAL.get((kind, logical), _PRIMITIVES[kind])
