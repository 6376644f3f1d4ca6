"""Turns a JSON Schema into fields of Spark's, for values of a schema registry.

Pure. Takes objects with properties; of a union, null and one type. Types without a simple
counterpart are refused by the name of the field, so that no column is guessed.
"""

import json
from typing import Any

from millstream.spark.errors import InvalidOption
from millstream.spark.values.decoding import quoted

DEPTH_MAX = 50

# Any: a JSON Schema, which no type describes.
Schema = Any

_PRIMITIVES = {"string": "string", "integer": "bigint", "number": "double", "boolean": "boolean"}


def json_schema_fields(text: str) -> str:
    """The DDL of the fields of values of this schema. Raises `InvalidOption`."""
    try:
        schema = json.loads(text)
    except ValueError as problem:
        raise _refused(f"is no JSON: {problem}") from None
    root = _resolved(schema, schema, "value")
    if not isinstance(root, dict) or not root.get("properties"):
        raise _refused("is of no object with properties, and a column of structs is made of it")
    return ", ".join(
        f"{quoted(name)} {_type(part, schema, name, 0)}"
        for name, part in root["properties"].items()
    )


def _type(schema: Schema, root: Schema, place: str, depth: int) -> str:
    if depth > DEPTH_MAX:
        raise _refused(f"has no end at {place}: it is recursive, or too deep")
    schema = _resolved(schema, root, place)
    if not isinstance(schema, dict):
        raise _refused(f"does not say the type of {place}")
    for union in ("oneOf", "anyOf"):
        if union in schema:
            return _type(_only(list(schema[union]), place), root, place, depth + 1)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        kinds = _only([{"type": kind} for kind in kinds], place)["type"]
    if kinds == "object":
        return _object(schema, root, place, depth)
    if kinds == "array":
        items = schema.get("items")
        if items is None:
            raise _refused(f"does not say the items of {place}")
        return f"array<{_type(items, root, place, depth + 1)}>"
    if kinds not in _PRIMITIVES:
        raise _refused(f"does not say the type of {place}, or one that is no column: {kinds}")
    return _PRIMITIVES[kinds]


def _object(schema: Schema, root: Schema, place: str, depth: int) -> str:
    if schema.get("properties"):
        fields = ",".join(
            f"{quoted(name)}:{_type(part, root, f'{place}.{name}', depth + 1)}"
            for name, part in schema["properties"].items()
        )
        return f"struct<{fields}>"
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        return f"map<string,{_type(others, root, place, depth + 1)}>"
    raise _refused(f"has an object without properties at {place}")


def _only(parts: list[Schema], place: str) -> Schema:
    """The one type that is not null."""
    others = [part for part in parts if part != {"type": "null"}]
    if len(others) != 1:
        raise _refused(f"has several types at {place}, expected null and one type")
    return others[0]


def _resolved(schema: Schema, root: Schema, place: str) -> Schema:
    """The schema behind references into the same document."""
    for _ in range(DEPTH_MAX):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if reference is None:
            return schema
        if not reference.startswith("#/"):
            raise _refused(f"refers to {reference} at {place}, which is another document")
        schema = root
        for part in reference[2:].split("/"):
            schema = schema.get(part.replace("~1", "/").replace("~0", "~"), {})
    raise _refused(f"refers to itself at {place}")


def _refused(problem: str) -> InvalidOption:
    return InvalidOption(f"the JSON Schema {problem}; give the fields as valueSchema")
