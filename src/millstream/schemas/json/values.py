"""Differences of types, numbers, texts and enumerations between two JSON Schemas."""

from collections.abc import Iterator
from decimal import Decimal

from millstream.schemas.definition import Difference
from millstream.schemas.json.document import Json, text_of
from millstream.schemas.json.rules import difference

ALL_TYPES = frozenset({"null", "boolean", "integer", "fraction", "string", "array", "object"})
# A number is an integer or a fraction: so that `integer` is a part of `number`.
_TYPE_SETS = {"number": frozenset({"integer", "fraction"})}

# Keyword, rule; a larger value of the first group allows more, of the second less.
_UPPER = (
    ("maxLength", "MAX_LENGTH"),
    ("maximum", "MAXIMUM"),
    ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM"),
    ("maxProperties", "MAX_PROPERTIES"),
    ("maxItems", "MAX_ITEMS"),
)
_LOWER = (
    ("minLength", "MIN_LENGTH"),
    ("minimum", "MINIMUM"),
    ("exclusiveMinimum", "EXCLUSIVE_MINIMUM"),
    ("minProperties", "MIN_PROPERTIES"),
    ("minItems", "MIN_ITEMS"),
)
# Keywords that hold or break together, compared as they stand.
_OPAQUE = (
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
    ("propertyNames",),
    ("unevaluatedProperties",),
    ("unevaluatedItems",),
    ("format",),
    ("contentEncoding",),
    ("contentMediaType",),
    ("$dynamicRef",),
    ("$recursiveRef",),
)


def value_differences(old: Json, new: Json, path: str) -> Iterator[Difference]:
    before = old if isinstance(old, dict) else {}
    after = new if isinstance(new, dict) else {}
    yield from _types(before, after, path)
    for keyword, rule in _UPPER:
        yield from _bound(keyword, rule, before, after, path)
    for keyword, rule in _LOWER:
        yield from _bound(keyword, rule, before, after, path)
    yield from _multiple(before, after, path)
    yield from _pattern(before, after, path)
    yield from _enumeration(before, after, path)
    for group in _OPAQUE:
        yield from _opaque(group, before, after, path)


def types_of(schema: Json) -> frozenset[str]:
    """The types that the keywords `type`, `enum` and `const` allow."""
    listed = schema.get("type")
    allowed = ALL_TYPES
    if listed is not None:
        names = listed if isinstance(listed, list) else [listed]
        allowed = frozenset(t for name in names for t in _TYPE_SETS.get(name, frozenset({name})))
    values = _values(schema)
    if values is not None:
        allowed &= frozenset(_type_of(value) for value in values)
    return allowed


def _types(before: Json, after: Json, path: str) -> Iterator[Difference]:
    old, new = types_of(before), types_of(after)
    is_sum = isinstance(before.get("type"), list) or isinstance(after.get("type"), list)
    if old == new:
        return
    if old < new:
        yield difference("SUM_TYPE_EXTENDED" if is_sum else "TYPE_EXTENDED", path)
    elif new < old:
        yield difference("SUM_TYPE_NARROWED" if is_sum else "TYPE_NARROWED", path)
    else:
        yield difference("TYPE_CHANGED", path)


def _bound(keyword: str, rule: str, before: Json, after: Json, path: str) -> Iterator[Difference]:
    old, new = _number(before, keyword), _number(after, keyword)
    if old == new:
        return
    at = f"{path}/{keyword}"
    if old is None:
        if not _is_implied(keyword, after, before):
            yield difference(f"{rule}_ADDED", at)
    elif new is None:
        yield difference(f"{rule}_REMOVED", at)
    else:
        yield difference(f"{rule}_{'INCREASED' if new > old else 'DECREASED'}", at)


def _number(schema: Json, keyword: str) -> int | Decimal | None:
    value = schema.get(keyword)
    if keyword in {"maximum", "minimum"} and schema.get(f"exclusive{keyword.title()}") is True:
        return None  # Draft 4: `exclusiveMaximum: true` makes it the other bound.
    if keyword in {"exclusiveMaximum", "exclusiveMinimum"} and isinstance(value, bool):
        value = schema.get(keyword.removeprefix("exclusive").lower()) if value else None
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return value
    return None


def _is_implied(keyword: str, after: Json, before: Json) -> bool:
    """`minimum: 5` follows from `exclusiveMinimum: 5`, and so do lengths of at least 0."""
    new = _number(after, keyword)
    assert new is not None
    if keyword in {"minLength", "minItems", "minProperties"}:
        return new <= 0
    if keyword == "minimum":
        old = _number(before, "exclusiveMinimum")
        return old is not None and old >= new
    if keyword == "maximum":
        old = _number(before, "exclusiveMaximum")
        return old is not None and old <= new
    return False


def _multiple(before: Json, after: Json, path: str) -> Iterator[Difference]:
    old, new = _number(before, "multipleOf"), _number(after, "multipleOf")
    at = f"{path}/multipleOf"
    if old == new:
        return
    if old is None:
        yield difference("MULTIPLE_OF_ADDED", at)
    elif new is None:
        yield difference("MULTIPLE_OF_REMOVED", at)
    elif new and Decimal(old) % Decimal(new) == 0:
        yield difference("MULTIPLE_OF_REDUCED", at)
    elif old and Decimal(new) % Decimal(old) == 0:
        yield difference("MULTIPLE_OF_EXPANDED", at)
    else:
        yield difference("MULTIPLE_OF_CHANGED", at)


def _pattern(before: Json, after: Json, path: str) -> Iterator[Difference]:
    old, new = before.get("pattern"), after.get("pattern")
    at = f"{path}/pattern"
    if old == new:
        return
    if old is None:
        yield difference("PATTERN_ADDED", at)
    elif new is None:
        yield difference("PATTERN_REMOVED", at)
    else:
        yield difference("PATTERN_CHANGED", at)


def _values(schema: Json) -> list[Json] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _enumeration(before: Json, after: Json, path: str) -> Iterator[Difference]:
    old, new = _values(before), _values(after)
    at = f"{path}/enum"
    if new is None:
        if old is not None:
            yield difference("ENUM_ARRAY_EXTENDED", at)
        return
    after_texts = {_canonical(value) for value in new}
    if old is None:
        if not (types_of(before) == {"null"} and "null" in after_texts):
            yield difference("ENUM_ARRAY_NARROWED", at)
        return
    before_texts = {_canonical(value) for value in old}
    if before_texts == after_texts:
        return
    if before_texts < after_texts:
        yield difference("ENUM_ARRAY_EXTENDED", at)
    elif after_texts < before_texts:
        yield difference("ENUM_ARRAY_NARROWED", at)
    else:
        yield difference("ENUM_ARRAY_CHANGED", at)


def _canonical(value: Json) -> str:
    """Equal for values that JSON Schema takes as equal: 1 and 1.0 are."""
    match value:
        case bool():
            return text_of(value)
        case int() | Decimal():
            return str(Decimal(value).normalize())
        case list():
            return "[" + ",".join(map(_canonical, value)) + "]"
        case dict():
            return (
                "{" + ",".join(f"{text_of(k)}:{_canonical(value[k])}" for k in sorted(value)) + "}"
            )
        case _:
            return text_of(value)


def _type_of(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case Decimal():
            return "integer" if value == value.to_integral_value() else "fraction"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _opaque(group: tuple[str, ...], before: Json, after: Json, path: str) -> Iterator[Difference]:
    old = {key: before[key] for key in group if key in before}
    new = {key: after[key] for key in group if key in after}
    if _canonical(old) == _canonical(new):
        return
    at = f"{path}/{group[0]}"
    if not new:
        yield difference("KEYWORD_REMOVED", at)
    else:
        yield difference("KEYWORD_CHANGED" if old else "KEYWORD_ADDED", at)
