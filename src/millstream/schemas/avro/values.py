"""Checks that bytes are one value of an Avro type, to their end, and decodes them.

`fastavro` does it fast. It follows nested values by calls in C without a bound: a linked list of
5,000 entries ends the process, and an array of nulls is as long as its producer says. Types that
allow either are checked here, without recursion and with a bound on the steps. Before such a value
is decoded, the same check bounds how deep it nests.
"""

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any, NamedTuple

from millstream.schemas.avro.text import canonical_text
from millstream.schemas.avro.types import Type

DEPTH_MAX = 100  # Of types whose values are handed to fastavro as they are.
NESTING_MAX = 500  # Of one value: 400 KB of stack in C, where a thread of macOS has 512.
WEIGHT_MAX = 10_000  # Values in a value without a union, an array or a map that says how many.
STEPS_MIN = 10_000  # Steps for a value of no bytes; each byte adds `STEPS_PER_BYTE`.
STEPS_PER_BYTE = 10
VARINT_BYTES_MAX = 10
SIZES = {"boolean": 1, "float": 4, "double": 8, "null": 0}


class _Shape(NamedTuple):
    depth: int
    weight: int
    bytes_min: int


class _Unbounded(Exception):
    """Values of the type may nest without end, or be many without bytes."""


def value_checker(declared: Type) -> Callable[[bytes], None]:
    """A function that raises `ValueError` for bytes that are no value of the type."""
    read = None if not is_bounded(declared) else _reader(declared)
    return (lambda data: check_steps(declared, data)) if read is None else read


# Any: a value of whatever type the schema declares.
def value_decoder(declared: Type) -> Callable[[bytes], Any]:
    """A function that returns the value of bytes; raises `ValueError` where there is none.

    Logical types become Python's times, decimals and UUIDs. A value that has none, such as a time
    after the year 9999, is returned as the number that was written.
    """
    read, read_plain = _reader(declared, has_logical_types=True), _reader(declared)
    if read is None or read_plain is None:
        raise ValueError("the schema cannot be read by fastavro")
    check = nesting_check(declared)

    def decode(data: bytes) -> Any:
        if check is not None:
            check(data)
        try:
            return read(data)
        except ValueError:
            return read_plain(data)

    return decode


def nesting_check(declared: Type) -> Callable[[bytes], None] | None:
    """Raises `ValueError` for bytes that fastavro cannot decode safely; None if it always can."""
    if is_bounded(declared):
        return None
    return lambda data: check_steps(declared, data, nesting_max=NESTING_MAX)


def is_bounded(declared: Type) -> bool:
    """Whether the type alone bounds how deep its values nest and how many one of them has."""
    try:
        shape = _shape(declared, {}, set())
    except (_Unbounded, RecursionError):
        return False
    return shape.depth <= DEPTH_MAX and shape.weight <= WEIGHT_MAX


# Any: as above.
def _reader(declared: Type, *, has_logical_types: bool = False) -> Callable[[bytes], Any] | None:
    """Reads values with fastavro; None for a type that it does not take."""
    from fastavro import parse_schema
    from fastavro._read import schemaless_reader
    from fastavro.schema import SchemaParseException

    source = json.loads(canonical_text(declared))
    try:
        # For a check, logical types are the reader's matter: an unknown one is no reason to refuse.
        schema = parse_schema(source if has_logical_types else _plain(source))
    except SchemaParseException:
        return None

    def read(data: bytes) -> Any:
        stream = BytesIO(data)
        try:
            value = schemaless_reader(stream, schema, None)
        except Exception as problem:  # The library raises many kinds.
            raise ValueError(str(problem) or type(problem).__name__) from None
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left behind the value")
        return value

    return read


# Any: JSON.
def _plain(schema: Any) -> Any:
    """A schema without its logical types."""
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if key != "logicalType"}
    return [_plain(item) for item in schema] if isinstance(schema, list) else schema


def _shape(declared: Type, known: dict[int, _Shape], open_types: set[int]) -> _Shape:
    key = id(declared)
    if key in open_types:
        raise _Unbounded
    if key in known:
        return known[key]
    open_types.add(key)
    match declared.kind:
        case "record" | "error":
            inner = [_shape(each.type, known, open_types) for each in declared.fields]
            shape = _Shape(
                1 + max((each.depth for each in inner), default=0),
                1 + sum(each.weight for each in inner),
                sum(each.bytes_min for each in inner),
            )
        case "union" | "array" | "map":
            inner = [_shape(each, known, open_types) for each in declared.branches]
            if declared.kind == "array" and inner[0].bytes_min == 0:
                raise _Unbounded
            depth = 1 + max((each.depth for each in inner), default=0)
            shape = _Shape(depth, 1 + max((each.weight for each in inner), default=0), 1)
        case "fixed":
            shape = _Shape(1, 1, declared.size)
        case _:
            shape = _Shape(1, 1, SIZES.get(declared.kind, 1))
    open_types.discard(key)
    known[key] = shape
    return shape


# -- step by step ----------------------------------------------------------------------------------


class _Items(NamedTuple):
    """The items of an array or a map that are still to come in a block."""

    declared: Type
    left: int


def check_steps(declared: Type, data: bytes, *, nesting_max: int | None = None) -> None:
    """Raise `ValueError` unless `data` is one value of the type, and nests no deeper than that."""
    _Steps(data, nesting_max).check(declared)


class _Steps:
    def __init__(self, data: bytes, nesting_max: int | None) -> None:
        self._data = data
        self._at = 0
        self._nesting_max = nesting_max
        self._pending: list[tuple[Type | _Items, int]] = []  # Each with how deep it lies.
        self._depth = 0

    def check(self, declared: Type) -> None:
        steps_max = STEPS_MIN + STEPS_PER_BYTE * len(self._data)
        self._pending = [(declared, 1)]
        steps = 0
        while self._pending:
            steps += 1
            if steps > steps_max or len(self._pending) > steps_max:
                raise ValueError(f"more than {steps_max} values in {len(self._data)} bytes")
            item, self._depth = self._pending.pop()
            if self._nesting_max is not None and self._depth > self._nesting_max:
                raise ValueError(f"nested deeper than {self._nesting_max} levels")
            if isinstance(item, _Items):
                self._next_item(item)
            else:
                self._read(item)
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes are left behind the value")

    def _read(self, declared: Type) -> None:
        match declared.kind:
            case "record" | "error":
                self._pending += [
                    (each.type, self._depth + 1) for each in reversed(declared.fields)
                ]
            case "union":
                branch = self._long()
                if not 0 <= branch < len(declared.branches):
                    raise ValueError(f"a union has no branch {branch}")
                self._pending.append((declared.branches[branch], self._depth + 1))
            case "array" | "map":
                self._block(declared)
            case "int" | "long":
                self._long()
            case "enum":
                symbol = self._long()
                if not 0 <= symbol < len(declared.symbols):
                    raise ValueError(f"an enum has no symbol {symbol}")
            case "string":
                self._take(self._long()).decode()
            case "bytes":
                self._take(self._long())
            case "fixed":
                self._take(declared.size)
            case kind:
                self._take(SIZES[kind])

    def _next_item(self, items: _Items) -> None:
        if items.left == 0:
            self._block(items.declared)
            return
        self._pending.append((items._replace(left=items.left - 1), self._depth))
        if items.declared.kind == "map":
            self._take(self._long()).decode()
        self._pending.append((items.declared.branches[0], self._depth + 1))

    def _block(self, declared: Type) -> None:
        count = self._long()
        if count < 0:
            count = -count
            self._long()  # The bytes of the block, for readers that skip it.
        if count:
            self._pending.append((_Items(declared, count), self._depth))

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise ValueError(f"{size} bytes are to come, {len(self._data) - self._at} are left")
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]

    def _long(self) -> int:
        value = 0
        for index in range(VARINT_BYTES_MAX):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise ValueError("a number of more than ten bytes")
