"""Avro's types as values, and the parser that makes them from JSON.

Owns names and namespaces, redefinitions and the bounds of a schema. Properties that Avro does not
know are kept in their order. Defaults are kept as they are: a registry does not check them against
their types, and texts from elsewhere must be taken as they were.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.schemas.definition import InvalidSchema, Nodes

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
ORDERS = ("ascending", "descending", "ignore")
UNSET: Any = object()  # A default that is absent: null is one that is there.

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SCHEMA_KEYS = {
    "record": {"type", "name", "namespace", "doc", "fields", "aliases"},
    "error": {"type", "name", "namespace", "doc", "fields", "aliases"},
    "enum": {"type", "name", "namespace", "doc", "symbols", "default", "aliases"},
    "fixed": {"type", "name", "namespace", "doc", "size", "aliases"},
    "array": {"type", "items"},
    "map": {"type", "values"},
}
_FIELD_KEYS = {"name", "type", "doc", "default", "order", "aliases"}

# JSON of any shape: properties and defaults are the user's own.
Json = Any


@dataclass(slots=True, eq=False)
class Type:
    """Any type of Avro. A named one is one object wherever it is used: types may be cyclic."""

    kind: str  # A primitive's name, or record, error, enum, fixed, array, map, union.
    properties: dict[str, Json] = field(default_factory=dict)
    name: str = ""
    namespace: str = ""
    doc: str | None = None
    aliases: tuple[str, ...] = ()  # Full names.
    fields: "tuple[Field, ...]" = ()
    symbols: tuple[str, ...] = ()
    enum_default: str | None = None
    size: int = 0
    branches: "tuple[Type, ...]" = ()  # Of a union; the items of an array, the values of a map.

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    @property
    def java_kind(self) -> str:
        """As `Schema.Type` of Avro's Java library prints it."""
        return "RECORD" if self.kind == "error" else self.kind.upper()


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    name: str
    type: Type
    doc: str | None
    default: Json
    order: str
    aliases: tuple[str, ...]
    properties: dict[str, Json]


def parse(text: str, references: Mapping[str, str]) -> tuple[Type, frozenset[str]]:
    """The type of a text, and the full names that its references define.

    Raises `InvalidSchema`. References stand in the order in which they build on each other.
    """
    parser = _Parser()
    for name, referenced in references.items():
        parser.parse(_load(referenced, f"reference {name}"))
    known = frozenset(parser.names)
    return parser.parse(_load(text, "")), known


def _load(text: str, place: str) -> Json:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as problem:
        raise InvalidSchema(f"not JSON: {problem}", place) from None


def _refuse_constant(text: str) -> Json:
    raise ValueError(f"{text} is no JSON value")


class _Parser:
    def __init__(self) -> None:
        self.names: dict[str, Type] = {}
        self._nodes = Nodes()

    def parse(self, source: Json) -> Type:
        return self._type(source, "", "", 0)

    def _type(self, source: Json, namespace: str, place: str, depth: int) -> Type:
        self._nodes.enter(depth, place)
        match source:
            case str():
                return self._by_name(source, namespace, place)
            case list():
                return self._union(source, namespace, place, depth)
            case dict():
                return self._declared(source, namespace, place, depth)
            case _:
                raise InvalidSchema(f"{json.dumps(source)} is no Avro type", place or "/")

    def _by_name(self, name: str, namespace: str, place: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        # Avro also finds a simple name of no namespace.
        declared = self.names.get(full) or self.names.get(name)
        if declared is None:
            raise InvalidSchema(f"undefined name: {name!r}", place or "/")
        return declared

    def _union(self, source: list[Json], namespace: str, place: str, depth: int) -> Type:
        branches = tuple(
            self._type(branch, namespace, f"{place}/{index}", depth + 1)
            for index, branch in enumerate(source)
        )
        seen: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise InvalidSchema("a union directly inside a union", place or "/")
            name = branch.full_name or branch.kind
            if name in seen:
                raise InvalidSchema(f"duplicate in union: {name}", place or "/")
            seen.add(name)
        return Type("union", branches=branches)

    def _declared(self, source: dict[str, Json], namespace: str, place: str, depth: int) -> Type:
        kind = source.get("type")
        if kind is None:
            raise InvalidSchema('no "type"', place or "/")
        if not isinstance(kind, str):
            # {"type": {"type": …}}: the outer object says nothing.
            return self._type(kind, namespace, f"{place}/type", depth + 1)
        if kind in PRIMITIVES:
            return Type(kind, properties=_others(source, {"type"}))
        if kind in {"array", "map"}:
            key = "items" if kind == "array" else "values"
            if key not in source:
                raise InvalidSchema(f'{kind} without "{key}"', place or "/")
            inner = self._type(source[key], namespace, f"{place}/{key}", depth + 1)
            return Type(kind, _others(source, _SCHEMA_KEYS[kind]), branches=(inner,))
        if kind in _SCHEMA_KEYS:
            return self._named(kind, source, namespace, place, depth)
        return self._by_name(kind, namespace, place)

    def _named(
        self, kind: str, source: dict[str, Json], enclosing: str, place: str, depth: int
    ) -> Type:
        name, namespace = _full_name(source, enclosing, place)
        declared = Type(
            kind,
            _others(source, _SCHEMA_KEYS[kind]),
            name,
            namespace,
            doc=_text(source, "doc", place),
            aliases=_aliases(source, namespace, place),
        )
        if declared.full_name in self.names:
            raise InvalidSchema(f"cannot redefine {declared.full_name}", place or "/")
        self.names[declared.full_name] = declared
        if kind == "enum":
            _fill_enum(declared, source, place)
        elif kind == "fixed":
            size = source.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise InvalidSchema(f"invalid size of fixed: {json.dumps(size)}", place or "/")
            declared.size = size
        else:
            declared.fields = self._fields(source, namespace, place, depth)
        return declared

    def _fields(
        self, source: dict[str, Json], namespace: str, place: str, depth: int
    ) -> tuple[Field, ...]:
        listed = source.get("fields")
        if not isinstance(listed, list):
            raise InvalidSchema("record without fields", place or "/")
        fields: dict[str, Field] = {}
        for index, item in enumerate(listed):
            at = f"{place}/fields/{index}"
            if not isinstance(item, dict) or "type" not in item:
                raise InvalidSchema("a field is an object with name and type", at)
            name = item.get("name")
            if not isinstance(name, str) or not _NAME.match(name):
                raise InvalidSchema(f"illegal name of a field: {json.dumps(name)}", at)
            if name in fields:
                raise InvalidSchema(f"duplicate field {name}", at)
            order = item.get("order", ORDERS[0])
            if not isinstance(order, str) or order.lower() not in ORDERS:
                raise InvalidSchema(f"unknown order {json.dumps(order)}", at)
            fields[name] = Field(
                name=name,
                type=self._type(item["type"], namespace, f"{at}/type", depth + 1),
                doc=_text(item, "doc", at),
                default=item.get("default", UNSET),
                order=order.lower(),
                aliases=_strings(item, "aliases", at),
                properties=_others(item, _FIELD_KEYS),
            )
        return tuple(fields.values())


def _full_name(source: dict[str, Json], enclosing: str, place: str) -> tuple[str, str]:
    name = source.get("name")
    if not isinstance(name, str):
        raise InvalidSchema("no name in schema", place or "/")
    namespace = source.get("namespace", enclosing)
    if not isinstance(namespace, str):
        raise InvalidSchema("namespace is no text", place or "/")
    if "." in name:
        namespace, _, name = name.rpartition(".")
    if name in PRIMITIVES and not namespace:
        raise InvalidSchema(f"schemas may not be named after primitives: {name}", place or "/")
    for part in [name, *(namespace.split(".") if namespace else [])]:
        if not _NAME.match(part):
            raise InvalidSchema(f"illegal name: {part!r}", place or "/")
    return name, namespace


def _fill_enum(declared: Type, source: dict[str, Json], place: str) -> None:
    if "symbols" not in source:
        raise InvalidSchema("enum without symbols", place or "/")
    symbols = _strings(source, "symbols", place)
    for symbol in symbols:
        if not _NAME.match(symbol):
            raise InvalidSchema(f"illegal symbol: {symbol!r}", place or "/")
    if len(set(symbols)) != len(symbols):
        raise InvalidSchema("duplicate enum symbol", place or "/")
    default = _text(source, "default", place)
    if default is not None and default not in symbols:
        raise InvalidSchema(f"the default {default!r} is not in the symbols", place or "/")
    declared.symbols = symbols
    declared.enum_default = default


def _aliases(source: dict[str, Json], namespace: str, place: str) -> tuple[str, ...]:
    return tuple(
        alias if "." in alias or not namespace else f"{namespace}.{alias}"
        for alias in _strings(source, "aliases", place)
    )


def _strings(source: dict[str, Json], key: str, place: str) -> tuple[str, ...]:
    values = source.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InvalidSchema(f'"{key}" is no list of texts', place or "/")
    return tuple(values)


def _text(source: dict[str, Json], key: str, place: str) -> str | None:
    value = source.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidSchema(f'"{key}" is no text', place or "/")
    return value


def _others(source: dict[str, Json], known: set[str]) -> dict[str, Json]:
    return {key: value for key, value in source.items() if key not in known}
