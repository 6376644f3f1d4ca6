"""Encodes JSON as a value of an Avro type.

Takes Avro's JSON encoding, in which a value of a union stands under the name of its branch
(`{"string": "x"}`) and bytes are a text of characters up to 255. It also takes plain JSON: a value
of a union as it is goes to the first branch that it fits, and times, decimals and dates may be
texts, as records are shown.

Invariant: work is bounded by the length of the text, whatever branches are tried.
"""

import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from millstream.instants import days_of, microseconds_of
from millstream.schemas.avro.types import UNSET, Type

DEPTH_MAX = 200
STEPS_MIN = 10_000
STEPS_PER_BYTE = 10
_BOUNDS = {"int": 2**31, "long": 2**63}
_REALS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_REAL_WORDS = {"NaN", "Infinity", "-Infinity"}
_DECIMAL = re.compile(r"-?\d{1,1000}(\.\d{1,1000})?")
_UNITS = {"millis": 1_000, "micros": 1}  # Microseconds.
_FITS: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int, str),
    "long": (int, str),
    "float": (int, float, str),
    "double": (int, float, str),
    "bytes": (str, int, float),
    "fixed": (str, int, float),
    "string": (str,),
    "enum": (str,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
    "error": (dict,),
}

# JSON of any shape: the schema says which one is meant.
Json = Any


def value_encoder(declared: Type) -> Callable[[bytes], bytes]:
    """A function from JSON to the bytes of a value; raises `ValueError` with the place."""

    def encode(text: bytes) -> bytes:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError) as problem:
            raise ValueError(f"not JSON: {problem}") from None
        steps = _Encoding(STEPS_MIN + STEPS_PER_BYTE * len(text))
        try:
            steps.write(declared, value, "$", 0)
        except RecursionError:
            raise ValueError("nested too deep") from None
        return bytes(steps.out)

    return encode


class _Encoding:
    def __init__(self, steps_max: int) -> None:
        self.out = bytearray()
        self._steps_left = steps_max

    def write(self, declared: Type, value: Json, place: str, depth: int) -> None:
        self._steps_left -= 1
        if self._steps_left < 0 or depth > DEPTH_MAX:
            raise ValueError(f"{place}: nested too deep, or too many branches of unions to try")
        kind = declared.kind
        if kind == "union":
            self._union(declared, value, place, depth)
            return
        if not _fits(kind, value):
            raise ValueError(f"{place}: expected {_word(declared)}, not {_shown(value)}")
        match kind:
            case "record" | "error":
                self._record(declared, value, place, depth)
            case "array":
                if value:
                    self._long(len(value))
                for index, item in enumerate(value):
                    self.write(declared.branches[0], item, f"{place}[{index}]", depth + 1)
                self.out.append(0)  # No further block.
            case "map":
                if value:
                    self._long(len(value))
                for name, item in value.items():
                    self._bytes(name.encode())
                    self.write(declared.branches[0], item, f"{place}.{name[:60]}", depth + 1)
                self.out.append(0)  # No further block.
            case _:
                self._scalar(declared, value, place)

    def _scalar(self, declared: Type, value: Json, place: str) -> None:
        match declared.kind:
            case "null":
                pass
            case "boolean":
                self.out.append(value)
            case "int" | "long":
                self._long(_integer(declared, value, place))
            case "float" | "double":
                self.out += _real(declared, value, place)
            case "bytes":
                self._bytes(_binary(declared, value, place))
            case "string":
                self._bytes(value.encode())
            case "enum":
                if value not in declared.symbols:
                    raise ValueError(f"{place}: {_shown(value)} is no symbol of {_word(declared)}")
                self._long(declared.symbols.index(value))
            case "fixed":
                data = _binary(declared, value, place)
                if len(data) != declared.size:
                    raise ValueError(f"{place}: {len(data)} bytes, expected {declared.size}")
                self.out += data

    def _record(self, declared: Type, value: dict[str, Json], place: str, depth: int) -> None:
        names = {each.name for each in declared.fields}
        unknown = next((name for name in value if name not in names), None)
        if unknown is not None:
            raise ValueError(f"{place}: {_word(declared)} has no field {unknown[:100]!r}")
        for each in declared.fields:
            inner = value.get(each.name, each.default)
            if inner is UNSET:
                raise ValueError(f"{place}: the field {each.name} is missing, and has no default")
            self.write(each.type, inner, f"{place}.{each.name}", depth + 1)

    def _union(self, declared: Type, value: Json, place: str, depth: int) -> None:
        tagged = _tagged(declared, value)
        if tagged is not None:
            index, inner = tagged
            self._long(index)
            self.write(declared.branches[index], inner, place, depth + 1)
            return
        start, problems = len(self.out), []
        for index, branch in enumerate(declared.branches):
            if not _fits(branch.kind, value):
                continue
            try:
                self._long(index)
                self.write(branch, value, place, depth + 1)
                return
            except ValueError as problem:
                del self.out[start:]
                problems.append(str(problem))
        if problems:
            raise ValueError(problems[0])
        words = ", ".join(map(_word, declared.branches))
        raise ValueError(f"{place}: expected one of {words}, not {_shown(value)}")

    def _bytes(self, data: bytes) -> None:
        self._long(len(data))
        self.out += data

    def _long(self, value: int) -> None:
        value = (value << 1) ^ (value >> 63)
        while value > 0x7F:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)


def _fits(kind: str, value: Json) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _FITS[kind])


def _tagged(declared: Type, value: Json) -> tuple[int, Json] | None:
    """The branch that an object of one member names, and its value."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    [(name, inner)] = value.items()
    for index, branch in enumerate(declared.branches):
        if name == (branch.full_name or branch.kind) and branch.kind != "null":
            return index, inner
    return None


def _real(declared: Type, value: float | str, place: str) -> bytes:
    if isinstance(value, str) and value not in _REAL_WORDS:
        raise ValueError(f"{place}: expected a number, not {_shown(value)}")
    try:
        return _REALS[declared.kind].pack(float(value))
    except OverflowError:
        raise ValueError(f"{place}: {value} is too large for {declared.kind}") from None


def _integer(declared: Type, value: int | str, place: str) -> int:
    if isinstance(value, str):
        value = _instant(declared.properties.get("logicalType", ""), value, place)
    bound = _BOUNDS[declared.kind]
    if not -bound <= value < bound:
        raise ValueError(f"{place}: {value} does not fit {declared.kind}")
    return value


def _instant(logical: str, text: str, place: str) -> int:
    """Dates and times as texts; `ValueError` where the type is a plain number."""
    kind, _, unit = logical.partition("-")
    if logical == "date":
        number = days_of(text)
    elif kind == "timestamp" and unit in _UNITS:
        micros = microseconds_of(text)
        number = None if micros is None else micros // _UNITS[unit]
    else:
        raise ValueError(f"{place}: expected a number, not {_shown(text)}")
    if number is None:
        raise ValueError(f"{place}: {_shown(text)} is no {logical}")
    return number


def _binary(declared: Type, value: str | float, place: str) -> bytes:
    is_decimal = declared.properties.get("logicalType") == "decimal"
    if is_decimal and (not isinstance(value, str) or _DECIMAL.fullmatch(value)):
        return _decimal(declared, Decimal(str(value)), place)
    if not isinstance(value, str):
        raise ValueError(f"{place}: expected a text, not {_shown(value)}")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError(
            f"{place}: bytes are a text of characters up to U+00FF, as Avro's JSON encoding has it"
        ) from None


def _decimal(declared: Type, value: Decimal, place: str) -> bytes:
    scale = declared.properties.get("scale", 0)
    shifted = value.scaleb(scale if isinstance(scale, int) else 0)
    if not value.is_finite() or shifted != shifted.to_integral_value():
        raise ValueError(f"{place}: {value} has more than {scale} digits behind the point")
    number = int(shifted)
    size = declared.size or (number if number >= 0 else ~number).bit_length() // 8 + 1
    try:
        return number.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise ValueError(f"{place}: {value} does not fit {size} bytes") from None


def _word(declared: Type) -> str:
    return declared.full_name or declared.kind


def _shown(value: Json) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:60] + "…"
